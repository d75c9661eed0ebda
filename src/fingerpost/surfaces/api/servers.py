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
    DisabledKind,
    Pin,
    Quarantined,
    Right,
    ServerState,
    ServerStatus,
    Transport,
)
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    OperationGroup,
    PageCursor,
    PageLimit,
    copy_fields,
    declare_operation,
    split_page,
)
from fingerpost.surfaces.api.tools import (
    DefinitionChange,
    InstructionsChange,
    SwitchBody,
)
from fingerpost.surfaces.api.visibility import ManagedScope

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


class PinOperations(OperationGroup):
    """The operations about trusted definitions."""

    tag = "pins"

    def __init__(self, router: Router) -> None:
        self._router = router

    @declare_operation(
        "GET", "/api/pins", "Trusted definitions, and those that changed since", right=Right.WATCH
    )
    async def list_pins(self, request: ApiRequest, query: PinQuery) -> PinPage:
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        kept = await self._router.store.pins.list_all()
        quarantined = self._get_quarantined()
        waiting = {key: entry.pin for key, entry in quarantined.items() if entry.new}
        pins = {
            key: pin
            for key, pin in {**waiting, **kept}.items()
            if not is_server_key(key) and bounds.covers_tool(key)
        }
        offered = {card.key for card in (*self._router.tools.cards, *self._router.catalog.disabled.cards)}

        def find() -> PinPage:
            states: dict[str, PinState] = {
                key: "quarantined" if key in quarantined else "same" if key in offered else "not_seen"
                for key in pins
            }
            # The sort key is also the page cursor.
            sort_keys = sorted((f"{_STATE_ORDER[states[key]]}:{key}", key) for key in pins)
            found = [
                (sort_key, key)
                for sort_key, key in sort_keys
                if query.state in (None, states[key]) and (query.before is None or sort_key > query.before)
            ]
            page, last = split_page(found, query.limit)
            items = tuple(_build_pin_line(pins[key], states[key], quarantined.get(key)) for _, key in page)
            return PinPage(items=items, next=None if last is None else last[0])

        return await anyio.to_thread.run_sync(find)

    @declare_operation(
        "POST",
        "/api/pins/{server}/{tool}/accept",
        "Trust the changed definition of a tool",
        right=Right.MANAGE,
        problems=(404, 409),
    )
    async def accept_pin(self, request: ApiRequest, server: str, tool: str, body: AcceptBody) -> PinLine:
        quarantined = self._get_quarantined()
        key = next(
            (key for key in (f"{server}/{tool}", build_tool_key(server, tool)) if key in quarantined), None
        )
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        if key is None or not bounds.covers_tool(key):
            detail = f"No changed definition of {server}/{tool} waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        seen = quarantined[key].card.fingerprint
        if body.fingerprint != seen:
            detail = f"{key} is not what it was when it was shown. Look at the new difference."
            raise ApiProblem(409, "The definition changed once more", detail, fingerprint=seen)
        pin = await self._router.accept(key, by=request.principal.name, fingerprint=seen)
        return _build_pin_line(pin, "same", None)

    def _get_quarantined(self) -> dict[str, Quarantined]:
        return {entry.card.key: entry for entry in self._router.catalog.quarantined}


def _build_pin_line(pin: Pin, state: PinState, quarantined: Quarantined | None) -> PinLine:
    change = None if quarantined is None else DefinitionChange.from_entry(quarantined)
    return copy_fields(PinLine, pin, state=state, change=change)


_ONE_PATH: Final = "/api/servers/{server}"
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


class ServerOperations(OperationGroup):
    """The operations about servers within the caller's scope."""

    tag = "servers"

    def __init__(self, router: Router) -> None:
        self._router = router

    @declare_operation("GET", "/api/servers", "How every server is doing", right=Right.WATCH)
    async def list_servers(self, request: ApiRequest) -> ServerPage:
        return ServerPage(
            items=tuple(self._build_server_line(status) for status in self._list_visible(request))
        )

    @declare_operation(
        "GET", _ONE_PATH, "State of one server. The server is probed", right=Right.WATCH, problems=(404,)
    )
    async def get_server(self, request: ApiRequest, server: str) -> ServerLine:
        name = self._check_name(request, server)
        with suppress(ServerError):  # a failing server must be shown too
            await self._router.servers.probe(name, timeout=PROBE_TIMEOUT_S)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation(
        "POST",
        f"{_ONE_PATH}/switch",
        "Switch a server off (it is disconnected, its tools are gone) or on",
        right=Right.MANAGE,
        problems=(404, 409),
    )
    async def switch_server(self, request: ApiRequest, server: str, body: SwitchBody) -> ServerLine:
        name = self._check_name(request, server)
        self._check_enabled(name)
        await self._router.disabled_tools.set_server_enabled(
            name, enabled=body.on, by=request.principal.name, reason=body.reason
        )
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation(
        "POST",
        f"{_ONE_PATH}/reconnect",
        "Connect anew, without waiting for the next attempt",
        right=Right.MANAGE,
        problems=(404, 409),
    )
    async def reconnect_server(self, request: ApiRequest, server: str) -> ServerLine:
        name = self._check_name(request, server)
        self._check_enabled(name)
        if self._router.disabled_tools.find_entry(DisabledKind.SERVER, name) is not None:
            raise ApiProblem(409, "The server is switched off", f"Switch {name} on; it connects then.")
        await self._router.servers.reconnect(name)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation(
        "POST",
        f"{_ONE_PATH}/breaker/reset",
        "Ask a server again that failed too often",
        right=Right.MANAGE,
        problems=(404,),
    )
    async def reset_breaker(self, request: ApiRequest, server: str) -> ServerLine:
        name = self._check_name(request, server)
        self._router.calls.runner.reset_breaker(name)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation(
        "POST",
        f"{_ONE_PATH}/instructions/accept",
        "Trust what a server now says of itself; it is passed on again",
        right=Right.MANAGE,
        problems=(404, 409),
    )
    async def accept_instructions(self, request: ApiRequest, server: str, body: AcceptBody) -> ServerLine:
        name = self._check_name(request, server)
        changed = self._find_changed_instructions(name)
        if changed is None:
            detail = f"Nothing that {name} says of itself waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        if body.fingerprint != changed.fingerprint:
            detail = f"{name} says something else than when it was shown. Look at the new difference."
            raise ApiProblem(409, "The text changed once more", detail, fingerprint=changed.fingerprint)
        by = request.principal.name
        await self._router.accept_instructions(name, by=by, fingerprint=changed.fingerprint)
        return self._build_server_line(self._router.servers.get_status(name))

    def _find_changed_instructions(self, name: str) -> ChangedInstructions | None:
        return next((one for one in self._router.catalog.changed_instructions if one.server == name), None)

    def _check_name(self, request: ApiRequest, name: str) -> str:
        """Return the name if the caller may see this server. Raises `ApiProblem`."""
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
        """Raise `ApiProblem` for a server that is disabled in the settings; only they can enable it."""
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
        return copy_fields(
            ServerLine,
            status,
            on=off is None and status.state is not ServerState.DISABLED,
            reason=status.reason or "",
            hint=status.hint or "",
            version=status.product or "",
            protocol=status.protocol or "",
            latency=self._router.servers.get_latency(name),
            breaker=BreakerLine() if breaker is None else copy_fields(BreakerLine, breaker),
            switched_off=None if off is None else copy_fields(SwitchedOff, off),
            instructions_change=None if changed is None else InstructionsChange.from_entry(changed),
        )
