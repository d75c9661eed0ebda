"""A router that is closed while it works: everything under way is ended first, and on record as it ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Policy, Router
from fingerpost.call.execution.concurrency import BackgroundState
from fingerpost.errors import FingerpostError
from fingerpost.events import AttemptFinished, Event, RouteEnded
from fingerpost.llm import ModelRequest
from fingerpost.records import CallContext, ErrorKind, RouteOutcome, ToolCall, create_id
from fingerpost.testing import HANG, ScriptedModel, tool_server
from tests.kit.learning import definition
from tests.kit.routers import build_settings
from tests.requirements import proves

WRITE = "notes/write_note"
NOTES = [definition("write_note", "Write one note.", readOnlyHint=False)]


class HangingRouter:
    """A router whose writes and whose model never come to an end, and when one of them began."""

    def __init__(self, folder: Path) -> None:
        self.began = anyio.Event()
        self.settings = build_settings(folder)
        notes = tool_server("notes", NOTES, call=self._write)
        model = ScriptedModel(self._think)
        self.router = Router([notes.spec()], settings=self.settings, model=model, policy=Policy(allow={"*"}))

    async def _write(self, name: str, arguments: dict[str, Any]) -> str:
        self.began.set()
        await anyio.sleep_forever()
        return name

    def _think(self, _: ModelRequest) -> str:
        self.began.set()
        return HANG

    async def on_record(self, kind: type[Event]) -> list[Event]:
        """What the journal has of these when the router is closed."""
        async with Router(settings=self.settings) as later:
            return [entry.event for entry in await later.store.journal.list_events(kinds=[kind.kind])]


async def _read_stream(router: Router) -> None:
    async for _ in router.stream("write a note about the budget", mode="simple"):
        pass


WORK: dict[str, tuple[Callable[[Router], Awaitable[object]], type[Event]]] = {
    "call": (lambda router: router.call(WRITE, {}), AttemptFinished),
    "calls.call": (
        lambda router: router.calls.call(
            ToolCall(name=WRITE, arguments={}), CallContext(call_id=create_id("cal"))
        ),
        AttemptFinished,
    ),
    "route": (lambda router: router.route("write a note about the budget", mode="simple"), RouteEnded),
    "stream": (_read_stream, RouteEnded),
}


@proves("H5")
@pytest.mark.parametrize("what", WORK)
async def test_what_is_under_way_is_ended_and_recorded_before_the_router_closes(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = HangingRouter(tmp_path)
    work, kind = WORK[what]
    received: list[FingerpostError] = []

    async def ask() -> None:
        try:
            await work(hanging.router)
        except FingerpostError as error:
            received.append(error)

    async with anyio.create_task_group() as tasks, hanging.router as router:
        await router.connect()
        tasks.start_soon(ask)
        await hanging.began.wait()
    assert [str(error) for error in received] == ["the router was closed before this was over"]
    assert "may have done its work" in (received[0].hint or "")
    (ended,) = await hanging.on_record(kind)
    if isinstance(ended, AttemptFinished):
        assert ended.attempt.error is ErrorKind.UNKNOWN
    else:
        assert isinstance(ended, RouteEnded)
        assert ended.outcome is RouteOutcome.LEFT
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_call_in_the_background_is_called_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = HangingRouter(tmp_path)
    async with hanging.router as router:
        handle = router.start(WRITE, {})
        await hanging.began.wait()
    assert router.background.poll(handle).state is BackgroundState.CANCELLED
    (ended,) = await hanging.on_record(AttemptFinished)
    assert isinstance(ended, AttemptFinished)
    assert ended.attempt.error is ErrorKind.UNKNOWN
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_closing_while_being_cancelled_closes_in_good_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = HangingRouter(tmp_path)
    async with anyio.create_task_group() as tasks:

        async def ask(router: Router) -> None:
            with pytest.raises(FingerpostError, match="closed before"):
                await router.call(WRITE, {})

        with anyio.CancelScope() as scope:
            async with hanging.router as router:
                tasks.start_soon(ask, router)
                await hanging.began.wait()
                scope.cancel()
                await anyio.sleep_forever()
    (ended,) = await hanging.on_record(AttemptFinished)
    assert isinstance(ended, AttemptFinished)
    assert ended.attempt.error is ErrorKind.UNKNOWN
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_stream_that_is_not_read_to_its_end_does_not_delay_closing(tmp_path: Path) -> None:
    hanging = HangingRouter(tmp_path)
    async with hanging.router as router:
        items = router.stream("write a note about the budget", mode="simple")
        await anext(items)
    await items.aclose()
    (ended,) = await hanging.on_record(RouteEnded)
    assert isinstance(ended, RouteEnded)
    assert ended.outcome is RouteOutcome.LEFT
