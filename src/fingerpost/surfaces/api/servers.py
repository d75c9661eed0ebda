"""Servers and pins: status, enabling, reconnecting, and trusted tool definitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final, Literal

import anyio.to_thread
from pydantic import Field

from fingerpost.call.execution import BreakerState
from fingerpost.catalog import build_tool_key
from fingerpost.catalog.pins import is_server_key
from fingerpost.errors import ServerError
from fingerpost.frozen import frozen
from fingerpost.records import (
    ChangedInstructions,
    Pin,
    Quarantined,
    Right,
    ServerState,
    ServerStatus,
    Transport,
)
from fingerpost.router import Router
from fingerpost.store import DisabledKind
from fingerpost.surfaces.api.operation import (
    ApiOperation,
    ApiProblem,
    ApiRequest,
    PageCursor,
    PageLimit,
    split_page,
)
from fingerpost.surfaces.api.tools import (
    DefinitionChange,
    InstructionsChange,
    SwitchBody,
    build_instructions_change,
)
from fingerpost.surfaces.api.visibility import ManagedScope

PINS_TAG: Final = "pins"
PinState = Literal["quarantined", "same", "not_seen"]
_STATE_ORDER: Final[Mapping[PinState, str]] = {"quarantined": "0", "same": "1", "not_seen": "1"}


@frozen
class PinQuery:
    """Filter and page of pins."""

    state: PinState | None = None
    limit: PageLimit = 100
    before: PageCursor | None = None


@frozen
class PinLine:
    """A trusted tool definition. `not_seen`: no server offers the tool now. A tool that is new on a known
    server has no fingerprint.
    """

    key: str
    state: PinState
    fingerprint: str
    pinned_at: datetime
    accepted_by: str | None  # None: pinned when first seen
    change: DefinitionChange | None = None


@frozen
class PinPage:
    """One page of pins: those that need a review first, then sorted by key."""

    items: tuple[PinLine, ...]
    next: str | None = None


@frozen
class AcceptBody:
    """The fingerprint of the reviewed definition or text. If it has changed since, it is not accepted."""

    fingerprint: Annotated[str, Field(min_length=1, max_length=200)]


def build_pin_operations(router: Router) -> tuple[ApiOperation, ...]:
    pins = PinOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/pins",
            name="list_pins",
            summary="Trusted definitions, and those that changed since",
            right=Right.WATCH,
            answer=pins.list_pins,
            query=PinQuery,
            returns=PinPage,
            tag=PINS_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/pins/{server}/{tool}/accept",
            name="accept_pin",
            summary="Trust the changed definition of a tool",
            right=Right.MANAGE,
            answer=pins.accept_definition,
            body=AcceptBody,
            returns=PinLine,
            problems=(404, 409),
            tag=PINS_TAG,
        ),
    )


class PinOperations:
    """The operations about trusted definitions."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_pins(self, request: ApiRequest) -> PinPage:
        query: PinQuery = request.query
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        kept = await self._router.store.pins.list_all()
        quarantined = self._get_quarantined()
        waiting = {key: entry.pin for key, entry in quarantined.items() if entry.new}
        pins = {
            key: pin
            for key, pin in {**waiting, **kept}.items()
            if not is_server_key(key) and _covers_pin(bounds, key)
        }
        offered = {card.key for card in (*self._router.tools.cards, *self._router.catalog.disabled.cards)}

        def find() -> PinPage:
            states: dict[str, PinState] = {key: _get_pin_state(key, quarantined, offered) for key in pins}
            sort_keys = sorted((_build_sort_key(states[key], key), key) for key in pins)
            found = [
                (sort_key, key)
                for sort_key, key in sort_keys
                if query.state in (None, states[key]) and (query.before is None or sort_key > query.before)
            ]
            page, last = split_page(found, query.limit)
            items = tuple(_build_pin_line(pins[key], states[key], quarantined.get(key)) for _, key in page)
            return PinPage(items=items, next=None if last is None else last[0])

        return await anyio.to_thread.run_sync(find)

    async def accept_definition(self, request: ApiRequest) -> PinLine:
        wanted: AcceptBody = request.body
        server, tool = request.path["server"], request.path["tool"]
        quarantined = self._get_quarantined()
        key = next(
            (key for key in (f"{server}/{tool}", build_tool_key(server, tool)) if key in quarantined), None
        )
        if key is None or not _covers_pin(
            ManagedScope.from_principal(request.principal, self._router.profiles), key
        ):
            detail = f"No changed definition of {server}/{tool} waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        seen = quarantined[key].card.fingerprint
        if wanted.fingerprint != seen:
            detail = f"{key} is not what it was when it was shown. Look at the new difference."
            raise ApiProblem(409, "The definition changed once more", detail, fingerprint=seen)
        pin = await self._router.accept(key, by=request.principal.name, fingerprint=seen)
        return _build_pin_line(pin, "same", None)

    def _get_quarantined(self) -> dict[str, Quarantined]:
        return {entry.card.key: entry for entry in self._router.catalog.quarantined}


def _covers_pin(bounds: ManagedScope, key: str) -> bool:
    return bounds.covers_tool(key.partition("/")[0], key)


def _get_pin_state(key: str, quarantined: Mapping[str, Quarantined], offered: set[str]) -> PinState:
    if key in quarantined:
        return "quarantined"
    return "same" if key in offered else "not_seen"


def _build_sort_key(state: PinState, key: str) -> str:
    """Return the sort key of a pin. It is also the page cursor."""
    return f"{_STATE_ORDER[state]}:{key}"


def _build_pin_line(pin: Pin, state: PinState, quarantined: Quarantined | None) -> PinLine:
    return PinLine(
        key=pin.key,
        state=state,
        fingerprint=pin.fingerprint,
        pinned_at=pin.pinned_at,
        accepted_by=pin.accepted_by,
        change=None if quarantined is None else DefinitionChange.from_entry(quarantined),
    )


SERVERS_TAG: Final = "servers"
PROBE_TIMEOUT_S: Final = 2.0


@frozen
class BreakerLine:
    """State of the server's circuit breaker. After too many failures the server is not called for a while."""

    state: BreakerState = BreakerState.CLOSED
    reason: str = ""
    failures: int = 0  # consecutive
    retry_in: float | None = None  # seconds until the next attempt


@frozen
class SwitchedOff:
    """Who disabled the server, when and why."""

    by: str
    at: datetime
    reason: str


@frozen
class ServerLine:
    """State of one server. `on` is whether it is enabled; `state` is its connection state."""

    name: str
    on: bool
    state: ServerState
    reason: str = ""
    hint: str = ""  # how to fix the problem
    since: datetime
    transport: Transport
    version: str = ""  # name and version as reported
    protocol: str = ""
    tools: int = 0
    dropped: int = 0  # invalid tools that were dropped
    connect_ms: float | None = None
    latency: float | None = None  # milliseconds of the last probe, if there was one
    attempts: int = 0
    retry_in: float | None = None
    breaker: BreakerLine
    switched_off: SwitchedOff | None = None  # None: not disabled at run time
    instructions_change: InstructionsChange | None = None  # changed instructions to review
    stderr_tail: str = ""


@frozen
class ServerPage:
    """All servers in configured order."""

    items: tuple[ServerLine, ...]
    next: str | None = None


def build_server_operations(router: Router) -> tuple[ApiOperation, ...]:
    servers = ServerOperations(router)
    one = "/api/servers/{server}"

    def build_manage_operation(path: str, name: str, summary: str, **more: object) -> ApiOperation:
        return ApiOperation(
            method="POST",
            path=one + path,
            name=name,
            summary=summary,
            right=Right.MANAGE,
            returns=ServerLine,
            tag=SERVERS_TAG,
            **more,  # pyright: ignore[reportArgumentType] - what differs between them
        )

    return (
        ApiOperation(
            method="GET",
            path="/api/servers",
            name="list_servers",
            summary="How every server is doing",
            right=Right.WATCH,
            answer=servers.list_servers,
            returns=ServerPage,
            tag=SERVERS_TAG,
        ),
        ApiOperation(
            method="GET",
            path=one,
            name="get_server",
            summary="State of one server. The server is probed",
            right=Right.WATCH,
            answer=servers.get_server,
            returns=ServerLine,
            problems=(404,),
            tag=SERVERS_TAG,
        ),
        build_manage_operation(
            "/switch",
            "switch_server",
            "Switch a server off (it is disconnected, its tools are gone) or on",
            answer=servers.set_enabled,
            body=SwitchBody,
            problems=(404, 409),
        ),
        build_manage_operation(
            "/reconnect",
            "reconnect_server",
            "Connect anew, without waiting for the next attempt",
            answer=servers.reconnect_server,
            problems=(404, 409),
        ),
        build_manage_operation(
            "/breaker/reset",
            "reset_breaker",
            "Ask a server again that failed too often",
            answer=servers.reset_breaker,
            problems=(404,),
        ),
        build_manage_operation(
            "/instructions/accept",
            "accept_instructions",
            "Trust what a server now says of itself; it is passed on again",
            answer=servers.accept_instructions,
            body=AcceptBody,
            problems=(404, 409),
        ),
    )


class ServerOperations:
    """The operations about servers within the caller's scope."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_servers(self, request: ApiRequest) -> ServerPage:
        return ServerPage(
            items=tuple(self._build_server_line(status) for status in self._list_visible(request))
        )

    async def get_server(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        with suppress(ServerError):  # a failing server must be shown too
            await self._router.servers.probe(name, timeout=PROBE_TIMEOUT_S)
        return self._build_server_line(self._router.servers.get_status(name))

    async def set_enabled(self, request: ApiRequest) -> ServerLine:
        name, wanted = self._get_name(request), request.body
        self._check_enabled(name)
        await self._router.disabled_tools.set_server_enabled(
            name, enabled=wanted.on, by=request.principal.name, reason=wanted.reason
        )
        return self._build_server_line(self._router.servers.get_status(name))

    async def reconnect_server(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        self._check_enabled(name)
        if self._router.disabled_tools.find_entry(DisabledKind.SERVER, name) is not None:
            raise ApiProblem(409, "The server is switched off", f"Switch {name} on; it connects then.")
        await self._router.servers.reconnect(name)
        return self._build_server_line(self._router.servers.get_status(name))

    async def reset_breaker(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        self._router.calls.runner.reset_breaker(name)
        return self._build_server_line(self._router.servers.get_status(name))

    async def accept_instructions(self, request: ApiRequest) -> ServerLine:
        wanted: AcceptBody = request.body
        name = self._get_name(request)
        changed = self._find_changed_instructions(name)
        if changed is None:
            detail = f"Nothing that {name} says of itself waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        if wanted.fingerprint != changed.fingerprint:
            detail = f"{name} says something else than when it was shown. Look at the new difference."
            raise ApiProblem(409, "The text changed once more", detail, fingerprint=changed.fingerprint)
        by = request.principal.name
        await self._router.accept_instructions(name, by=by, fingerprint=changed.fingerprint)
        return self._build_server_line(self._router.servers.get_status(name))

    def _find_changed_instructions(self, name: str) -> ChangedInstructions | None:
        return next((one for one in self._router.catalog.changed_instructions if one.server == name), None)

    def _get_name(self, request: ApiRequest) -> str:
        name = request.path["server"]
        known = [status.name for status in self._list_visible(request)]
        if name not in known:
            detail = f"There is no server named {name!r}."
            raise ApiProblem(404, "There is no such server", detail, servers=known[:50])
        return name

    def _list_visible(self, request: ApiRequest) -> list[ServerStatus]:
        """Return the servers that the caller may see."""
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        return [status for status in self._router.servers.statuses if bounds.covers_server(status.name)]

    def _check_enabled(self, name: str) -> None:
        """Raise `ApiProblem` for a server that is disabled in the settings. Only the settings can enable
        it.
        """
        status = self._router.servers.get_status(name)
        if (
            status.state is ServerState.DISABLED
            and self._router.disabled_tools.find_entry(DisabledKind.SERVER, name) is None
        ):
            detail = f"Set `enabled` of {name} in the settings, and start again."
            raise ApiProblem(409, "The server is disabled in the settings", detail)

    def _build_server_line(self, status: ServerStatus) -> ServerLine:
        name = status.name
        off = self._router.disabled_tools.find_entry(DisabledKind.SERVER, name)
        breaker = self._router.calls.runner.breakers.get(name)
        changed = self._find_changed_instructions(name)
        return ServerLine(
            name=name,
            on=off is None and status.state is not ServerState.DISABLED,
            state=status.state,
            reason=status.reason or "",
            hint=status.hint or "",
            since=status.since,
            transport=status.transport,
            version=status.product or "",
            protocol=status.protocol or "",
            tools=status.tools,
            dropped=status.dropped,
            connect_ms=status.connect_ms,
            latency=self._router.servers.get_latency(name),
            attempts=status.attempts,
            retry_in=status.retry_in,
            breaker=BreakerLine()
            if breaker is None
            else BreakerLine(
                state=breaker.state,
                reason=breaker.reason,
                failures=breaker.failures,
                retry_in=breaker.retry_in,
            ),
            switched_off=None if off is None else SwitchedOff(by=off.by, at=off.at, reason=off.reason),
            instructions_change=None if changed is None else build_instructions_change(changed),
            stderr_tail=status.stderr_tail,
        )
