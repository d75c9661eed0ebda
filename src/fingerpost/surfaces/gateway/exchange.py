"""One request of a client, and the way back to it: the same for every era and transport.

`wire` makes these and knows nothing of tools; `methods` answers them and knows
nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Principal
from fingerpost.surfaces.web.gate import Endpoint

MODERN_VERSION: Final = "2026-07-28"
HANDSHAKE_VERSIONS: Final = "2025-11-25"  # the newest version with sessions; older ones are spoken too

RequestId = str | int


class JsonRpcError(Exception):
    """An error the client gets, with its JSON-RPC code."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@frozen(kw_only=False)
class EncodedResult:
    """A result that is already JSON, such as a page of a long list: written out as it is."""

    body: bytes


@frozen
class ClientRequest:
    """One request, its envelope checked and its params not."""

    id: RequestId
    method: str
    params: JsonObject
    version: str  # of the protocol
    endpoint: Endpoint
    principal: Principal
    capabilities: JsonObject = field(default_factory=dict[str, Json])  # of the client
    client: str = ""  # what it calls itself, with its version
    session: str | None = None  # handshake era only
    authorization: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # lower-case; HTTP only
    modern: bool = field(default=False, init=False)  # asked a dozen times for every request

    def __post_init__(self) -> None:
        object.__setattr__(self, "modern", self.version >= MODERN_VERSION)

    @property
    def caller_key(self) -> str:
        """The same for all requests of one session, or of one principal where there are no sessions."""
        return self.session or self.principal_key

    @property
    def principal_key(self) -> str:
        """The same for all requests of one principal, in whatever session."""
        return f"{self.principal.kind}:{self.principal.name}"


class ClientExchange(Protocol):
    """The way back to the client while its request is answered."""

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification that belongs to this request."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the client something and wait for the answer. Handshake era only.

        Raises `JsonRpcError` with the client's own code, or when it cannot be asked.
        """
        ...


class NotificationAudience(Protocol):
    """Everybody who listens to news outside of a request: sessions and subscription streams."""

    def publish(
        self,
        method: str,
        params: JsonObject,
        *,
        should_receive: Callable[[ClientRequest], bool] | None = None,
    ) -> None:
        """Send `notifications/…` to each listener who asked for it (and whom `to` lets through)."""
        ...


class McpMethods(Protocol):
    """Answers requests. Raises `JsonRpcError`; anything else is a fault of ours."""

    async def answer(
        self, request: ClientRequest, exchange: ClientExchange
    ) -> JsonObject | EncodedResult: ...

    async def wait_until_ready(self, endpoint: Endpoint, principal: Principal) -> None:
        """Before `describe`: the first client waits a little until servers said what they have."""
        ...

    def get_input_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """What a tool takes, where `Mcp-Param-*` headers have to be compared with arguments."""
        ...

    def describe(self, endpoint: Endpoint, principal: Principal, version: str) -> JsonObject:
        """`capabilities`, `serverInfo` and `instructions`, for `initialize` and `server/discover`."""
        ...

    def forget_session(self, session: str) -> None:
        """A session ended: drop what was held for it."""
        ...
