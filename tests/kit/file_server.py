"""A stdio MCP server whose tools are read from a file at every start.

Run: `python file_server.py TOOLS.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, tools: list[Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "file-server", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    tools = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], tools)
        body = (
            {"result": result} if result is not None else {"error": {"code": -32601, "message": "not found"}}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
