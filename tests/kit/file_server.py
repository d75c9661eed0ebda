"""A stdio MCP server whose tools are read from a file at every start.

Run: `python file_server.py TOOLS.json`. The file has a list of tools, or an object of `tools` and
`instructions`. Tools with the names in `CALLS` do what those of the file-system
server from npm do, without its options and its limits; a call of another one fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_text(path: str, **_: Any) -> str:
    return Path(path).read_text(encoding="utf-8")


def write_file(path: str, content: str) -> str:
    Path(path).write_text(content, encoding="utf-8")
    return f"Successfully wrote to {path}"


def create_directory(path: str) -> str:
    Path(path).mkdir(parents=True, exist_ok=True)
    return f"Successfully created directory {path}"


CALLS: dict[str, Callable[..., str]] = {
    "read_text_file": read_text,
    "write_file": write_file,
    "create_directory": create_directory,
}


def answer(method: str, params: dict[str, Any], offered: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "file-server", "version": "1"},
                "instructions": offered.get("instructions", ""),
            }
        case "tools/list":
            return {"tools": offered["tools"]}
        case "tools/call" if params["name"] in CALLS:
            return call(CALLS[params["name"]], params.get("arguments", {}))
        case "ping":
            return {}
        case _:
            return None


def call(function: Callable[..., str], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        text, failed = function(**arguments), False
    except OSError as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def main() -> None:
    read: Any = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    offered: dict[str, Any] = {"tools": read} if isinstance(read, list) else read
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params", {}), offered)
        body = (
            {"result": result} if result is not None else {"error": {"code": -32601, "message": "not found"}}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
