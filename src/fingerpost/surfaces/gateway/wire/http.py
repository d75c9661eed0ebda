"""What the MCP endpoints need of HTTP beyond what every surface does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fingerpost.frozen import frozen
from fingerpost.surfaces.gateway.exchange import RequestId
from fingerpost.surfaces.gateway.wire.codec import INVALID_REQUEST, encode_error
from fingerpost.surfaces.web.asgi import JSON_TYPE, Header, HttpError, Receive, Send, respond
from fingerpost.surfaces.web.gate import Endpoint
from fingerpost.surfaces.web.peers import Peer


class McpHttpError(HttpError):
    """A fault with the JSON-RPC code the client reads, and the request it belongs to."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        headers: tuple[Header, ...] = (),
        request_id: RequestId | None = None,
    ) -> None:
        super().__init__(status, message, headers=headers)
        self.code = code
        self.request_id = request_id


@frozen(kw_only=False)
class McpHttpRequest:
    """One HTTP request at one of our endpoints."""

    method: str
    headers: Mapping[str, str]
    endpoint: Endpoint
    receive: Receive
    send: Send
    remote: str = ""  # the address the client comes from
    peer: Peer | None = None  # its connection, where it is on this machine
    common: tuple[Header, ...] = ()  # go with every answer to it
    repeated: frozenset[str] = frozenset()  # headers that came more than once


def parse_accept(headers: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes an event stream. No Accept header takes all."""
    accept = headers.get("accept")
    if accept is None or accept == "application/json, text/event-stream":
        return True, True
    types = {part.split(";")[0].strip().lower() for part in accept.split(",")}
    everything = "*/*" in types
    return (
        everything or not types.isdisjoint({"application/json", "application/*"}),
        everything or not types.isdisjoint({"text/event-stream", "text/*"}),
    )


async def respond_error(send: Send, error: HttpError, common: Iterable[Header] = ()) -> None:
    """Tell the client, as a JSON-RPC error."""
    code, request_id = INVALID_REQUEST, None
    if isinstance(error, McpHttpError):
        code, request_id = error.code, error.request_id
    body = encode_error(request_id, code, error.message)
    await respond(send, error.status, body, (JSON_TYPE, *error.headers, *common))
