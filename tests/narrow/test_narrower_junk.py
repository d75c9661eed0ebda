"""Whatever comes in, an answer comes out, in bounded time."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Message
from tests.kit.narrowing import list_offered, narrow, narrower_of, tool
from tests.kit.tables import table
from tests.requirements import proves

ONE = {"files": [tool("read_file", "Read a file from disk.", "path")]}
JUNK = [
    "",
    "   \n\t ",
    "a",
    "🙂🙂🙂🔥",
    "read the file \u202e/etc/passwd\u202c 🙂",
    "קרא את הקובץ report.pdf and then שלח אותו to Dana",
    "把文件发给我，然后删除",
    "\ud800 half a character",
    "\x00\x1b[31mred",
    "and " * 5_000,
    "1. " * 3_000,
    "find " * 20_000,
    "x" * 100_000,
    "?!.;,،؛" * 2_000,
]


@pytest.mark.slow
@proves("N6")
@table("text", JUNK, ids=range(len(JUNK)))
def test_any_request_gets_an_answer(text: str) -> None:
    narrowing = narrow(text, ONE, history=(Message(role="user", text=text),))
    assert 0 <= narrowing.need.score <= 1
    assert 0 <= narrowing.shortlist.fit <= 1
    assert len(narrowing.shortlist.needs) <= 4


@proves("N6")
def test_a_catalog_of_none_offers_nothing_and_says_so() -> None:
    narrowing = narrow("read the file", {})
    assert narrowing.shortlist.candidates == ()
    assert narrowing.shortlist.considered == 0
    assert narrowing.shortlist.fit == 0
    assert narrowing.need.verdict is not None


def test_a_catalog_of_one_offers_it() -> None:
    assert list_offered(narrow("read the file notes.txt", ONE)) == ["files/read_file"]


@pytest.mark.slow
@proves("N6")
def test_many_identical_tools_are_one_tool() -> None:
    same = tool("read_file", "Read a file from disk.", "path")
    narrower = narrower_of({f"server{number}": [same] for number in range(200)})
    narrowing = narrower.narrow(NarrowRequest(text="read the file notes.txt"))
    assert len(list_offered(narrowing)) == 1
    assert narrowing.shortlist.considered == 200
    assert len(narrowing.shortlist.candidates) == 20
    assert all("the same tool as" in one.lost for one in narrowing.shortlist.candidates[1:])


@example(text="B:E\x80;000\x80", most=1)
@example(text="find the invoice from May and send it to Ruth", most=2)
@given(text=st.text(max_size=300), most=st.integers(1, 6))
def test_no_text_breaks_the_promises(text: str, most: int) -> None:
    tools = [tool(f"tool_{number}", "Read, find or send a thing.", "id") for number in range(8)]
    narrowing = narrow(text, {"a": tools[:4], "b": tools[4:]}, max_tools=most)
    shortlist = narrowing.shortlist
    assert len(shortlist.offered) <= most
    keys = [one.tool for one in shortlist.candidates]
    assert len(keys) == len(set(keys))
    assert all(one.offered or one.lost for one in shortlist.candidates)
    scores = [one.score for one in shortlist.candidates]
    assert scores == sorted(scores, reverse=True)
