"""All tool servers, behind one door.

`Servers` is the only way to a tool: it connects lazily and in parallel, heals
by itself, and gives every request a deadline. Nothing here waits for a server
other than the one that was asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import (
    ConfigError,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
    UnknownServer,
)
from fingerpost.events import EventSink
from fingerpost.records import (
    Json,
    JsonObject,
    Listing,
    Materials,
    Precheck,
    ServerSpec,
    ServerState,
    ServerStatus,
)
from fingerpost.records.json import holds_much
from fingerpost.servers.caller import Passage
from fingerpost.servers.clock import Clock
from fingerpost.servers.connection import Connection
from fingerpost.servers.failures import UNKNOWN_OUTCOME, Forgotten, SessionLost
from fingerpost.servers.http import HttpStack
from fingerpost.servers.listeners import Listeners
from fingerpost.servers.oauth import TokenBook
from fingerpost.servers.opening import Surroundings
from fingerpost.servers.session import EVERYTHING, NOTHING
from fingerpost.servers.soundness import json_fault
from fingerpost.servers.spec import protect
from fingerpost.servers.supervisor import Shared, Supervisor
from fingerpost.servers.talk import Progress
from fingerpost.servers.watches import SUBSCRIBE, UNSUBSCRIBE
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import aside, contained, kept_up, leave

READS = frozenset({"resources/read", "prompts/get", "completion/complete"})


class _Run:
    """The task of one supervisor, which can be ended without ending the others."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    async def __call__(self, supervisor: Supervisor) -> None:
        try:
            with self._scope:
                await kept_up(supervisor.run)
        finally:
            self._over.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._over.wait()


class Servers:
    """The configured servers. Entering connects nothing: `start`, `ensure` and `call` do."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        events: EventSink,
        limits: LimitSettings,
        tokens: TokenBook | None = None,
        study: Callable[[Listing], Awaitable[None]] | None = None,
    ) -> None:
        """`study` is given each listing before it is shown to anybody else, and takes the time it needs."""
        self._watchers: Listeners[str] = Listeners()
        self._hearers: Listeners[str, str, JsonObject, str | None] = Listeners()
        self._http = HttpStack()
        self._for_callers = False
        self._shared = Shared(
            events=events,
            around=Surroundings(
                limits=limits,
                http=self._http,
                tokens=tokens,
                abilities=lambda: EVERYTHING if self._for_callers else NOTHING,
            ),
            changed=self._watchers.tell,
            heard=self._hearers.tell,
            study=study or _take_as_it_is,
        )
        self._supervisors: dict[str, Supervisor] = {}
        self._runs: dict[str, _Run] = {}
        self._tasks: TaskGroup | None = None
        for spec in specs:
            self._enlist(spec)

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        try:
            return await leave(self._tasks, kind, error, trace)
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                await self._http.aclose()

    def expect_callers(self) -> None:
        """Calls will come with callers who can be asked: servers that connect from now on hear of it."""
        self._for_callers = True

    # -- connecting ---------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Begin connecting these servers (all, when none is named), in parallel. Returns at once."""
        if self._tasks is None:
            message = "servers are started inside `async with Servers(...)`"
            raise RuntimeError(message)
        for supervisor in [self._find(name) for name in names] or list(self._supervisors.values()):
            if supervisor.spec.enabled and not supervisor.started and not supervisor.shut:
                supervisor.started = True
                self._runs[supervisor.spec.name] = run = _Run()
                self._tasks.start_soon(run, supervisor)

    async def settled(self, *, timeout: float) -> bool:
        """Wait until every started server is up, down or disabled. False when the time was over first."""
        with anyio.move_on_after(timeout):
            for supervisor in list(self._supervisors.values()):
                if supervisor.started:
                    await supervisor.standing.settled.wait()
            return True
        return False

    async def stocked(self, *, timeout: float) -> bool:
        """Wait until what each server that is up offers besides tools was read once. False: not in time."""
        with anyio.move_on_after(timeout):
            for supervisor in list(self._supervisors.values()):
                if supervisor.usable:
                    await supervisor.shelf.stocked.wait()
            return True
        return False

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Have this server connected. Raises `ServerUnavailable` with the reason it is not.

        A server that is down and waiting for its next attempt is not hurried:
        a crash loop must not be driven by the calls it fails.
        """
        supervisor = self._find(name)
        if supervisor.askable:
            return
        self.start(name)
        with anyio.move_on_after(timeout):
            await supervisor.until_settled()
        if not supervisor.askable:
            raise supervisor.unavailable()

    # -- knowing ------------------------------------------------------------------------------------

    @property
    def statuses(self) -> tuple[ServerStatus, ...]:
        """How every server is doing, in configured order."""
        return tuple(supervisor.standing.status for supervisor in self._supervisors.values())

    def status(self, name: str) -> ServerStatus:
        return self._find(name).standing.status

    def precheck(self, name: str) -> Precheck | None:
        """What looks at calls of this server before they run; only servers in this process have one."""
        supervisor = self._supervisors.get(name)
        return None if supervisor is None else supervisor.spec.precheck

    def listing(self, name: str) -> Listing | None:
        """What the server offered last; None while it was never listed. Kept while it is down."""
        return self._find(name).listing

    def materials(self, name: str) -> Materials | None:
        """What the server can do and offers besides tools; None while it was never up, or is switched off."""
        supervisor = self._find(name)
        return None if supervisor.shut else supervisor.shelf.materials

    def hear(self, callback: Callable[[str, str, JsonObject, str | None], None]) -> Callable[[], None]:
        """Have `callback` called with server, method and params of every notification outside of requests.

        The last argument is the key of the only caller who may be told; None: it concerns everybody.
        Of changed resources and prompts it is told when the new lists were read; changed tools are `watch`'s.
        """
        return self._hearers.add(callback)

    def watch(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Have `callback` called with a server's name whenever its status or listing changed."""
        return self._watchers.add(callback)

    # -- asking -------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        timeout: float,
        on_progress: Progress | None = None,
        meta: Mapping[str, Json] | None = None,
        passage: Passage | None = None,
    ) -> JsonObject:
        """Call a tool and return its raw result. `timeout` bounds everything, connecting included.

        `meta` is for a server in this process; it goes to no other.

        Never repeated by itself: after a failure nobody knows whether the call took effect.
        """
        supervisor = self._find(name)
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta and supervisor.spec.transport == "in_process":
            params["_meta"] = meta

        async def ask(connection: Connection, clock: Clock) -> dict[str, Any]:
            assert self._tasks is not None
            era = supervisor.own_era
            own = None
            if not supervisor.keyed:
                own = era.of(passage, connection, self._tasks, tools=supervisor.tool_count)
            if own is not None:
                own.users += 1
                try:
                    theirs = await era.connection(own, passage)
                    if theirs is not None:
                        return await theirs.call(
                            params, passage=passage, on_progress=on_progress, clock=clock
                        )
                except ServerUnavailable:
                    connection.lifeline.doubt()  # what one connection loses, the other may have lost as well
                    raise
                finally:
                    own.leave()
            try:
                result = await connection.call(params, passage=passage, on_progress=on_progress, clock=clock)
            except ToolFailed as error:
                raise supervisor.own_era.in_vain(error, passage, connection) or error from error.__cause__
            if result.get("isError") is True:
                why = supervisor.own_era.in_vain(await _checked(name, result), passage, connection)
                if why is not None:
                    raise why
            return result

        return await self._within(supervisor, tool, ask, timeout=timeout, passage=passage)

    async def ask(
        self,
        name: str,
        method: str,
        params: JsonObject,
        *,
        timeout: float,
        passage: Passage | None = None,
    ) -> JsonObject:
        """Ask anything that is not a call, and return the raw result. Raises like `call`.

        Asked once more where the server had forgotten our session.
        """
        supervisor = self._find(name)
        until = anyio.current_time() + timeout
        at_work = Clock()

        async def ask(connection: Connection, clock: Clock) -> JsonObject:
            nonlocal at_work
            at_work = clock
            if method in (SUBSCRIBE, UNSUBSCRIBE):
                return await supervisor.watches.ask(connection, method, params, passage)
            if passage is None and method not in READS:
                return await connection.fetch(method, params)  # our own: what it says is not about this
            return await connection.ask(method, params, passage=passage, clock=clock)

        try:
            return await self._within(supervisor, method, ask, timeout=timeout, passage=passage)
        except Forgotten as error:
            left = until - anyio.current_time()
            if left <= 0 or not _may_ask_again(method, error, at_work):
                raise
        return await self._within(supervisor, method, ask, timeout=left, passage=passage)

    async def _within(
        self,
        supervisor: Supervisor,
        what: str,
        ask: Callable[[Connection, Clock], Awaitable[JsonObject]],
        *,
        timeout: float,
        passage: Passage | None,
    ) -> JsonObject:
        """Have this asked on the right connection, in time."""
        name = supervisor.spec.name
        if passage is not None and passage.clock is not None:
            if not supervisor.askable:
                await self.ensure(name, timeout=timeout)
            return await _checked(name, await self._on_connection(supervisor, ask, passage.clock, passage))
        began = anyio.current_time()
        await self.ensure(name, timeout=timeout)
        scope = anyio.CancelScope(deadline=began + timeout)
        clock = Clock(scope, patience=timeout)
        with scope:
            return await _checked(name, await self._on_connection(supervisor, ask, clock, passage))
        if clock.loss is not None:
            raise clock.loss
        raise ToolTimeout(clock.complaint(f"{what} on {name}", timeout), server=name, hint=UNKNOWN_OUTCOME)

    async def _on_connection(
        self,
        supervisor: Supervisor,
        ask: Callable[[Connection, Clock], Awaitable[JsonObject]],
        clock: Clock,
        passage: Passage | None,
    ) -> JsonObject:
        assert self._tasks is not None
        if supervisor.keyed:
            async with supervisor.with_key(passage, self._tasks) as connection:
                return await ask(connection, clock)
        caller = passage.caller if passage is not None else None
        if caller is None or not supervisor.spec.isolate:
            return await ask(_connected(supervisor), clock)
        async with supervisor.isolated.use(caller.key, self._tasks, supervisor.listing) as connection:
            return await ask(connection, clock)

    async def refresh(self, name: str) -> None:
        """List this server's tools again, now."""
        supervisor = self._find(name)
        seconds = supervisor.spec.connect_timeout
        await self.ensure(name, timeout=seconds)
        if supervisor.keyed:  # it lists to callers alone, who ask for themselves
            return
        with anyio.move_on_after(seconds):
            await supervisor.relist(_connected(supervisor))
            return
        raise ToolTimeout(f"{name} did not list its tools within {seconds:g} s", server=name)

    async def own_tools(
        self, caller: str, authorization: str, *, timeout: float
    ) -> tuple[tuple[str, str], ...]:
        """Server and name of each tool that is listed only to this caller's own key.

        Servers set up for callers' keys are asked side by side, each at most for so long; a list is kept
        for a short time.
        """
        found: list[tuple[str, str]] = []
        assert self._tasks is not None
        connections = self._tasks

        async def ask(supervisor: Supervisor) -> None:
            names = await supervisor.own_tools(caller, authorization, connections, timeout=timeout)
            found.extend((supervisor.spec.name, name) for name in names)

        async with anyio.create_task_group() as tasks:
            for supervisor in self._supervisors.values():
                if supervisor.askable and supervisor.wants_own_keys:
                    tasks.start_soon(contained, ask, supervisor)
        return tuple(sorted(found))

    def look_again(self) -> None:
        """Somebody looks at the tools: lists that may have changed without a word are read behind it."""
        for supervisor in self._supervisors.values():
            supervisor.look_again()

    async def look_now(self, *, timeout: float) -> None:
        """Somebody asks for a tool nobody knows: read such lists now, for as long as they may wait."""
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for supervisor in self._supervisors.values():
                    tasks.start_soon(contained, supervisor.look_now)

    async def probe(self, name: str, *, timeout: float) -> None:
        """Ask for a sign of life, where there is a connection: `latency` tells how long it took."""
        connection = self._find(name).connection
        if connection is not None:
            with anyio.move_on_after(timeout):
                await connection.probe()

    def latency(self, name: str) -> float | None:
        """Milliseconds the last sign of life took, on this connection."""
        connection = self._find(name).connection
        return None if connection is None else connection.latency_ms

    # -- changing -----------------------------------------------------------------------------------

    async def add(self, spec: ServerSpec) -> None:
        """One more server. It connects when it is started or needed."""
        self._enlist(spec)
        self._watchers.tell(spec.name)

    async def switch_off(self, name: str, reason: str) -> None:
        """Disconnect this server until it is switched on; nothing connects it meanwhile."""
        supervisor = self._find(name)
        supervisor.shut = True
        if supervisor.spec.enabled:
            await self._disconnect(supervisor)
            supervisor.rest()
            supervisor.standing.move(ServerState.DISABLED, reason)

    def switch_on(self, name: str) -> None:
        """Let this server be connected again, and begin."""
        supervisor = self._find(name)
        was_shut, supervisor.shut = supervisor.shut, False
        if was_shut and supervisor.spec.enabled:
            supervisor.standing.begin_anew()
            self.start(name)

    async def reconnect(self, name: str) -> None:
        """Drop the connection, if there is one, and connect anew without waiting for a next attempt."""
        supervisor = self._find(name)
        if supervisor.spec.enabled and not supervisor.shut and await self._disconnect(supervisor):
            supervisor.rest()
            supervisor.standing.begin_anew()
        if supervisor.shut or not supervisor.spec.enabled:  # perhaps only since a moment ago
            raise supervisor.standing.unavailable()
        self.start(name)

    async def _disconnect(self, supervisor: Supervisor) -> bool:
        """End its task. False when somebody else does so, or it has none."""
        supervisor.let_callers_go()
        if (run := self._runs.pop(supervisor.spec.name, None)) is None:
            return False
        with anyio.CancelScope(shield=True):  # who asked may leave; half disconnected helps nobody
            await run.stop()
        return True

    async def remove(self, name: str) -> None:
        """Disconnect this server and forget it."""
        self._find(name).let_callers_go()
        if (run := self._runs.pop(name, None)) is not None:
            await run.stop()
        del self._supervisors[name]
        self._watchers.tell(name)

    # -----------------------------------------------------------------------------------------------

    def _enlist(self, spec: ServerSpec) -> None:
        if spec.name in self._supervisors:
            message = f"there are two servers named {spec.name!r}"
            raise ConfigError(message, hint="rename one of them")
        protect(spec)
        self._supervisors[spec.name] = Supervisor(spec, self._shared)

    def _find(self, name: str) -> Supervisor:
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            near = difflib.get_close_matches(name, self._supervisors, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`fingerpost servers` lists them all"
            message = f"there is no server named {name!r}"
            raise UnknownServer(message, hint=hint)
        return supervisor


def _connected(supervisor: Supervisor) -> Connection:
    if supervisor.connection is None:
        raise supervisor.unavailable()
    return supervisor.connection


def _may_ask_again(method: str, error: Forgotten, clock: Clock) -> bool:
    """What was turned away did not run. What was cut off may have: a read does not mind, a person would."""
    return isinstance(error, SessionLost) or (method in READS and not clock.stood)


async def _checked(name: str, result: JsonObject) -> JsonObject:
    reason = await aside(json_fault, result) if holds_much(result) else json_fault(result)
    if reason is not None:
        raise ServerReplyInvalid(f"the result of {name} {reason}", server=name)
    return result


async def _take_as_it_is(_: Listing) -> None:
    """Nobody has to think about a listing first."""
