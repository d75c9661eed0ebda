"""What of a request goes along to a server, log levels of sessions, and waiting for servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.records import Json, JsonObject, ServerState, ServerStatus
from fingerpost.router import Router
from fingerpost.servers.requests import CALL_ID, RequestContext
from fingerpost.surfaces.gateway.protocol import MODERN_VERSION, ClientExchange, ClientRequest, JsonRpcError
from fingerpost.tasks import run_contained

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL: Final = "info"  # for those who never said


class LogLevels:
    """The level each session asked for."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {}

    def set_level(self, session: str, level: str) -> None:
        self._levels[session] = level

    def get_level(self, session: str | None) -> str | None:
        """What this session asked for; None where it never did."""
        return None if session is None else self._levels.get(session)

    def forget(self, session: str) -> bool:
        """Whether there was anything to forget."""
        return self._levels.pop(session, None) is not None

    @property
    def lowest(self) -> str | None:
        """The most that anybody asked for; None where those who never said want at least as much."""
        lowest = min(self._levels.values(), key=LOG_LEVELS.index, default=None)
        return (
            None if lowest is None or LOG_LEVELS.index(lowest) > LOG_LEVELS.index(DEFAULT_LEVEL) else lowest
        )

    def wants(self, session: str | None, level: object) -> bool:
        """Whether a message of this level is for that session. Unknown levels are."""
        if level not in LOG_LEVELS:
            return True
        return LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(self.get_level(session) or DEFAULT_LEVEL)


INVALID_PARAMS: Final = -32602
SET_LEVEL_METHOD: Final = "logging/setLevel"
_CONNECTED_STATES: Final = frozenset((ServerState.READY, ServerState.DEGRADED))


class LoggingMethods:
    """Sets levels. Servers are shared, so they are asked for the most that anybody wants to hear.

    Never for less than those want who did not say: each session's own level is kept to by us.
    """

    def __init__(self, router: Router, *, levels: LogLevels, tasks: TaskGroup, seconds: float) -> None:
        self._router = router
        self._levels = levels
        self._tasks = tasks
        self._seconds = seconds
        self._told: dict[str, str] = {}

    async def set_level(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise JsonRpcError(INVALID_PARAMS, f"`level` must be one of {', '.join(LOG_LEVELS)}")
        self._levels.set_level(request.session or request.caller_key, str(level))
        self._send_levels()
        return {}

    def forget_session(self, session: str) -> None:
        """A session ended: what only it wanted to hear need not be said any more."""
        if self._levels.forget(session):
            self._send_levels()

    def on_server_change(self, server: str) -> None:
        """A server came or went: a new connection knows nothing of what the last one was told."""
        connected = {one.name for one in self._router.servers.statuses if one.state in _CONNECTED_STATES}
        if server in connected:
            self._send_levels()
        else:
            self._told.pop(server, None)

    def _send_levels(self) -> None:
        lowest = self._levels.lowest
        for status in self._router.servers.statuses:
            told = self._told.get(status.name)
            # A server that was never told says what it thinks right, and those who never said hear that.
            level = lowest or (None if told is None else DEFAULT_LEVEL)
            if level is not None and level != told and self._supports_levels(status):
                self._told[status.name] = level
                self._tasks.start_soon(run_contained, self._send_level, status.name, level)

    def _supports_levels(self, status: ServerStatus) -> bool:
        """Whether it logs, and is told once from which level: since 2026-07-28 each request says that."""
        if status.protocol is not None and status.protocol >= MODERN_VERSION:
            return False
        materials = self._router.servers.get_resources(status.name)
        return materials is not None and "logging" in materials.capabilities

    async def _send_level(self, server: str, level: str) -> None:
        """A server that cannot be told now says what it says; the session hears no more than it asked for."""
        try:
            await self._router.servers.ask(server, SET_LEVEL_METHOD, {"level": level}, timeout=self._seconds)
        except FingerpostError:
            self._told.pop(server, None)


LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
INTENT_KEY: Final = "fingerpost/intent"
MAX_INTENT_LENGTH: Final = 4000
FALLBACK_KEY: Final = "fingerpost/fallback"
IDEMPOTENCY_META_KEY: Final = "fingerpost/idempotency-key"

# What the protocol itself says between this client and us. The server hears its own from us.
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
        CALL_ID,
    )
)
_NOTHING: Final[JsonObject] = {}


def get_meta(request: ClientRequest) -> JsonObject:
    """The request's `_meta`, or nothing where it has none."""
    meta = request.params.get("_meta")
    if isinstance(meta, dict):
        return meta
    return cast("JsonObject", meta) if isinstance(meta, Mapping) else _NOTHING


def get_intent(request: ClientRequest) -> str:
    """What the person wants, where the client says so: a long result keeps what is about it."""
    intent = get_meta(request).get(INTENT_KEY)
    return intent[:MAX_INTENT_LENGTH] if isinstance(intent, str) else ""


def get_idempotency_key(request: ClientRequest) -> str | None:
    """The key under which the client may send the same call again. Anything but a text is refused."""
    key = get_meta(request).get(IDEMPOTENCY_META_KEY)
    if key is not None and not isinstance(key, str):
        raise JsonRpcError(INVALID_PARAMS, f"`{IDEMPOTENCY_META_KEY}` in `_meta` must be a text")
    return key


def build_request_context(request: ClientRequest, *, log_level: str | None = None) -> RequestContext:
    """What goes along. `log_level` is the session's, in the era that has sessions; None: it set none."""
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
    return RequestContext(meta=kept, log_level=log_level or DEFAULT_LEVEL, usual_level=log_level is None)


def _get_input_responses(params: JsonObject) -> JsonObject | None:
    """Answers to a server's questions. Anything but an object is refused: it must not pass for none."""
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


READY_TIMEOUT_S: Final = 5.0  # whoever is slower joins later, and that is announced


class Readiness:
    """Whether every server has come up or failed for the first time, and said what it has."""

    def __init__(self, router: Router, *, timeout: float = READY_TIMEOUT_S) -> None:
        self._router = router
        self._patience = timeout
        self._met = False
        self._stocked = False

    async def wait_for_tools(self) -> None:
        """Until tools are known. Returns at once, except for the first who ask."""
        if not self._met:
            servers = self._router.servers
            servers.start()
            await servers.wait_until_settled(timeout=self._patience)
            self._met = True

    async def wait_for_resources(self) -> None:
        """Until resources and prompts are known, too: they are read behind the tools."""
        await self.wait_for_tools()
        if not self._stocked:
            await self._router.servers.wait_until_resources_read(timeout=self._patience)
            self._stocked = True
