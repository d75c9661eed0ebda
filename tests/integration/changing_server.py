"""A stdio MCP server whose tool says whatever the file named as its argument holds: run it as a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, description: str) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "changing", "version": "1.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            tool = {"name": "forecast", "description": description, "inputSchema": {"type": "object"}}
            return {"tools": [{**tool, "annotations": {"readOnlyHint": True}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "sunny"}]}
        case _:
            return {}


def main() -> None:
    description = Path(sys.argv[1]).read_text(encoding="utf-8")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            body = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request["method"], description)}
            sys.stdout.write(json.dumps(body) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
