"""What the tests of execution share: calls made by hand, real servers behind a runner, a clock to turn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fingerpost.call.execution import CallRun, CallRunner, ToolUpstream
from fingerpost.events import AttemptFinished, Event, MemorySink
from fingerpost.records import (
    Call,
    CallContext,
    Effect,
    Execution,
    Known,
    LatencyProfile,
    Permit,
    ServerSpec,
    Source,
    create_id,
)
from fingerpost.servers import ServerPool
from fingerpost.settings.model import CallSettings, FlagSettings, LimitSettings

PATIENCE = 60.0  # for what takes milliseconds when the machine is idle

E = TypeVar("E", bound=Event)


class HandClock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += seconds


def a_call(
    tool: str = "notes/read",
    arguments: Mapping[str, Any] | None = None,
    *,
    effect: Effect = Effect.READ,
    **more: Any,
) -> Call:
    """A call of `server/tool`; equal tool and arguments have equal fingerprints."""
    server, name = tool.split("/")
    given = {"q": "x"} if arguments is None else dict(arguments)
    key = f"{tool} {json.dumps(given, sort_keys=True)}"
    return Call(
        tool=tool,
        server=server,
        name=name,
        operation=tool,
        arguments=given,
        effect=effect,
        fingerprint=hashlib.sha256(key.encode()).hexdigest(),
        **more,
    )


def create_permit(call: Call, given_by: str = "policy: default for read") -> Permit:
    return Permit(call_fingerprint=call.fingerprint, given_by=given_by)


async def allow(call: Call) -> Permit | None:
    return create_permit(call)


def a_context(**facts: Any) -> CallContext:
    return CallContext(call_id=create_id("cal"), **facts)


def create_latency(seconds: float) -> LatencyProfile:
    """A tool with this time-out."""
    return LatencyProfile(
        typical=Known(100, Source.WRITTEN),
        timeout=Known(int(seconds * 1000), Source.WRITTEN),
        feedback_delay=Known(1000, Source.DEFAULT),
    )


def all_lasting(seconds: float) -> Callable[[Call], LatencyProfile]:
    """Every fallback with this time-out."""
    return lambda _: create_latency(seconds)


class GivenFallbacks:
    """Fallbacks as a test gives them."""

    def __init__(
        self,
        find: Callable[[Call], Iterable[Call]],
        *,
        permitting: Callable[[Call], Awaitable[Permit | None]] = allow,
        latency_of: Callable[[Call], LatencyProfile | None] = lambda _: None,
    ) -> None:
        self.find_alternatives = find
        self.get_latency = latency_of
        self._permitting = permitting

    async def prepare_fallback(self, call: Call) -> None:
        pass

    async def permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        return await self._permitting(call)


def a_run(call: Call, permit: Permit | None = None, *, seconds: float = 10, **more: Any) -> CallRun:
    context = more.pop("context", None) or a_context()
    return CallRun(
        call,
        permit or create_permit(call),
        context,
        latency=more.pop("latency", None) or create_latency(seconds),
        **more,
    )


class RunnerFixture:
    """A runner, its events, and what it recorded before sending."""

    def __init__(
        self, door: ToolUpstream, *, clock: Callable[[], float] | None = None, **settings: Any
    ) -> None:
        self.sink = MemorySink()
        self.journal: list[Event] = []
        flags = FlagSettings.model_validate(settings.pop("flags", {}))
        journal: Callable[[Event], Awaitable[None]] = settings.pop("journal", self._write_down)
        more: dict[str, Any] = {} if clock is None else {"clock": clock}
        self.runner = CallRunner(
            door,
            settings=CallSettings.model_validate(settings),
            flags=flags,
            events=self.sink,
            journal=journal,
            random_number=lambda: 0.01,
            **more,
        )

    async def _write_down(self, event: Event) -> None:
        self.journal.append(event)

    async def run(
        self,
        call: Call,
        *,
        seconds: float = PATIENCE,
        given_by: str = "policy: default for read",
        alternatives: Iterable[Call] = (),
        context: CallContext | None = None,
        **more: Any,
    ) -> Execution:
        given = {name: more.pop(name) for name in ("permitting", "latency_of") if name in more}
        fallbacks = GivenFallbacks(lambda _: alternatives, **given)
        permit = create_permit(call, given_by)
        return await self.runner.run(
            a_run(call, permit, seconds=seconds, context=context, fallbacks=fallbacks, **more)
        )

    def list_events(self, kind: type[E]) -> list[E]:
        return [event for event in self.sink.events if isinstance(event, kind)]

    def errors(self) -> list[str | None]:
        """What every attempt came to, in order."""
        return [event.attempt.error for event in self.list_events(AttemptFinished)]


@asynccontextmanager
async def open_bench(
    *specs: ServerSpec, clock: Callable[[], float] | None = None, **settings: Any
) -> AsyncGenerator[RunnerFixture]:
    """A runner in front of these servers."""
    limits = LimitSettings(reconnect_max=0.2)
    async with ServerPool(specs, events=MemorySink(), limits=limits) as servers:
        servers.start()
        assert await servers.wait_until_settled(timeout=PATIENCE)
        yield RunnerFixture(servers, clock=clock, **settings)
