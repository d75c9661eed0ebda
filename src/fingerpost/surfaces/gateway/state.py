"""State that all transports of a running gateway share, and the authentication of HTTP requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST

from fingerpost.errors import StoreError
from fingerpost.events import ClientLeft, EventSink
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal
from fingerpost.settings import GatewaySettings
from fingerpost.store import Store
from fingerpost.surfaces.gateway.protocol import ClientRequest, McpMethods, RequestId, encode_error
from fingerpost.surfaces.gateway.sessions import (
    ActiveRequest,
    ActiveRequests,
    McpSession,
    McpSessions,
    NotificationListeners,
    SharedSessions,
)
from fingerpost.surfaces.http.access import AccessDenial, Authenticator, CorsPolicy, Endpoint
from fingerpost.surfaces.http.asgi import JSON_TYPE, Header, HttpError, Receive, Send, respond
from fingerpost.surfaces.http.local_callers import Peer, drop_decision_rights


class McpHttpError(HttpError):
    """An HTTP error with its JSON-RPC code and the id of its request."""

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
    """One HTTP request to an MCP endpoint."""

    method: str
    headers: Mapping[str, str]
    endpoint: Endpoint
    receive: Receive
    send: Send
    remote: str = ""  # the client's address
    peer: Peer | None = None  # the connection, if the client is on this machine
    common: tuple[Header, ...] = ()  # headers of every response
    repeated: frozenset[str] = frozenset()  # headers that occur more than once


def parse_accept(headers: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether the client accepts JSON, and whether an event stream; both without an Accept header."""
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
    """Send the error as a JSON-RPC error."""
    code, request_id = INVALID_REQUEST, None
    if isinstance(error, McpHttpError):
        code, request_id = error.code, error.request_id
    body = encode_error(request_id, code, error.message)
    await respond(send, error.status, body, (JSON_TYPE, *error.headers, *common))


_CORS: Final = CorsPolicy(
    methods=b"GET, POST, DELETE",
    headers=(
        "Authorization", "X-API-Key", "Content-Type", "Accept", "Last-Event-ID",
        "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name",
    ),
    prefix="mcp-param-",
    exposed=b"Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate",
)  # fmt: skip
_UNDECIDED_STATUS: Final = 503
_RETRY_SOON: Final[tuple[Header, ...]] = ((b"retry-after", b"5"),)


class GatewayAuth:
    """Authenticates every HTTP request. Keeps no state."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def authenticate(self, http_request: McpHttpRequest) -> Principal:
        """Return the principal. Raises `McpHttpError` if access is denied, which was logged by then."""
        admitted = await self._authenticator.authenticate(
            http_request.headers, http_request.endpoint, remote=http_request.remote
        )
        if isinstance(admitted, Principal):
            return await drop_decision_rights(admitted, http_request.peer)
        raise McpHttpError(admitted.status, admitted.message, headers=admitted.encoded_headers)

    def build_cors_headers(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """Return the CORS headers for responses to an allowed web page."""
        return _CORS.build_headers(self._authenticator, headers)

    async def is_still_admitted(self, http_request: McpHttpRequest, principal: Principal) -> bool:
        """Return whether a stream may stay open. Its key may have been revoked or expired.

        True if the check is not possible now: a store outage must not end all streams.
        """
        answer = await self._authenticator.authenticate(
            http_request.headers, http_request.endpoint, remote=http_request.remote
        )
        if isinstance(answer, AccessDenial):
            return answer.status == _UNDECIDED_STATUS
        return await drop_decision_rights(answer, http_request.peer) == principal

    def build_preflight(self, headers: Mapping[str, str]) -> tuple[int, tuple[Header, ...]]:
        """Return status and headers for a preflight."""
        return _CORS.build_preflight(self._authenticator, headers)


log = logging.getLogger("fingerpost.gateway")

SHUTDOWN_MESSAGE = "Fingerpost is shutting down; try again when it is back."


class GatewayState:
    """Methods, sessions, listeners, and the task group for work that outlives one step of a request."""

    def __init__(
        self,
        methods: McpMethods,
        settings: GatewaySettings,
        events: EventSink,
        audience: NotificationListeners,
        auth: GatewayAuth | None = None,
        store: Store | None = None,
    ) -> None:
        """`auth` is for HTTP clients, None for stdio. `store` shares sessions with other processes."""
        self.methods = methods
        self.settings = settings
        self.events = events
        self.audience = audience
        self._auth = auth
        self.closing = anyio.Event()
        self.open_streams = 0  # subscription streams
        self.sessions = McpSessions(
            audience,
            limit=settings.max_sessions,
            idle_seconds=settings.session_seconds,
            on_end=self._on_session_end,
        )
        self.shared: SharedSessions | None = None
        if store is not None and store.messages.is_shared:
            self.shared = SharedSessions(
                store,
                self.sessions,
                limit=settings.max_sessions,
                idle_seconds=settings.session_seconds,
                restore=methods.restore_session,
                on_left=self._on_shared_session_left,
            )
        self._at_close: dict[object, Callable[[], None]] = {}
        self.active_requests = ActiveRequests()
        self._tasks: TaskGroup | None = None

    @property
    def task_group(self) -> TaskGroup:
        if self._tasks is None:
            raise RuntimeError("The gateway is not open: use `async with GatewayApp(…)`.")
        return self._tasks

    def set_tasks(self, tasks: TaskGroup | None) -> None:
        self._tasks = tasks

    def create_active_request(self) -> ActiveRequest:
        """Return the handle of a request: `with` registers the request, and `cancel` stops it."""
        return ActiveRequest(self.active_requests)

    async def open_session(self, request: ClientRequest) -> McpSession:
        """Open a session for this `initialize` request. Raises `McpHttpError`."""
        session = None if self.closing.is_set() else self.sessions.open(request)
        if session is None:
            raise McpHttpError(503, "Too many sessions are open; try again later.", code=INTERNAL_ERROR)
        if self.shared is not None:
            try:
                await self.shared.add(session)
            except StoreError as error:
                self.sessions.end_session(session, "it could not be stored")
                raise _build_store_error(error) from error
        return session

    async def find_session(
        self, session_id: str, principal: Principal, endpoint: Endpoint
    ) -> McpSession | None:
        """Return the session if this principal and endpoint own it, else None. Raises `McpHttpError`."""
        session = self.sessions.find(session_id, principal, endpoint)
        if self.shared is None:
            return session
        if session is None:
            try:
                session = await self.shared.load(session_id, principal, endpoint)
            except StoreError as error:
                raise _build_store_error(error) from error
        if session is not None:
            self.shared.note_use(session)
        return session

    async def end_session(self, session: McpSession, reason: str) -> None:
        """End a session for all processes. Raises `McpHttpError`."""
        if self.shared is not None:
            try:
                await self.shared.end(session.id, reason)
            except StoreError as error:
                raise _build_store_error(error) from error
        self.sessions.end_session(session, reason)
        if session.shared is not None:
            self._emit_left(session.request, reason)

    async def is_still_admitted(self, http_request: McpHttpRequest, principal: Principal) -> bool:
        """Return whether a stream that this request opened may stay open."""
        return self._auth is None or await self._auth.is_still_admitted(http_request, principal)

    def call_at_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the gateway closes. Call the result to undo this."""
        key = object()
        self._at_close[key] = callback

        def forget() -> None:
            self._at_close.pop(key, None)

        return forget

    def end_streams(self) -> None:
        """End all notification streams gracefully."""
        for end in list(self._at_close.values()):
            end()

    def close(self) -> None:
        """Accept no new streams or sessions, and end open streams gracefully."""
        self.closing.set()
        self.end_streams()
        if self.shared is not None:
            self.shared.close()
        self.sessions.end_all_sessions("the gateway closed")

    def forget_session(self, session: str) -> None:
        """Notify the methods that a session or stream ended."""
        try:
            self.methods.forget_session(session)
        except Exception:
            log.exception("The state of an ended session could not be removed")

    def _on_session_end(self, session: McpSession, reason: str) -> None:
        if session.shared is None:  # else it may go on in another process
            self._emit_left(session.request, reason)
        self.forget_session(session.id)

    def _emit_left(self, opening: ClientRequest, reason: str) -> None:
        self.events.emit(
            ClientLeft(
                client=opening.client,
                endpoint=opening.endpoint.path,
                principal=opening.principal.name,
                reason=reason,
            )
        )

    def _on_shared_session_left(self, record: JsonObject, reason: str) -> None:
        client, path, principal = (str(record[name]) for name in ("client", "path", "principal"))
        self.events.emit(ClientLeft(client=client, endpoint=path, principal=principal, reason=reason))


def _build_store_error(error: StoreError) -> McpHttpError:
    message = f"Sessions cannot be read or stored now: {error}. {error.hint or 'Try again soon.'}"
    return McpHttpError(503, message, code=INTERNAL_ERROR, headers=_RETRY_SOON)
