"""A scripted stand-in for a model, behind a real OpenAI-compatible address.

What it says hangs on what it is asked alone, so it can be asked by two programs, one after the other,
and say the same. `asked` keeps what reached it over the wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

MODEL = "scripted"
PIECE = 7  # characters
USAGE = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}


@dataclass(frozen=True)
class UpstreamCall:
    """The model calls a tool."""

    id: str
    name: str
    arguments: dict[str, Any]

    def as_json(self, index: int) -> dict[str, Any]:
        function = {"name": self.name, "arguments": json.dumps(self.arguments)}
        return {"index": index, "id": self.id, "type": "function", "function": function}


Script = Callable[[dict[str, Any]], str | UpstreamCall]


@dataclass
class ScriptedUpstream:
    """Answers /v1/chat/completions, in pieces where that is wanted."""

    script: Script
    address: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def environment(self) -> dict[str, str]:
        """What makes it the model of a program."""
        return {
            "FINGERPOST_MODELS__PRIME__MODEL": MODEL,
            "FINGERPOST_MODELS__PRIME__BASE_URL": f"{self.address}/v1",
        }

    def reply(self, body: dict[str, Any]) -> bytes:
        self.asked.append(body)
        reply = self.script(body)
        if body.get("stream"):
            return b"".join(_frame(chunk) for chunk in _chunks(reply)) + b"data: [DONE]\n\n"
        message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else None}
        if isinstance(reply, UpstreamCall):
            message["tool_calls"] = [reply.as_json(0)]
        choice = {"index": 0, "finish_reason": _finish(reply), "message": message}
        return json.dumps({**_envelope("chat.completion"), "choices": [choice], "usage": USAGE}).encode()


def _finish(text: str | UpstreamCall) -> str:
    return "stop" if isinstance(text, str) else "tool_calls"


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 1, "model": MODEL}


def _chunks(text: str | UpstreamCall) -> Iterator[dict[str, Any]]:
    head = _envelope("chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if isinstance(text, UpstreamCall):
        deltas.append({"tool_calls": [text.as_json(0)]})
    else:
        deltas += [{"content": text[at : at + PIECE]} for at in range(0, len(text), PIECE)]
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(text)}]}
    yield {**head, "choices": [], "usage": USAGE}


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(payload).encode()


@contextmanager
def run_scripted_upstream(script: Script) -> Generator[ScriptedUpstream]:
    """It listens, in threads of its own."""
    upstream = ScriptedUpstream(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            kind = "text/event-stream" if body.get("stream") else "application/json"
            self._answer(200, kind, upstream.reply(body))

        def do_GET(self) -> None:
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]}
            self._answer(200, "application/json", json.dumps(listed).encode())

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """It says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # a connection that is kept for later has a thread that waits for it

    with Server(("127.0.0.1", 0), Handler) as server:
        upstream.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()


# What scripts look at


def get_last_user_text(body: dict[str, Any]) -> str:
    """The last thing a person said."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return str(texts[-1])


def last(body: dict[str, Any]) -> dict[str, Any]:
    return body["messages"][-1]


def list_offered(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", ())]


def get_answered_tool(body: dict[str, Any]) -> str:
    """The tool whose result stands last."""
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    return next(call["function"]["name"] for call in calls if call["id"] == last(body)["tool_call_id"])
