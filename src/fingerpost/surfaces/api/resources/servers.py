"""Servers: how each is doing, and a person's hand on it: off, on, connect anew, accept its words."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Final

from fingerpost.call.execution import BreakerState
from fingerpost.errors import ServerError
from fingerpost.frozen import frozen
from fingerpost.records import ChangedInstructions, Right, ServerState, ServerStatus, Transport
from fingerpost.router import Router
from fingerpost.store import DisabledKind
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest
from fingerpost.surfaces.api.resources.bounds import build_managed_scope
from fingerpost.surfaces.api.resources.changes import InstructionsChange, instructions_change
from fingerpost.surfaces.api.resources.pins import Acceptance
from fingerpost.surfaces.api.resources.tools import Switch

SERVERS_TAG: Final = "servers"
PROBE_TIMEOUT_S: Final = 2.0


@frozen
class BreakerLine:
    """Whether the server is asked at all: one that failed too often is left alone for a while."""

    state: BreakerState = BreakerState.CLOSED
    reason: str = ""
    failures: int = 0  # in a row
    retry_in: float | None = None  # seconds until it is tried again


@frozen
class Switched:
    """Who switched it off, when and why."""

    by: str
    at: datetime
    reason: str


@frozen
class ServerLine:
    """One server. `on` is what people want, `state` what is."""

    name: str
    on: bool
    state: ServerState
    reason: str = ""
    hint: str = ""  # what a person can do about the reason
    since: datetime
    transport: Transport
    version: str = ""  # what it calls itself, with its version
    protocol: str = ""
    tools: int = 0
    dropped: int = 0  # tools that could not be taken
    connect_ms: float | None = None
    latency: float | None = None  # milliseconds of the last sign of life, where one was asked for
    attempts: int = 0
    retry_in: float | None = None
    breaker: BreakerLine
    switched_off: Switched | None = None  # None: nobody did, while it ran
    instructions_change: InstructionsChange | None = None  # what it says of itself, to be accepted
    stderr_tail: str = ""


@frozen
class ServerPage:
    """In configured order, all of them."""

    items: tuple[ServerLine, ...]
    next: str | None = None


def build_server_operations(router: Router) -> tuple[ApiOperation, ...]:
    servers = ServerOperations(router)
    one = "/api/servers/{server}"

    def managing(path: str, name: str, summary: str, **more: object) -> ApiOperation:
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
            summary="How one server is doing; it is asked for a sign of life",
            right=Right.WATCH,
            answer=servers.get_server,
            returns=ServerLine,
            problems=(404,),
            tag=SERVERS_TAG,
        ),
        managing(
            "/switch",
            "switch_server",
            "Switch a server off (it is disconnected, its tools are gone) or on",
            answer=servers.set_enabled,
            body=Switch,
            problems=(404, 409),
        ),
        managing(
            "/reconnect",
            "reconnect_server",
            "Connect anew, without waiting for the next attempt",
            answer=servers.reconnect_server,
            problems=(404, 409),
        ),
        managing(
            "/breaker/reset",
            "reset_breaker",
            "Ask a server again that failed too often",
            answer=servers.reset_breaker,
            problems=(404,),
        ),
        managing(
            "/instructions/accept",
            "accept_instructions",
            "Trust what a server now says of itself; it is passed on again",
            answer=servers.accept_instructions,
            body=Acceptance,
            problems=(404, 409),
        ),
    )


class ServerOperations:
    """All servers within the caller's bounds."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_servers(self, request: ApiRequest) -> ServerPage:
        return ServerPage(
            items=tuple(self._build_server_line(status) for status in self._list_visible(request))
        )

    async def get_server(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        with suppress(ServerError):  # the page about a server that is ill must come, too
            await self._router.servers.probe(name, timeout=PROBE_TIMEOUT_S)
        return self._build_server_line(self._router.servers.get_status(name))

    async def set_enabled(self, request: ApiRequest) -> ServerLine:
        name, wanted = self._get_name(request), request.body
        self._check_enabled(name)
        await self._router.shutters.set_server_enabled(
            name, enabled=wanted.on, by=request.principal.name, reason=wanted.reason
        )
        return self._build_server_line(self._router.servers.get_status(name))

    async def reconnect_server(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        self._check_enabled(name)
        if self._router.shutters.find_entry(DisabledKind.SERVER, name) is not None:
            raise ApiProblem(409, "The server is switched off", f"Switch {name} on; it connects then.")
        await self._router.servers.reconnect(name)
        return self._build_server_line(self._router.servers.get_status(name))

    async def reset_breaker(self, request: ApiRequest) -> ServerLine:
        name = self._get_name(request)
        self._router.calls.runner.reset_breaker(name)
        return self._build_server_line(self._router.servers.get_status(name))

    async def accept_instructions(self, request: ApiRequest) -> ServerLine:
        wanted: Acceptance = request.body
        name = self._get_name(request)
        changed = self._changed_instructions(name)
        if changed is None:
            detail = f"Nothing that {name} says of itself waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        if wanted.fingerprint != changed.fingerprint:
            detail = f"{name} says something else than when it was shown. Look at the new difference."
            raise ApiProblem(409, "The text changed once more", detail, fingerprint=changed.fingerprint)
        by = request.principal.name
        await self._router.accept_instructions(name, by=by, fingerprint=changed.fingerprint)
        return self._build_server_line(self._router.servers.get_status(name))

    def _changed_instructions(self, name: str) -> ChangedInstructions | None:
        return next((one for one in self._router.catalog.changed_instructions if one.server == name), None)

    def _get_name(self, request: ApiRequest) -> str:
        name = request.path["server"]
        known = [status.name for status in self._list_visible(request)]
        if name not in known:
            detail = f"There is no server named {name!r}."
            raise ApiProblem(404, "There is no such server", detail, servers=known[:50])
        return name

    def _list_visible(self, request: ApiRequest) -> list[ServerStatus]:
        """The servers they may know of."""
        bounds = build_managed_scope(request.principal, self._router.profiles)
        return [status for status in self._router.servers.statuses if bounds.covers_server(status.name)]

    def _check_enabled(self, name: str) -> None:
        """What the settings switch off, only the settings switch on."""
        status = self._router.servers.get_status(name)
        if (
            status.state is ServerState.DISABLED
            and self._router.shutters.find_entry(DisabledKind.SERVER, name) is None
        ):
            detail = f"Set `enabled` of {name} in the settings, and start again."
            raise ApiProblem(409, "The server is disabled in the settings", detail)

    def _build_server_line(self, status: ServerStatus) -> ServerLine:
        name = status.name
        off = self._router.shutters.find_entry(DisabledKind.SERVER, name)
        breaker = self._router.calls.runner.breakers.get(name)
        changed = self._changed_instructions(name)
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
            switched_off=None if off is None else Switched(by=off.by, at=off.at, reason=off.reason),
            instructions_change=None if changed is None else instructions_change(changed),
            stderr_tail=status.stderr_tail,
        )
