"""An MCP server that starts quickly: 30 tools, of which `echo` returns the text it is given.

Run: `python -I -S echo_server.py` (standard input and output) or `python -I -S echo_server.py --port PORT`
(Streamable HTTP at `/mcp`, without sessions). It speaks protocol 2025-11-25, and answers nothing in the first
half second: what calls it meanwhile finds it down, as with servers that load much.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAMES = ("echo", *(f"tool_{number}" for number in range(29)))
TOOLS = [
    {
        "name": name,
        "description": "Return the text that was sent.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }
    for name in NAMES
]


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The response to a request; none to a notification."""
    if "id" not in message:
        return None
    method, params = message["method"], message.get("params", {})
    result: dict[str, Any]
    if method == "initialize":
        about = {"name": "echo", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": f"no method {method}"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def serve_pipes() -> None:
    for line in sys.stdin:
        if (response := answer(json.loads(line))) is not None:
            print(json.dumps(response), flush=True)  # noqa: T201 - the wire


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        response = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._respond(202 if response is None else 200, json.dumps(response or {}).encode())

    def do_GET(self) -> None:
        self._respond(405, b"")

    def _respond(self, status: int, body: bytes) -> None:
        about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.wfile.write(f"HTTP/1.1 {status} -\r\n{about}\r\n".encode() + body)


def serve_http(port: int) -> None:
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    time.sleep(0.5)
    if sys.argv[1:2] == ["--port"]:
        serve_http(int(sys.argv[2]))
    else:
        serve_pipes()
