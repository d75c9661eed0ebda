"""The gateway as an ASGI application: paths, authentication, and the choice of protocol era."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, cast

import anyio
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import INTERNAL_ERROR, PARSE_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fingerpost.events import EventSink
from fingerpost.records import JsonObject, Principal
from fingerpost.settings import GatewaySettings, ProfileSettings
from fingerpost.store import Store
from fingerpost.surfaces.gateway.legacy import (
    delete_session,
    handle_batch_post,
    handle_legacy_post,
    open_event_stream,
)
from fingerpost.surfaces.gateway.modern import handle_modern_post, reject_method
from fingerpost.surfaces.gateway.protocol import (
    InvalidJsonBody,
    InvalidJsonRpcMessage,
    JsonRpcMessage,
    McpMethods,
    decode_json,
    encode_json,
    read_message,
)
from fingerpost.surfaces.gateway.responses import INTERNAL_ERROR_MESSAGE
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.gateway.state import (
    SHUTDOWN_MESSAGE,
    GatewayAuth,
    GatewayState,
    McpHttpError,
    McpHttpRequest,
    respond_error,
)
from fingerpost.surfaces.http.access import HOST_REFUSED, SAME_ORIGIN_HEADERS, Authenticator, Endpoint
from fingerpost.surfaces.http.asgi import (
    JSON_TYPE,
    AsgiScope,
    ClientDisconnected,
    HttpError,
    Receive,
    Send,
    check_content_type,
    parse_headers,
    read_body,
    respond,
)
from fingerpost.surfaces.http.local_callers import Peer
from fingerpost.tasks import run_restarting

log = logging.getLogger("fingerpost.gateway")

_ALLOW_HEADER: Final = (b"allow", b"GET, POST, DELETE, OPTIONS")
_ANY_ORIGIN_HEADER: Final = (b"access-control-allow-origin", b"*")
_IDLE_CHECK_INTERVAL_S: Final = 15.0
_PROFILE_PATH: Final = "/mcp/p/"


class GatewayApp:
    """The ASGI application. Open it with `async with`, then serve it alone or behind a `PathRouter`."""

    def __init__(
        self,
        methods: McpMethods,
        authenticator: Authenticator,
        settings: GatewaySettings,
        events: EventSink,
        *,
        profiles: Mapping[str, ProfileSettings] | None = None,
        audience: NotificationListeners | None = None,
        health: Callable[[], JsonObject] | None = None,
        store: Store | None = None,
    ) -> None:
        """Sessions are shared with other processes through `store`, if these share it."""
        self._settings = settings
        self._health = health
        self._authenticator = authenticator
        self._get_documents = authenticator.get_public_documents
        self._endpoints = build_endpoints(settings)
        self._profiles: Mapping[str, ProfileSettings] = {} if profiles is None else profiles
        self._auth = GatewayAuth(authenticator)
        self._state = GatewayState(
            methods,
            settings,
            events,
            NotificationListeners() if audience is None else audience,
            self._auth,
            store,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            stack.callback(self._state.close)
            self._state.set_tasks(tasks)
            tasks.start_soon(run_restarting, self._end_idle_sessions)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state.close()
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        await self._stack.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))
        self._state.set_tasks(None)

    async def drain(self, seconds: float) -> None:
        """End streams gracefully and give running requests a short time before they are stopped."""
        self._state.closing.set()
        self._state.end_streams()
        with anyio.move_on_after(seconds):
            await self._state.active_requests.wait_until_done()
        self._state.active_requests.cancel_all(SHUTDOWN_MESSAGE)
        self._state.close()  # last: closing sessions also stops the requests that still run in them

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        endpoint = self._endpoints.get(path) or get_profile_endpoint(path, self._profiles)
        if endpoint is None:
            try:
                await self._respond_outside_endpoints(path, scope, send)
            except HttpError as fault:
                await respond_error(send, fault)
            return
        inbound: McpHttpRequest | None = None
        try:
            headers, repeated = parse_headers(scope["headers"])
            inbound = McpHttpRequest(
                method=scope["method"],
                headers=headers,
                endpoint=endpoint,
                receive=receive,
                send=send,
                remote=(scope.get("client") or ("",))[0],
                peer=Peer.from_addresses(scope.get("client"), scope.get("server")),
                common=self._auth.build_cors_headers(headers),
                repeated=repeated,
            )
            await self._handle_request(inbound)
        except HttpError as fault:
            await respond_error(send, fault, inbound.common if inbound else ())
        except ClientDisconnected:
            pass
        except Exception:
            log.exception("A request at %s could not be answered", endpoint.path)
            await respond_error(send, McpHttpError(500, INTERNAL_ERROR_MESSAGE, code=INTERNAL_ERROR))

    async def _handle_request(self, http_request: McpHttpRequest) -> None:
        if http_request.method == "OPTIONS":
            status, headers = self._auth.build_preflight(http_request.headers)
            return await respond(http_request.send, status, b"", headers)
        principal = await self._auth.authenticate(http_request)
        if http_request.method != "POST":
            return await self._handle_stream(http_request, principal)
        sent = await self._read_json(http_request)
        try:
            if isinstance(sent, list):
                batch = cast("list[object]", sent)
                return await handle_batch_post(self._state, http_request, principal, batch)
            message = read_message(sent)
        except InvalidJsonRpcMessage as error:
            raise McpHttpError(400, error.message, code=error.code, request_id=error.request_id) from error
        is_legacy = _is_handshake_request(http_request.headers, message)
        post = handle_legacy_post if is_legacy else handle_modern_post
        return await post(self._state, http_request, principal, message)

    async def _handle_stream(self, http_request: McpHttpRequest, principal: Principal) -> None:
        """Handle the methods that concern a session's stream of the handshake era."""
        if not _is_handshake_version(http_request.headers.get("mcp-protocol-version")):
            await reject_method(http_request)
        elif http_request.method == "GET":
            await open_event_stream(self._state, http_request, principal)
        elif http_request.method == "DELETE":
            await delete_session(self._state, http_request, principal)
        else:
            raise McpHttpError(405, "Use POST, GET or DELETE.", headers=(_ALLOW_HEADER,))

    async def _read_json(self, http_request: McpHttpRequest) -> object:
        check_content_type(http_request.headers)
        body = await read_body(
            http_request.headers,
            http_request.receive,
            limit=self._settings.body_bytes,
            seconds=self._settings.request_seconds,
        )
        try:
            return decode_json(body)
        except InvalidJsonBody as error:
            raise McpHttpError(400, str(error), code=PARSE_ERROR) from error

    async def _respond_outside_endpoints(self, path: str, scope: AsgiScope, send: Send) -> None:
        """Answer paths that are not endpoints: health and public documents."""
        if scope["method"] in {"GET", "HEAD"}:
            if path == "/healthz":
                if not self._authenticator.allows_probe(parse_headers(scope["headers"])[0]):
                    raise McpHttpError(403, HOST_REFUSED)
                state: JsonObject = {"status": "ok", **(self._health() if self._health else {})}
                await respond(send, 200, encode_json(state), (JSON_TYPE, *SAME_ORIGIN_HEADERS))
                return
            if (document := self._get_documents().get(path)) is not None:
                await respond(send, 200, encode_json(document), (JSON_TYPE, _ANY_ORIGIN_HEADER))
                return
        await respond_error(send, McpHttpError(404, "Not found; the MCP endpoint is /mcp."))

    async def _end_idle_sessions(self) -> None:
        pause = min(_IDLE_CHECK_INTERVAL_S, self._settings.session_seconds / 4)
        while True:
            await anyio.sleep(pause)
            self._state.sessions.end_idle_sessions()
            if self._state.shared is not None:
                await self._state.shared.end_idle()


def get_profile_endpoint(path: str, profiles: Mapping[str, ProfileSettings]) -> Endpoint | None:
    """Return the endpoint of a profile's path, or None if the profile does not exist now."""
    if not path.startswith(_PROFILE_PATH):
        return None
    name = path.removeprefix(_PROFILE_PATH).removesuffix("/")
    profile = profiles.get(name)
    return None if profile is None else Endpoint(path=_PROFILE_PATH + name, mode=profile.mode, profile=name)


def build_endpoints(settings: GatewaySettings) -> dict[str, Endpoint]:
    """Return the fixed endpoints by path, each with and without a trailing slash."""
    known = [
        Endpoint(path="/mcp", mode=settings.mode),
        Endpoint(path="/mcp/route", mode="route"),
        Endpoint(path="/mcp/all", mode="all"),
    ]
    return {path: endpoint for endpoint in known for path in (endpoint.path, f"{endpoint.path}/")}


def _is_handshake_version(version: str | None) -> bool:
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _is_handshake_request(headers: Mapping[str, str], message: JsonRpcMessage) -> bool:
    """Return whether the request belongs to the handshake era, by its version header. Without the header, a
    request with the modern envelope is modern.
    """
    version = headers.get("mcp-protocol-version")
    if version is not None or "mcp-session-id" in headers or message.method == "initialize":
        return _is_handshake_version(version)
    meta = message.params.get("_meta")
    return not (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta)
