"""A server's time: it stands still for a person, and begins anew with progress, up to a limit."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost import Router, Server, Settings
from fingerpost.errors import ToolTimeout
from fingerpost.records import JsonObject
from fingerpost.servers.in_flight import PROGRESS_METHOD, InFlightRequest
from fingerpost.servers.requests import MAX_EXTENSION_FACTOR, RequestClock
from tests.kit.call_runner import RunnerFixture, a_call, a_context
from tests.kit.gateway_methods import open_gateway_methods, text_of
from tests.kit.programs import program
from tests.kit.server_pools import PATIENCE, open_pool
from tests.kit.stores import place_empty_store
from tests.requirements import proves

TOOL = "everything/trigger-long-running-operation"
QUICK: dict[str, Any] = {
    "policy": [{"tool": TOOL, "verdict": "allow"}],
    "tools": [{"match": TOOL, "timeout_ms": 1500}],
}
STEADY: dict[str, Any] = {"duration": 3, "steps": 30}  # a report each tenth of a second


def create_everything_server() -> Any:
    return Server.stdio("everything", [program("mcp-server-everything")])


@pytest.mark.process
@proves("F2")
async def test_a_call_that_gets_on_may_take_longer_than_its_time_out(tmp_path: Path) -> None:
    settings = Settings.model_validate({**QUICK, "store": {"url": place_empty_store(tmp_path, "a.db")}})
    async with Router([create_everything_server()], settings=settings) as router:
        await router.connect()
        outcome = await router.call(TOOL, STEADY)
    assert outcome.success, outcome.content


@pytest.mark.process
@proves("F2")
@pytest.mark.parametrize("modern", [False, True])
async def test_the_same_through_the_gateway(tmp_path: Path, modern: bool) -> None:
    async with open_gateway_methods(tmp_path, create_everything_server(), **QUICK) as it:
        result = await it.call("everything__trigger-long-running-operation", STEADY, modern=modern)
    assert "completed" in text_of(result)


@proves("F2", "W3")
async def test_progress_does_not_outlast_the_time_of_a_whole_request() -> None:
    seconds, left = 5.0, list[float]()

    class Door:
        """Reports progress, and looks how long it has by that."""

        def hold(self, name: str) -> AbstractContextManager[object]:
            return nullcontext()

        async def ensure(self, name: str, *, timeout: float) -> None: ...

        async def call(self, *_: Any, on_progress: Any = None, **__: Any) -> JsonObject:
            for progress in range(3):
                await on_progress(progress, None, None)
                left.append(anyio.current_effective_deadline() - anyio.current_time())
            return {"content": []}

    bench = RunnerFixture(Door())
    await bench.run(a_call(), seconds=60, context=a_context(seconds=seconds), on_progress=_nowhere)
    assert len(left) == 3
    assert max(left) <= seconds


async def _nowhere(progress: float, total: float | None, message: str | None) -> None: ...


@proves("F2")
@pytest.mark.parametrize("odd", [10**400, float("nan"), float("inf"), "1", None, True])
async def test_progress_that_is_no_number_is_passed_over(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    received: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    talk = InFlightRequest("odd", 1, on_progress=on_progress)
    await talk.forward_notification(PROGRESS_METHOD, {"progress": odd})
    await talk.forward_notification(PROGRESS_METHOD, {"progress": 2, "total": odd})
    assert received == [2.0]
    assert not caplog.messages


@pytest.mark.process
@proves("F2")
async def test_a_server_that_stops_getting_on_is_given_up_and_the_error_says_so() -> None:
    rarely = {"duration": 60, "steps": 6}

    async with open_pool(create_everything_server()) as servers:
        servers.start("everything")
        await servers.ensure("everything", timeout=PATIENCE)
        with pytest.raises(ToolTimeout, match=r"did not answer within 0\.3 s"):
            await servers.call(
                "everything",
                "trigger-long-running-operation",
                rarely,
                timeout=0.3,
                on_progress=_nowhere,
            )


def list_remaining_times(
    reports: list[float], *, patience: float, left: float, until: float = float("inf")
) -> list[float]:
    """How much time is left after each report, all of them in the same moment."""
    found: list[float] = []

    async def report() -> None:
        now = anyio.current_time()
        scope = anyio.CancelScope(deadline=now + left)
        clock = RequestClock(scope, timeout=patience, deadline=now + until)
        for progress in reports:
            clock.note_progress(progress)
            found.append(scope.deadline - now)
            scope.deadline = now + left  # as if the time had gone by

    anyio.run(report)
    return found


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_only_more_progress_gives_more_time_and_never_more_than_the_limit(reports: list[float]) -> None:
    patience, left = 100.0, 1.0
    found = list_remaining_times(reports, patience=patience, left=left)
    furthest, gained = float("-inf"), 0.0
    for report, after in zip(reports, found, strict=True):
        more = after - left
        assert more <= patience
        if not report > furthest:
            assert more == pytest.approx(0.0, abs=1e-6)
        furthest = furthest if math.isnan(report) else max(furthest, report)
        gained += more
    assert gained <= (MAX_EXTENSION_FACTOR - 1) * patience + 1e-6


def test_progress_does_not_outlast_the_callers_patience() -> None:
    assert list_remaining_times([1, 2, 3], patience=100, left=1, until=5) == pytest.approx(
        [5, 5, 5], abs=0.01
    )


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([], "it did not answer within 2 s"),
        ([1.0], "it reported no further progress for 2 s, and did not answer"),
        ([float(step) for step in range(40)], "it reported progress, but did not answer within 20 s"),
    ],
)
async def test_the_complaint_says_what_was_wrong(reports: list[float], text: str) -> None:
    scope = anyio.CancelScope(deadline=anyio.current_time() + 2)
    clock = RequestClock(scope, timeout=2)
    for progress in reports:
        scope.deadline = anyio.current_time() + 0.5
        clock.note_progress(progress)
    assert clock.format_timeout("it", 2) == text
