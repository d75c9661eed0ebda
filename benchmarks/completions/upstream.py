"""A model server that takes the same time for every answer. Run as a program it prints its address.

An answer of 20 words: the first after `FIRST_S`, then one every `NEXT_S`; whole answers take as long.
"""

from __future__ import annotations

import json
from typing import Any, Final

import anyio

from fingerpost.surfaces.http.asgi import EVENT_STREAM_HEADERS, JSON_TYPE, AsgiScope, Receive, Send, respond
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app
from fingerpost.surfaces.serve import get_backend_options

FIRST_S: Final = 0.03
NEXT_S: Final = 0.002
WORDS: Final = 20
USAGE: Final = {"prompt_tokens": 100, "completion_tokens": WORDS, "total_tokens": 100 + WORDS}


class Upstream:
    """Answers /v1/chat/completions."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body or b"{}")
        await (_stream(send) if asked.get("stream") else _whole(send))

    async def drain(self, seconds: float) -> None:
        """Nothing has to be ended."""


async def _whole(send: Send) -> None:
    await anyio.sleep(FIRST_S + NEXT_S * (WORDS - 1))
    message = {"role": "assistant", "content": "word " * WORDS}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
    await respond(send, 200, json.dumps({**body, "usage": USAGE}).encode(), (JSON_TYPE,))


async def _stream(send: Send) -> None:
    await anyio.sleep(FIRST_S)
    await send({"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM_HEADERS)})
    for number in range(WORDS):
        if number:
            await anyio.sleep(NEXT_S)
        await _frame(send, _chunk([{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]))
    await _frame(send, _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    await _frame(send, {**_chunk([]), "usage": USAGE})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _chunk(choices: list[Any]) -> dict[str, Any]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return {**head, "choices": choices}


async def _frame(send: Send, payload: Any) -> None:
    frame = b"data: %s\n\n" % json.dumps(payload).encode()
    await send({"type": "http.response.body", "body": frame, "more_body": True})


async def main() -> None:
    with listen_at("127.0.0.1", 0) as listening:
        print(f"http://{get_address(listening)}", flush=True)
        await serve_app(Upstream(), listening)


if __name__ == "__main__":
    anyio.run(main, backend_options=get_backend_options())
