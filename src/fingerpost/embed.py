"""Fingerpost for programs that are not asynchronous.

    from fingerpost.embed import Embedded

    with Embedded("mcp.json") as fingerpost:
        route = fingerpost.ask("What time is it in Tokyo?")
        print(route.answer)

The router runs on an event loop in a separate thread. Several threads can send requests at the
same time; each waits only for its own answer. Errors are those of the router. An asynchronous
program uses `Router` directly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

import anyio
import anyio.lowlevel
from anyio.from_thread import BlockingPortal

from fingerpost.errors import ConfigError, FingerpostError, LimitReached
from fingerpost.router import Router
from fingerpost.router.agent import Agent, AgentMode
from fingerpost.router.options import RouteOptions, build_options
from fingerpost.settings import Settings, load

if TYPE_CHECKING:
    from fingerpost.catalog import Snapshot
    from fingerpost.events import EventSink
    from fingerpost.llm import ChatModel, OnText
    from fingerpost.narrow.scorer import Scorer
    from fingerpost.policy.rules import PolicyRule
    from fingerpost.records import (
        Approval,
        Effect,
        JsonObject,
        Message,
        Narrowing,
        Outcome,
        Pending,
        ServerSpec,
        ServerStatus,
        ToolCard,
    )
    from fingerpost.router import CallKeywords, NarrowKeywords, Policy, Route, RouteKeywords
    from fingerpost.router.agent import AgentStats, AgentStatus
    from fingerpost.router.options import RuntimeSwitches


class EmbeddedAgent:
    """An agent for threads. `agent` is the wrapped asynchronous agent."""

    def __init__(self, embedded: Embedded, agent: Agent) -> None:
        self.agent = agent
        self._embedded = embedded

    def ask(self, text: str, *, timeout: float | None = None, **asking: Unpack[RouteKeywords]) -> Route:
        """Answer the next request of the conversation."""

        def work(on_piece: OnText | None) -> Awaitable[Route]:
            asking["on_text"] = on_piece
            return self.agent.ask(text, **asking)

        return self._embedded.run_with_text(work, asking.get("on_text"), timeout)

    def give(
        self, results: Mapping[str, str], *, on_text: OnText | None = None, timeout: float | None = None
    ) -> Route:
        """Continue after the client's tools were called. `results` maps call ids to results."""

        return self._embedded.run_with_text(
            lambda on_piece: self.agent.give(results, on_text=on_piece), on_text, timeout
        )

    def resume(
        self, approval: Approval | None = None, *, on_text: OnText | None = None, timeout: float | None = None
    ) -> Route:
        """Continue the request that waits for a person."""
        return self._embedded.run_with_text(
            lambda on_piece: self.agent.resume(approval, on_text=on_piece), on_text, timeout
        )

    def reset(self) -> None:
        """Start a new conversation."""
        self.agent.reset()

    @property
    def history(self) -> tuple[Message, ...]:
        return self.agent.history

    def stats(self) -> AgentStats:
        return self.agent.stats()

    def status(self) -> AgentStatus:
        return self.agent.status()


class EventLoopThread:
    """A thread with an event loop. It runs within the `with` block, whose end waits for the thread.

    Not anyio's `start_blocking_portal`: its copy in a forked process would wait for the thread at exit.
    """

    def __init__(self, name: str) -> None:
        self._ready: Future[BlockingPortal] = Future()
        self._thread = Thread(target=self._run_loop, name=name, daemon=True)

    def __enter__(self) -> BlockingPortal:
        self._thread.start()
        return self._ready.result()

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        portal = self._ready.result()
        portal.call(portal.stop, exc_type is not None)
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
    """The running tasks. Use it on the event loop only."""

    def __init__(self) -> None:
        self.closing = False
        self._scopes: set[anyio.CancelScope] = set()
        self._done = anyio.Event()

    async def run_bounded(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Return the result. Raises `LimitReached` after `seconds`, `FingerpostError` if stopped before."""
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
        hint = "Allow more time with `timeout`, or bound the request: seconds=…."
        raise LimitReached(f"no answer within {seconds:g} s", hint=hint)

    async def stop(self) -> None:
        """Cancel all running tasks and wait for their end."""
        self.closing = True
        for scope in tuple(self._scopes):
            scope.cancel()
        while self._scopes:
            self._done = anyio.Event()
            await self._done.wait()


def build_closed_error() -> FingerpostError:
    """Return the error for callers that are still waiting."""
    hint = "Let the answers come before the `with` block ends."
    return FingerpostError("Fingerpost was closed before it had answered", hint=hint)


log = logging.getLogger("fingerpost.embed")

DEFAULT_TIMEOUT_S: Final = 300.0  # for one answer


class Embedded:
    """A router for threads, used as a context manager.

    `servers` is an `mcpServers` file, or specs. With a file, or without servers, the settings are read like
    those of the command `fingerpost`, unless they are given.
    """

    def __init__(
        self,
        servers: str | PathLike[str] | Iterable[ServerSpec] | None = None,
        *,
        settings: Settings | None = None,
        model: ChatModel | None = None,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        policy: Policy | None = None,
        sinks: Iterable[EventSink] = (),
        scorers: Iterable[Scorer] = (),
        rules: Iterable[PolicyRule] = (),
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        if timeout <= 0:
            hint = "Give the seconds one answer may take."
            raise ConfigError(f"timeout = {timeout:g} is not possible", hint=hint)
        self._timeout = timeout
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._process = 0  # process of the thread
        self._work = BoundedTasks()
        specs, settings = _load_servers(servers, settings)
        self.router = Router(
            specs,
            settings=settings,
            model=model,
            lite=lite,
            prime=prime,
            policy=policy,
            sinks=sinks,
            scorers=scorers,
            rules=rules,
        )

    def __repr__(self) -> str:
        return f"Embedded({self.router!r})"

    def __enter__(self) -> Self:
        if self._work.closing:
            raise ConfigError("this was closed, and cannot be opened again", hint="Make a new Embedded.")
        if self._portal is not None:
            message = "this is open already"
            raise ConfigError(message, hint="Ask it as it is, from any thread, or make a new Embedded.")
        _refuse_event_loop()
        with ExitStack() as stack:
            portal = stack.enter_context(EventLoopThread("fingerpost"))
            opened = portal.wrap_async_context_manager(self.router)
            opened.__enter__()
            # Close the router normally, even if the block ends with an exception.
            stack.callback(opened.__exit__, None, None, None)
            stack.callback(portal.call, self._work.stop)
            self._portal, self._stack = portal, stack.pop_all()
            self._process = os.getpid()
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._process:
            return  # a copy in a forked process; only the parent closes it
        self._portal = None
        self._stack.close()

    def ask(self, text: str, *, timeout: float | None = None, **asking: Unpack[RouteKeywords]) -> Route:
        """Answer a request. `on_text` is called in this thread with the answer while it is written."""
        options = build_options(RouteOptions, asking)
        return self.run_with_text(
            lambda on_piece: self.router.requests.route(text, replace(options, on_text=on_piece)),
            options.on_text,
            timeout,
        )

    def narrow(
        self, text: str, *, timeout: float | None = None, **wanted: Unpack[NarrowKeywords]
    ) -> Narrowing:
        """Return the tools that suit a request, with reasons."""
        return self._run(lambda: self.router.narrow(text, **wanted), timeout)

    def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        timeout: float | None = None,
        **context: Unpack[CallKeywords],
    ) -> Outcome:
        """Call a tool with all checks, such as policy and approval."""
        return self._run(lambda: self.router.call(name, arguments, **context), timeout)

    def register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect | str | None = None,
    ) -> ToolCard:
        """Register a Python function as the tool `local/name`. See `Router.register`."""
        return self._run(
            lambda: self.router.register(function, name=name, description=description, effect=effect), None
        )

    def unregister(self, key: str) -> None:
        """Remove a registered function."""
        self._run(lambda: self.router.unregister(key), None)

    def decide(self, approval: Approval) -> Pending:
        """Record a person's decision, from `pending.approve(by=…)` or `pending.reject(by=…)`."""
        return self._run(
            lambda: self.router.calls.decide(
                approval.pending_id,
                approval.decision,
                by=approval.by,
                reason=approval.reason,
                edited_arguments=approval.arguments,
                for_conversation=approval.for_conversation,
            ),
            None,
        )

    def resume(
        self,
        waiting: Route | Pending | str,
        approval: Approval | None = None,
        *,
        timeout: float | None = None,
        **asking: Unpack[RouteKeywords],
    ) -> Route:
        """Continue a request that waited for a person. Pass the same options as for the original request."""
        options = build_options(RouteOptions, asking)
        return self.run_with_text(
            lambda on_piece: self.router.requests.resume(
                waiting, approval, replace(options, on_text=on_piece)
            ),
            options.on_text,
            timeout,
        )

    def resume_call(self, pending_id: str, *, timeout: float | None = None) -> Outcome:
        """Continue a call that waited for a person and was started by `call`, not by `ask`."""
        return self._run(lambda: self.router.resume_call(pending_id), timeout)

    def agent(
        self,
        *,
        mode: AgentMode = "simple",
        max_turns: int | None = None,
        conversation: str | None = None,
        persona: str | None = None,
    ) -> EmbeddedAgent:
        """Start a conversation that keeps its history."""

        async def make() -> Agent:
            return Agent(
                self.router, mode=mode, max_turns=max_turns, conversation=conversation, persona=persona
            )

        return EmbeddedAgent(self, self._run(make, None))

    def connect(self, *names: str, timeout: float | None = None) -> tuple[ServerStatus, ...]:
        """Connect these servers now, or all without names. Otherwise the first request connects them."""
        return self._run(lambda: self.router.connect(*names, timeout=timeout), None)

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of each server."""

        async def look() -> tuple[ServerStatus, ...]:
            return self.router.servers.statuses

        return self._run(look, None)

    @property
    def tools(self) -> Snapshot:
        """The current tools."""
        return self.router.tools

    @property
    def switches(self) -> RuntimeSwitches:
        """The settings that can be changed at runtime, from any thread."""
        return self.router.switches

    def _run(self, work: Callable[[], Awaitable[T]], timeout: float | None) -> T:
        future = self._start(work, timeout)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted while waiting: the answer is no longer needed
            raise

    def run_with_text(
        self, work: Callable[[OnText | None], Awaitable[T]], on_text: OnText | None, timeout: float | None
    ) -> T:
        """Return the result of `work`. `on_text` gets the pieces of text in this thread, not on the loop."""
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
        except RuntimeError as stopped:  # closed after the check above
            raise build_closed_error() from stopped


def _refuse_event_loop() -> None:
    """Raise `ConfigError` in a thread with an event loop, because waiting would block the loop."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return
    message = "Embedded blocks, and this thread runs an event loop"
    raise ConfigError(message, hint="Use `async with Router(…)` here, or ask from a worker thread.")


def _load_servers(
    servers: str | PathLike[str] | Iterable[ServerSpec] | None, settings: Settings | None
) -> tuple[Iterable[ServerSpec], Settings | None]:
    if servers is not None and not isinstance(servers, str | PathLike):
        return servers, settings
    loaded = load(servers=None if servers is None else Path(servers))
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.specs, settings or loaded.settings


__all__ = ["Embedded", "EmbeddedAgent"]
