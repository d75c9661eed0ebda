"""Requests, responses and event streams on raw ASGI, and work that ends when its client disconnects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskGroup

AsgiMessage = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Header = tuple[bytes, bytes]

MAX_HEADERS: Final = 100
JSON_TYPE: Final[Header] = (b"content-type", b"application/json")
EVENT_STREAM_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
# Two components that read a request must not see different values of these.
_SINGLE_HEADERS: Final = frozenset(
    {"host", "origin", "authorization", "content-type", "mcp-session-id", "last-event-id"}
)


class HttpError(Exception):
    """Ends the request with this status and message. Each surface formats it in its own way."""

    def __init__(self, status: int, message: str, *, headers: tuple[Header, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete. No response is needed."""


def parse_headers(raw: Iterable[Header]) -> tuple[dict[str, str], frozenset[str]]:
    """Return headers by lower-case name, and the names that occur more than once. Raises `HttpError`."""
    pairs = list(raw)
    if len(pairs) > MAX_HEADERS:
        raise HttpError(431, f"A request has at most {MAX_HEADERS} headers.")
    # The parser keeps trailing whitespace, which is not part of the value.
    headers = {name.decode("latin-1"): value.decode("latin-1").strip(" \t") for name, value in pairs}
    if len(headers) == len(pairs):
        return headers, frozenset()
    names = [name.decode("latin-1") for name, _ in pairs]
    repeated = frozenset(name for name in names if names.count(name) > 1)
    if twice := sorted(repeated & _SINGLE_HEADERS):
        raise HttpError(400, f"The header {twice[0]} was sent more than once.")
    return headers, repeated


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raise `HttpError` unless the body is declared as JSON."""
    content_type = headers.get("content-type", "")
    if content_type != "application/json" and (
        content_type.split(";")[0].strip().lower() != "application/json"
    ):
        raise HttpError(400, "Send the request as application/json.")


async def read_body(headers: Mapping[str, str], receive: Receive, *, limit: int, seconds: float) -> bytes:
    """Return the whole body, limited in size and time. Raises `HttpError` and `ClientDisconnected`."""
    announced = headers.get("content-length")
    if announced is not None and announced.isdigit() and int(announced[:20]) > limit:
        raise _build_too_large(limit)
    message = await receive()  # `GuardedProtocol` closes connections that send nothing
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) <= limit:
            return body  # the usual case: one message
    with anyio.move_on_after(seconds):
        return await _read_rest(message, receive, limit)
    raise HttpError(
        408, f"The request did not arrive within {seconds:g} s.", headers=((b"connection", b"close"),)
    )


async def _read_rest(message: AsgiMessage, receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise ClientDisconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _build_too_large(limit)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _build_too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"A request has at most {limit} bytes (gateway.body_bytes).",
        headers=((b"connection", b"close"),),
    )


class ResponseSender:
    """Sends ASGI messages, records whether the response has started, and omits the body for HEAD."""

    def __init__(self, send: Send, *, bodiless: bool = False) -> None:
        self._send = send
        self._bodiless = bodiless
        self.started = False

    async def __call__(self, message: AsgiMessage) -> None:
        self.started = True
        if self._bodiless and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


async def respond(send: Send, status: int, body: bytes, headers: Iterable[Header] = (JSON_TYPE,)) -> None:
    """Send a complete response."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


WorkResult = TypeVar("WorkResult")


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects. Other messages are ignored."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_while_connected(
    receive: Receive, work: Callable[[TaskGroup], Awaitable[WorkResult]]
) -> WorkResult:
    """Return the result of `work`. If the client disconnects first, cancel it and raise `ClientDisconnected`.

    `work` may start tasks in the group; they end with it.
    """
    gone = False
    results: list[WorkResult] = []
    failures: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal gone
            await wait_for_disconnect(receive)
            gone = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            results.append(await work(tasks))
        except Exception as error:  # noqa: BLE001 - raised below; the group would wrap it
            failures.append(error)
        tasks.cancel_scope.cancel()
    if results:
        return results[0]
    if failures and not gone:
        raise failures[0]
    raise ClientDisconnected


HEARTBEAT_S: Final = 15.0  # proxies close idle connections


class EventStream:
    """Writes server-sent events. Use `open_event_stream`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._writing = anyio.Lock()

    async def send_event(
        self, payload: bytes, *, event: str | None = None, event_id: str | None = None
    ) -> None:
        """Send one event. `payload` must be one line, such as JSON."""
        head = "".join(
            f"{name}: {value}\n" for name, value in (("event", event), ("id", event_id)) if value is not None
        )
        await self._write_frame(b"%sdata: %s\n\n" % (head.encode(), payload))

    async def send_comment(self, text: str = "") -> None:
        """Send a comment, which clients ignore. It keeps the connection alive."""
        await self._write_frame(b": %s\n\n" % " ".join(text.split()).encode())

    async def _write_frame(self, frame: bytes) -> None:
        async with self._writing:
            await self._send_frame(frame)

    async def _send_frame(self, frame: bytes) -> None:
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})


@asynccontextmanager
async def open_event_stream(
    receive: Receive, send: Send, *, headers: Iterable[Header] = ()
) -> AsyncGenerator[EventStream]:
    """Send the response head and yield the stream. The block is cancelled when the client disconnects."""
    start: AsgiMessage = {
        "type": "http.response.start",
        "status": 200,
        "headers": [*EVENT_STREAM_HEADERS, *headers],
    }
    await send(start)
    stream = EventStream(send)
    gone = False
    async with anyio.create_task_group() as tasks:

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(HEARTBEAT_S)
                await stream.send_comment()

        async def watch() -> None:
            nonlocal gone
            await wait_for_disconnect(receive)
            gone = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(keep_alive)
        tasks.start_soon(watch)
        yield stream
        tasks.cancel_scope.cancel()
    if not gone:
        await send({"type": "http.response.body", "body": b""})
