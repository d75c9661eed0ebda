"""All tool servers, behind one door.

`Servers` is the only way to a tool: it connects lazily and in parallel, heals
by itself, and gives every request a deadline. Nothing here waits for a server
other than the one that was asked for.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import ConfigError, ServerReplyInvalid, ToolTimeout, UnknownServer
from fingerpost.events import EventSink
from fingerpost.records import Json, JsonObject, Listing, ServerSpec, ServerStatus, check_json
from fingerpost.servers.connection import Connection
from fingerpost.servers.failures import UNKNOWN_OUTCOME
from fingerpost.servers.http import HttpStack
from fingerpost.servers.oauth import TokenBook
from fingerpost.servers.spec import protect
from fingerpost.servers.supervisor import Shared, Supervisor
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import leave

logger = logging.getLogger("fingerpost.servers")


class Progress(Protocol):
    """Told how far a call has come."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class _Run:
    """The task of one supervisor, which can be ended without ending the others."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    async def __call__(self, supervisor: Supervisor) -> None:
        try:
            with self._scope:
                await supervisor.run()
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
    ) -> None:
        self._watchers: dict[object, Callable[[str], None]] = {}
        self._http = HttpStack()
        self._shared = Shared(
            events=events, limits=limits, http=self._http, tokens=tokens, changed=self._tell_watchers
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

    # -- connecting ---------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Begin connecting these servers (all, when none is named), in parallel. Returns at once."""
        if self._tasks is None:
            message = "servers are started inside `async with Servers(...)`"
            raise RuntimeError(message)
        for supervisor in [self._find(name) for name in names] or list(self._supervisors.values()):
            if supervisor.spec.enabled and not supervisor.started:
                supervisor.started = True
                self._runs[supervisor.spec.name] = run = _Run()
                self._tasks.start_soon(run, supervisor)

    async def settled(self, *, timeout: float) -> bool:
        """Wait until every started server is up, down or disabled. False when the time was over first."""
        with anyio.move_on_after(timeout):
            for supervisor in list(self._supervisors.values()):
                if supervisor.started:
                    await supervisor.settled.wait()
            return True
        return False

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Have this server connected. Raises `ServerUnavailable` with the reason it is not.

        A server that is down and waiting for its next attempt is not hurried:
        a crash loop must not be driven by the calls it fails.
        """
        supervisor = self._find(name)
        self.start(name)
        with anyio.move_on_after(timeout):
            await supervisor.until_settled()
        if not supervisor.usable:
            raise supervisor.unavailable()

    # -- knowing ------------------------------------------------------------------------------------

    @property
    def statuses(self) -> tuple[ServerStatus, ...]:
        """How every server is doing, in configured order."""
        return tuple(supervisor.status for supervisor in self._supervisors.values())

    def status(self, name: str) -> ServerStatus:
        return self._find(name).status

    def listing(self, name: str) -> Listing | None:
        """What the server offered last; None while it was never listed. Kept while it is down."""
        return self._find(name).listing

    def watch(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Have `callback` called with a server's name whenever its status or listing changed."""
        token = object()
        self._watchers[token] = callback

        def stop() -> None:
            self._watchers.pop(token, None)

        return stop

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
    ) -> JsonObject:
        """Call a tool and return its raw result. `timeout` bounds everything, connecting included.

        Never repeated by itself: after a failure nobody knows whether the call took effect.
        """
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
        if meta:
            params["_meta"] = dict(meta)
        began = anyio.current_time()
        await self.ensure(name, timeout=timeout)
        connection = self._connected(name)
        with anyio.move_on_at(began + timeout):
            return self._checked(name, await connection.call(params, on_progress=on_progress))
        message = f"{tool} on {name} did not answer within {timeout:g} s"
        raise ToolTimeout(message, server=name, hint=UNKNOWN_OUTCOME)

    async def refresh(self, name: str) -> None:
        """List this server's tools again, now."""
        supervisor = self._find(name)
        seconds = supervisor.spec.connect_timeout
        await self.ensure(name, timeout=seconds)
        with anyio.move_on_after(seconds):
            await supervisor.relist(self._connected(name))
            return
        raise ToolTimeout(f"{name} did not list its tools within {seconds:g} s", server=name)

    # -- changing -----------------------------------------------------------------------------------

    async def add(self, spec: ServerSpec) -> None:
        """One more server. It connects when it is started or needed."""
        self._enlist(spec)
        self._tell_watchers(spec.name)

    async def remove(self, name: str) -> None:
        """Disconnect this server and forget it."""
        self._find(name)
        if (run := self._runs.pop(name, None)) is not None:
            await run.stop()
        del self._supervisors[name]
        self._tell_watchers(name)

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

    def _connected(self, name: str) -> Connection:
        supervisor = self._find(name)
        if supervisor.connection is None:
            raise supervisor.unavailable()
        return supervisor.connection

    def _checked(self, name: str, result: dict[str, Any]) -> JsonObject:
        if (reason := check_json(result)) is not None:
            raise ServerReplyInvalid(f"the result of {name} {reason}", server=name)
        return result

    def _tell_watchers(self, name: str) -> None:
        for callback in tuple(self._watchers.values()):
            try:
                callback(name)
            except Exception:
                logger.exception("a watcher of the servers failed on %s", name)
