"""The parts of a request that are forwarded to a server, log levels of sessions, and waiting for servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from anyio.abc import TaskGroup
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from fingerpost.errors import FingerpostError, StoreError
from fingerpost.records import Json, JsonObject, ServerState, ServerStatus
from fingerpost.router import Router
from fingerpost.servers.requests import CALL_ID_META_KEY, RequestContext
from fingerpost.surfaces.gateway.protocol import MODERN_VERSION, ClientExchange, ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.sessions import change_shared_session
from fingerpost.tasks import run_contained

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL: Final = "info"  # for sessions that set none


class LogLevels:
    """The log level of each session."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {}

    def set_level(self, session: str, level: str) -> None:
        self._levels[session] = level

    def get_level(self, session: str | None) -> str | None:
        """Return the level this session set, or None."""
        return None if session is None else self._levels.get(session)

    def forget(self, session: str) -> bool:
        """Forget a session's level. Return whether it had set one."""
        return self._levels.pop(session, None) is not None

    @property
    def lowest(self) -> str | None:
        """The lowest level of all sessions, or None if the default is at least as low."""
        lowest = min(self._levels.values(), key=LOG_LEVELS.index, default=None)
        return (
            None if lowest is None or LOG_LEVELS.index(lowest) > LOG_LEVELS.index(DEFAULT_LEVEL) else lowest
        )

    def wants(self, session: str | None, level: object) -> bool:
        """Return whether this session wants messages of this level. Unknown levels are always sent."""
        if level not in LOG_LEVELS:
            return True
        return LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(self.get_level(session) or DEFAULT_LEVEL)


async def keep_setting(
    router: Router, request: ClientRequest, change: Callable[[dict[str, Any]], None]
) -> None:
    """Keep what a session has set for the other processes that serve it. Raises `JsonRpcError`."""
    try:
        await change_shared_session(router.store, request.session or "", change)
    except StoreError as error:
        raise JsonRpcError(INTERNAL_ERROR, f"This could not be stored: {error}. Try again later.") from error


SET_LEVEL_METHOD: Final = "logging/setLevel"
_CONNECTED_STATES: Final = frozenset((ServerState.READY, ServerState.DEGRADED))


class LoggingMethods:
    """Sets log levels. Servers are shared, so they get the lowest level that any session wants.

    It is never above the default, for sessions without a level. Each session's own level is applied by the
    gateway.
    """

    def __init__(self, router: Router, *, levels: LogLevels, tasks: TaskGroup, seconds: float) -> None:
        self._router = router
        self._levels = levels
        self._tasks = tasks
        self._seconds = seconds
        self._level_by_server: dict[str, str] = {}

    async def set_level(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise JsonRpcError(INVALID_PARAMS, f"`level` must be one of {', '.join(LOG_LEVELS)}")
        self._levels.set_level(request.session or request.caller_key, str(level))
        self._send_levels()
        await keep_setting(self._router, request, lambda record: record.update(level=level))
        return {}

    def restore_level(self, request: ClientRequest, record: JsonObject) -> None:
        """Apply the level that a session set in another process."""
        level = record.get("level")
        if isinstance(level, str) and level != self._levels.get_level(request.session):
            self._levels.set_level(request.session or request.caller_key, level)
            self._send_levels()

    def forget_session(self, session: str) -> None:
        """Drop the level of a session that ended, and update the servers."""
        if self._levels.forget(session):
            self._send_levels()

    def on_server_change(self, server: str) -> None:
        """Handle a connected or disconnected server. A new connection needs its level again."""
        connected = {one.name for one in self._router.servers.statuses if one.state in _CONNECTED_STATES}
        if server in connected:
            self._send_levels()
        else:
            self._level_by_server.pop(server, None)

    def _send_levels(self) -> None:
        lowest = self._levels.lowest
        for status in self._router.servers.statuses:
            sent_level = self._level_by_server.get(status.name)
            # A server without a level uses its own default, which sessions without a level then get.
            level = lowest or (None if sent_level is None else DEFAULT_LEVEL)
            if level is not None and level != sent_level and self._supports_levels(status):
                self._level_by_server[status.name] = level
                self._tasks.start_soon(run_contained, self._send_level, status.name, level)

    def _supports_levels(self, status: ServerStatus) -> bool:
        """Return whether the server takes a log level once. Since 2026-07-28 each request carries it."""
        if status.protocol is not None and status.protocol >= MODERN_VERSION:
            return False
        resources = self._router.servers.get_resources(status.name)
        return resources is not None and "logging" in resources.capabilities

    async def _send_level(self, server: str, level: str) -> None:
        """Send the level to a server. Errors are ignored, because the gateway filters messages anyway."""
        try:
            await self._router.servers.ask(server, SET_LEVEL_METHOD, {"level": level}, timeout=self._seconds)
        except FingerpostError:
            self._level_by_server.pop(server, None)


LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
INTENT_KEY: Final = "fingerpost/intent"
MAX_INTENT_LENGTH: Final = 4000
FALLBACK_KEY: Final = "fingerpost/fallback"
IDEMPOTENCY_META_KEY: Final = "fingerpost/idempotency-key"

# Protocol members between this client and the gateway. The server gets its own.
_OWN_META_KEYS: Final = frozenset(
    (
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        LOG_LEVEL_KEY,
        INTENT_KEY,
        FALLBACK_KEY,
        IDEMPOTENCY_META_KEY,
        CALL_ID_META_KEY,
    )
)
_NOTHING: Final[JsonObject] = {}


def get_meta(request: ClientRequest) -> JsonObject:
    """Return the request's `_meta`, empty if it has none."""
    meta = request.params.get("_meta")
    if isinstance(meta, dict):
        return meta
    return cast("JsonObject", meta) if isinstance(meta, Mapping) else _NOTHING


def get_intent(request: ClientRequest) -> str:
    """Return what the user wants, if the client says so. Digests of long results keep the parts about it."""
    intent = get_meta(request).get(INTENT_KEY)
    return intent[:MAX_INTENT_LENGTH] if isinstance(intent, str) else ""


def get_idempotency_key(request: ClientRequest) -> str | None:
    """Return the key under which the client may repeat a call. Raises `JsonRpcError` unless it is text."""
    key = get_meta(request).get(IDEMPOTENCY_META_KEY)
    if key is not None and not isinstance(key, str):
        raise JsonRpcError(INVALID_PARAMS, f"`{IDEMPOTENCY_META_KEY}` in `_meta` must be a text")
    return key


def build_request_context(request: ClientRequest, *, log_level: str | None = None) -> RequestContext:
    """Build the forwarded context. `log_level` is that of a session in the handshake era, or None."""
    params, meta = request.params, get_meta(request)
    kept: dict[str, Json] = {key: value for key, value in meta.items() if key not in _OWN_META_KEYS}
    if request.modern:
        asked = meta.get(LOG_LEVEL_KEY)
        log_level = asked if isinstance(asked, str) else None
        return RequestContext(
            meta=kept,
            input_responses=_get_input_responses(params),
            request_state=_get_request_state(params),
            log_level=log_level,
        )
    return RequestContext(
        meta=kept, log_level=log_level or DEFAULT_LEVEL, is_default_log_level=log_level is None
    )


def _get_input_responses(params: JsonObject) -> JsonObject | None:
    """Return answers to a server's questions. Raises `JsonRpcError` for anything but an object or None."""
    if "inputResponses" not in params:
        return None
    answers = params["inputResponses"]
    if not isinstance(answers, Mapping):
        raise JsonRpcError(
            INVALID_PARAMS, "`inputResponses` must be an object: the answers, by their questions"
        )
    return answers


def _get_request_state(params: JsonObject) -> str | None:
    if "requestState" not in params:
        return None
    state = params["requestState"]
    if not isinstance(state, str):
        raise JsonRpcError(INVALID_PARAMS, "`requestState` must be the text that came with the questions")
    return state


READY_TIMEOUT_S: Final = 5.0  # slower servers are added later and announced


class Readiness:
    """Tracks whether every server has connected or failed once, and sent its lists."""

    def __init__(self, router: Router, *, timeout: float = READY_TIMEOUT_S) -> None:
        self._router = router
        self._timeout = timeout
        self._tools_ready = False
        self._resources_ready = False

    async def wait_for_tools(self) -> None:
        """Wait until tools are known. Only the first callers have to wait."""
        if not self._tools_ready:
            servers = self._router.servers
            servers.start()
            await servers.wait_until_settled(timeout=self._timeout)
            self._tools_ready = True

    async def wait_for_resources(self) -> None:
        """Wait until resources and prompts are known too. They are listed after the tools."""
        await self.wait_for_tools()
        if not self._resources_ready:
            self._router.servers.start_unread()
            await self._router.servers.wait_until_settled(timeout=self._timeout)
            await self._router.servers.wait_until_resources_read(timeout=self._timeout)
            self._resources_ready = True
