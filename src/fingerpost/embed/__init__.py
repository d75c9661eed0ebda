"""Fingerpost inside a program that is not asynchronous.

    from fingerpost.embed import Embedded

    with Embedded("mcp.json") as fingerpost:
        route = fingerpost.ask("What time is it in Tokyo?")
        print(route.answer)

The router runs on an event loop in a thread of its own. Any number of threads may ask at
once; each waits for its own answer only. Errors are those of the router. An asynchronous
program uses `Router` itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

import anyio
import anyio.lowlevel
from anyio.from_thread import BlockingPortal

from fingerpost.embed.agent import EmbeddedAgent
from fingerpost.errors import ConfigError, FingerpostError, LimitReached
from fingerpost.router import Router
from fingerpost.router.agent import Agent, AgentMode
from fingerpost.settings import Settings, load

if TYPE_CHECKING:
    from fingerpost.catalog import Snapshot
    from fingerpost.events import EventSink
    from fingerpost.llm import ChatModel, OnText
    from fingerpost.records import (
        Approval,
        Effect,
        JsonObject,
        Narrowing,
        Outcome,
        Pending,
        ServerSpec,
        ServerStatus,
        ToolCard,
    )
    from fingerpost.router import CallOptions, NarrowOptions, Route, RouteOptions
    from fingerpost.router.options import RuntimeSwitches


class EventLoopThread:
    """Runs from `with` to its end, which waits for the thread."""

    def __init__(self, name: str) -> None:
        self._ready: Future[BlockingPortal] = Future()
        self._thread = Thread(target=self._run_loop, name=name, daemon=True)

    def __enter__(self) -> BlockingPortal:
        self._thread.start()
        return self._ready.result()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        portal = self._ready.result()
        portal.call(portal.stop, exc is not None)
        self._thread.join()

    def _run_loop(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 - the thread that waits has to hear of it
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._ready.set_result(portal)
            await portal.sleep_until_stopped()


T = TypeVar("T")


class BoundedTasks:
    """What is being done on the event loop; lives there."""

    def __init__(self) -> None:
        self.closing = False
        self._scopes: set[anyio.CancelScope] = set()
        self._done = anyio.Event()

    async def run_bounded(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """The result of `work`, unless it takes too long or everything is closed meanwhile."""
        if self.closing:
            raise build_closed_error()
        with anyio.move_on_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                return await work()
            finally:
                self._scopes.discard(scope)
                self._done.set()
        if self.closing:
            raise build_closed_error()
        message = f"no answer within {seconds:g} s"
        raise LimitReached(message, hint="Allow more time with `timeout`, or bound the request: seconds=….")

    async def stop(self) -> None:
        """End everything that runs, and wait until it has."""
        self.closing = True
        for scope in tuple(self._scopes):
            scope.cancel()
        while self._scopes:
            self._done = anyio.Event()
            await self._done.wait()


def build_closed_error() -> FingerpostError:
    """The error for whoever still waited."""
    message = "Fingerpost was closed before it had answered"
    return FingerpostError(message, hint="Let the answers come before the `with` block ends.")


log = logging.getLogger("fingerpost.embed")

DEFAULT_TIMEOUT_S: Final = 300.0  # one answer may take, where nothing else is said


class Embedded:
    """A router for threads, between `with` and its end.

    `servers` is an `mcpServers` file, or specs. With a file (or with nothing) the settings
    are read as the command `fingerpost` reads them, unless they are given.
    """

    def __init__(
        self,
        servers: str | PathLike[str] | Iterable[ServerSpec] | None = None,
        *,
        settings: Settings | None = None,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        sinks: Iterable[EventSink] = (),
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        if timeout <= 0:
            message = f"timeout = {timeout:g} is not possible"
            raise ConfigError(message, hint="Give the seconds one answer may take.")
        self._timeout = timeout
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._process = 0  # where its thread runs
        self._work = BoundedTasks()
        specs, settings = _load_servers(servers, settings)
        self.router = Router(specs, settings=settings, lite=lite, prime=prime, sinks=sinks)

    def __enter__(self) -> Self:
        if self._work.closing:
            message = "this was closed, and cannot be opened again"
            raise ConfigError(message, hint="Make a new Embedded.")
        if self._portal is not None:
            message = "this is open already"
            raise ConfigError(message, hint="Ask it as it is, from any thread, or make a new Embedded.")
        _refuse_event_loop()
        with ExitStack() as stack:
            portal = stack.enter_context(EventLoopThread("fingerpost"))
            opened = portal.wrap_async_context_manager(self.router)
            opened.__enter__()
            # Whatever ends the block is the program's own affair: the router is closed in good order.
            stack.callback(opened.__exit__, None, None, None)
            stack.callback(portal.call, self._work.stop)
            self._portal, self._stack = portal, stack.pop_all()
            self._process = os.getpid()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if os.getpid() != self._process:
            return  # a child's copy: what there is to close is its parent's
        self._portal = None
        self._stack.close()

    # -- asking -------------------------------------------------------------------------------------

    def ask(self, text: str, *, timeout: float | None = None, **asking: Unpack[RouteOptions]) -> Route:
        """Answer a request. `on_text` is called in this thread with the answer as it is written."""

        async def work(heard: OnText | None) -> Route:
            asking["on_text"] = heard
            return await self.router.route(text, **asking)

        return self.run_with_text(work, asking.get("on_text"), timeout)

    def narrow(
        self, text: str, *, timeout: float | None = None, **wanted: Unpack[NarrowOptions]
    ) -> Narrowing:
        """Which few tools suit a request, and why."""
        return self._run(lambda: self.router.narrow(text, **wanted), timeout)

    def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        timeout: float | None = None,
        **context: Unpack[CallOptions],
    ) -> Outcome:
        """Call a tool through the whole path."""
        return self._run(lambda: self.router.call(name, arguments, **context), timeout)

    def register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect | str | None = None,
    ) -> ToolCard:
        """Offer a Python function as the tool `local/name` from now on; see `Router.register`."""
        return self._run(
            lambda: self.router.register(function, name=name, description=description, effect=effect), None
        )

    def unregister(self, key: str) -> None:
        """Take a registered function away."""
        self._run(lambda: self.router.unregister(key), None)

    def decide(self, approval: Approval) -> Pending:
        """A person's word on a waiting call, from `pending.approve(by=…)` or `pending.reject(by=…)`."""

        def work() -> Awaitable[Pending]:
            return self.router.calls.decide(
                approval.pending_id,
                approval.decision,
                by=approval.by,
                reason=approval.reason,
                edited_arguments=approval.arguments,
                for_conversation=approval.for_conversation,
            )

        return self._run(work, None)

    def resume(
        self,
        waiting: Route | Pending | str,
        approval: Approval | None = None,
        *,
        timeout: float | None = None,
        **asking: Unpack[RouteOptions],
    ) -> Route:
        """Go on with a request that waited for a person. What you brought to it, bring again."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            asking["on_text"] = heard
            return self.router.resume(waiting, approval, **asking)

        return self.run_with_text(work, asking.get("on_text"), timeout)

    def resume_call(self, pending_id: str, *, timeout: float | None = None) -> Outcome:
        """Go on with a call that waited for a person, where `call` was asked and not `ask`."""
        return self._run(lambda: self.router.resume_call(pending_id), timeout)

    def agent(
        self,
        *,
        mode: AgentMode = "simple",
        max_turns: int | None = None,
        conversation: str | None = None,
        persona: str | None = None,
    ) -> EmbeddedAgent:
        """A conversation whose history is kept."""

        async def make() -> Agent:
            return Agent(
                self.router, mode=mode, max_turns=max_turns, conversation=conversation, persona=persona
            )

        return EmbeddedAgent(self, self._run(make, None))

    # -- looking and switching ----------------------------------------------------------------------

    def connect(self, *names: str, timeout: float | None = None) -> tuple[ServerStatus, ...]:
        """Connect these servers now (all when none is named). The first request does it otherwise."""
        return self._run(lambda: self.router.connect(*names, timeout=timeout), None)

    def status(self) -> tuple[ServerStatus, ...]:
        """How each server is doing."""

        async def look() -> tuple[ServerStatus, ...]:
            return self.router.servers.statuses

        return self._run(look, None)

    @property
    def tools(self) -> Snapshot:
        """Every tool there is right now."""
        return self.router.tools

    @property
    def switches(self) -> RuntimeSwitches:
        """What can be changed while it runs, from any thread."""
        return self.router.switches

    # -- over to the other thread -------------------------------------------------------------------

    def _run(self, work: Callable[[], Awaitable[T]], timeout: float | None) -> T:
        future = self._start(work, timeout)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted while waiting: nobody wants the answer any more
            raise

    def run_with_text(
        self, work: Callable[[OnText | None], Awaitable[T]], on_text: OnText | None, timeout: float | None
    ) -> T:
        """What comes of `work`, and on the way every piece of text, here and not on the event loop."""
        if on_text is None:
            return self._run(lambda: work(None), timeout)
        pieces: SimpleQueue[str | None] = SimpleQueue()
        future = self._start(lambda: work(pieces.put), timeout)
        future.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                on_text(piece)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _start(self, work: Callable[[], Awaitable[T]], timeout: float | None) -> Future[T]:
        _refuse_event_loop()
        if self._portal is None:
            message = "Fingerpost is not running here"
            raise ConfigError(message, hint="Ask inside of `with Embedded(…) as fingerpost:`.")
        if os.getpid() != self._process:
            message = "this process was forked from the one in which Fingerpost runs, and its thread was not"
            raise ConfigError(message, hint="Make a new Embedded in each process, after the fork.")
        seconds = self._timeout if timeout is None else timeout
        try:
            return self._portal.start_task_soon(self._work.run_bounded, work, seconds)
        except RuntimeError as stopped:  # it was closed between the question and here
            raise build_closed_error() from stopped


def _refuse_event_loop() -> None:
    """Waiting here would stop everything else on the loop."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return
    message = "Embedded waits, and this thread has an event loop that must not"
    raise ConfigError(message, hint="Use `async with Router(…)` here, or ask from a worker thread.")


def _load_servers(
    servers: str | PathLike[str] | Iterable[ServerSpec] | None, settings: Settings | None
) -> tuple[tuple[ServerSpec, ...], Settings]:
    if servers is not None and not isinstance(servers, str | PathLike):
        return tuple(servers), settings or Settings()
    loaded = load(servers=None if servers is None else Path(servers))
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.specs, settings or loaded.settings


__all__ = ["Embedded", "EmbeddedAgent"]
