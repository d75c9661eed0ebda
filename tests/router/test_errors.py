"""A router that is asked what it cannot do says so, in errors of ours."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost import Router
from fingerpost.errors import CallError, ConfigError, StoreUnavailable
from fingerpost.events import CallFinished
from fingerpost.events.codec import decode, encode
from fingerpost.records import find_json_problem
from fingerpost.records.json import to_valid_json
from fingerpost.router.router import check_json_object
from fingerpost.testing import tool_server
from tests.kit.learning import MAIL, open_office_router
from tests.kit.routers import build_settings
from tests.kit.tables import table
from tests.requirements import proves

HALF = "\ud800"
TOOL = "mail/search_mail"


@proves("H5")
@pytest.mark.parametrize("arguments", [{"words": f"a{HALF}b"}, {f"w{HALF}": 1}, {"words": [{"deep": HALF}]}])
async def test_a_call_with_half_a_character_is_on_record(
    tmp_path: Path, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_office_router(tmp_path) as (router, sink):
        outcome = await router.call(TOOL, arguments)
        await router.store.journal.flush()
        events = [event for event in sink.events if event.kind.startswith("call_")]
        kept = await router.store.journal.list_events(kinds={event.kind for event in events})
        assert router.store.statistics.rejected == 0
    assert outcome is not None
    assert sorted(entry.event.event_id for entry in kept) == sorted(event.event_id for event in events)
    assert any(isinstance(event, CallFinished) for event in events)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def _endless() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["itself"] = {"and": [made]}
    return made


NO_OBJECTS: tuple[object, ...] = (
    None,
    [1],
    "words",
    5,
    {"words": object()},
    {"words": {1}},
    {1: 2},
    {"a": HALF, "b": object()},
    _endless(),
)


async def test_arguments_that_are_no_json_object_are_refused(tmp_path: Path) -> None:
    async with open_office_router(tmp_path) as (router, sink):

        @table("arguments", NO_OBJECTS)
        async def refuse(arguments: object) -> None:
            with pytest.raises(CallError, match="the arguments") as refused:
                await router.call(TOOL, cast("dict[str, Any]", arguments))
            assert refused.value.hint

        await refuse()
        assert not [event for event in sink.events if event.kind.startswith("call_")]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner),
    max_leaves=8,
)


@given(_JSON)
def test_any_json_can_be_made_valid_and_what_is_valid_stays(value: object) -> None:
    made = to_valid_json(value)
    assert find_json_problem(made) is None
    if find_json_problem(value) is None:
        assert made == value
    check_json_object({"value": value})


@pytest.mark.slow
@proves("H5")
@given(st.text(st.sampled_from("a\u00e9\u05d0\u2603\U0001f600\ud800\udbff\udc00\udfff"), max_size=8))
def test_any_text_in_an_event_can_be_written_and_read(text: str) -> None:
    event = CallFinished(call_id="c", tool=text, success=False, detail=text)
    read = decode(encode(event))
    assert isinstance(read, CallFinished)
    assert read.tool == to_valid_json(text)


async def test_two_servers_of_one_name_are_a_mistake_in_the_set_up(tmp_path: Path) -> None:
    spec = tool_server("mail", MAIL).spec()
    with pytest.raises(ConfigError, match="two servers named 'mail'"):
        async with Router([spec, spec], settings=build_settings(tmp_path)):
            pass  # pragma: no cover


ASKED: dict[str, Callable[[Router], Awaitable[object]]] = {
    "route": lambda router: router.route("find the mail of Kim"),
    "narrow": lambda router: router.narrow("find the mail of Kim"),
    "call": lambda router: router.call(TOOL, {}),
    "settle": lambda router: router.settle(0.1),
    "feedback": lambda router: router.feedback("pkt_1", "good", by="dana"),
    "connect": lambda router: router.connect(),
    "start": lambda router: _start_call(router),
    "select": lambda router: router.select("find the mail of Kim"),
    "resume": lambda router: router.resume("apr_1"),
    "sign_in": lambda router: router.sign_in("mail", open_browser=print),
    "accept": lambda router: router.accept(TOOL, by="dana", fingerprint="f"),
}


async def _start_call(router: Router) -> str:
    return router.start(TOOL, {})


@pytest.mark.parametrize("ever", [True, False])
async def test_a_closed_router_says_so(tmp_path: Path, ever: bool, caplog: pytest.LogCaptureFixture) -> None:
    router = Router([tool_server("mail", MAIL).spec()], settings=build_settings(tmp_path))
    if ever:
        async with router:
            await router.narrow("find the mail of Kim")
    said: dict[str, str] = {}
    for name, ask in ASKED.items():
        try:
            said[name] = f"returned {await ask(router)!r}"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    wrong = {name: text for name, text in said.items() if "ConfigError: the router is not open" not in text}
    assert wrong == {}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_router_is_opened_once(tmp_path: Path) -> None:
    router = Router([tool_server("mail", MAIL).spec()], settings=build_settings(tmp_path))
    async with router:
        with pytest.raises(ConfigError, match="open already"):
            async with router:
                pass  # pragma: no cover
        assert (await router.call(TOOL, {})).success  # other users of it keep it open
    with pytest.raises(ConfigError, match="was opened before") as again:
        async with router:
            pass  # pragma: no cover
    assert "make a new one" in (again.value.hint or "")


async def test_a_router_whose_store_could_not_be_opened_may_be_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    folder.write_text("in the way", encoding="utf-8")
    router = Router([tool_server("mail", MAIL).spec()], settings=build_settings(folder))
    with pytest.raises(StoreUnavailable):
        async with router:
            pass  # pragma: no cover
    folder.unlink()
    folder.mkdir()
    async with router:
        assert (await router.call(TOOL, {})).success


def test_another_kind_of_event_loop_is_told_which_one_is_needed(tmp_path: Path) -> None:
    opening = Router(settings=build_settings(tmp_path)).__aenter__()
    with pytest.raises(ConfigError, match="runs on asyncio") as refused:
        opening.send(None)  # as an event loop does that is not asyncio's
    assert "anyio.run" in (refused.value.hint or "")
