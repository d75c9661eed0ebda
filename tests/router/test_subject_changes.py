"""Conversations that change their subject, over the servers of the conversation benchmark."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from benchmarks.conversations import servers

from fingerpost import Router, Settings
from fingerpost.records import Message, Narrowing, NeedVerdict
from tests.kit.stores import place_empty_store
from tests.kit.tables import table
from tests.requirements import proves

AFTER_A_GREETING = (("Hello!", "Hello! What can I do for you?"),)
AFTER_A_FILE = (("Read the file notes.md", "It says: buy milk."),)
AFTER_A_TIME = (("What time is it in Tokyo right now?", "It is 21:40 in Tokyo."),)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def router(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Router]:
    async with open_conversation_router(tmp_path_factory.mktemp("conversations")) as opened:
        yield opened


@asynccontextmanager
async def open_conversation_router(folder: Path, *, without: tuple[str, ...] = ()) -> AsyncGenerator[Router]:
    """A router over those servers, ready to compare by meaning."""
    settings = Settings.model_validate(
        {
            "store": {"url": place_empty_store(folder, "s.db")},
            "narrow": {"vectors": str(folder / "vectors")},
            "smart_routing": {"mode": "off"},
        }
    )
    specs = [server.spec() for server in servers() if server.name not in without]
    async with Router(specs, settings=settings) as router:
        await router.connect()
        await router.settle(120)
        yield router


async def narrow_with_history(router: Router, text: str, *before: tuple[str, str]) -> Narrowing:
    history = tuple(
        Message(role=role, text=earlier_turns)
        for turn in before
        for role, earlier_turns in zip(("user", "assistant"), turn, strict=True)
    )
    return await router.narrow(text, history=history)


def list_offered(narrowing: Narrowing) -> list[str]:
    return [candidate.tool for candidate in narrowing.shortlist.offered]


@pytest.mark.slow
@proves("A2")
async def test_a_turn_that_says_what_it_wants_is_judged_by_itself(router: Router) -> None:
    for text, tool in (
        ("Read the file notes.md", "files/read_file"),
        ("What time is it in Tokyo right now?", "time/get_current_time"),
    ):
        alone, after = (
            await narrow_with_history(router, text),
            await narrow_with_history(router, text, *AFTER_A_GREETING),
        )
        assert alone.need.verdict is after.need.verdict is NeedVerdict.TOOL, text
        assert list_offered(after)[0] == tool
    for text in ("What is photosynthesis?", "Tell me a joke"):
        for before in (AFTER_A_FILE, AFTER_A_TIME, AFTER_A_GREETING):
            assert list_offered(await narrow_with_history(router, text, *before)) == [], text


@pytest.mark.slow
@proves("A2", "B6")
async def test_an_elliptic_turn_is_understood_with_the_one_before(router: Router) -> None:
    knowledge = (("What is photosynthesis?", "How plants make sugar from light."),)
    for text in ("and in Paris?", "what about New York?", "ובפריז?"):
        assert (
            list_offered(await narrow_with_history(router, text, *AFTER_A_TIME))[0] == "time/get_current_time"
        ), text
        twice = (*AFTER_A_TIME, ("and in Rome?", "It is 14:40 in Rome."))
        assert list_offered(await narrow_with_history(router, text, *twice))[0] == "time/get_current_time", (
            text
        )
    assert list_offered(await narrow_with_history(router, "and respiration?", *knowledge)) == []


@proves("A2")
@table(
    ("text", "tools"),
    [
        ("What did we decide about pagination?", {"notes/search_notes"}),
        ("Is there a note about passwords?", {"notes/search_notes"}),
        ("What changed that is not committed yet?", {"git/git_status", "git/git_diff"}),
        ("מה כתבתי על הדוד?", {"notes/search_notes", "memory/recall"}),
        ("What did I write about the boiler?", {"notes/search_notes"}),
        ("מה החלטנו על המחירים?", {"notes/search_notes"}),
        ("What do you remember about my allergies?", {"memory/recall"}),
    ],
)
async def test_what_was_written_or_decided_is_looked_up(router: Router, text: str, tools: set[str]) -> None:
    for before in ((), AFTER_A_GREETING, AFTER_A_FILE):
        found = await narrow_with_history(router, text, *before)
        assert tools.intersection(list_offered(found)), f"{found.need}: {list_offered(found)}"


@pytest.mark.slow
@proves("A2", "B6")
async def test_what_was_written_is_no_matter_for_tools_where_none_can_look_or_the_conversation_holds_it(
    router: Router, tmp_path: Path
) -> None:
    earlier_turns = (("We decided to use cursors for pagination.", "Noted."),)
    held = await narrow_with_history(router, "What did we decide about pagination?", *earlier_turns)
    assert held.need.reasons == ("the conversation already contains the answer",)
    assert list_offered(held) == []
    async with open_conversation_router(tmp_path, without=("notes", "memory")) as other:
        assert (
            await narrow_with_history(other, "What did we decide about pagination?")
        ).need.verdict is not NeedVerdict.TOOL


@proves("D3", "N4", "N5")
async def test_a_question_is_for_tools_that_look(router: Router) -> None:
    for text, tools in (
        ("יש לי פגישות ביום שלישי?", {"calendar/list_events"}),
        ("Did I get an email from the bank?", {"mail/search_email", "mail/read_email"}),
        ("מה כתוב בקובץ notes.md?", {"files/read_file"}),
    ):
        found = await narrow_with_history(router, text)
        assert list_offered(found)[0] in tools, text
        parts = [part for one in found.shortlist.candidates for part in one.parts]
        assert any(part.signal == "mood" and part.points < 0 for part in parts)


@proves("N4")
async def test_a_request_in_the_form_of_a_question_is_for_tools_that_act(router: Router) -> None:
    for text, tool in (
        ("Can you delete the event on Tuesday?", "calendar/delete_event"),
        ("Could you send an email to Dana that I am late?", "mail/send_email"),
        ("Would you please add a task to call Ruth?", "tasks/add_task"),
        ("אפשר למחוק את האירוע ביום שלישי?", "calendar/delete_event"),
        ("תוכל לשלוח מייל לדנה?", "mail/send_email"),
    ):
        found = await narrow_with_history(router, text)
        assert list_offered(found)[0] == tool, text
        parts = [part for one in found.shortlist.candidates for part in one.parts if part.signal == "mood"]
        assert not any(part.note.startswith("the request only asks") for part in parts), text


@proves("A2")
async def test_a_person_who_says_who_they_are_greets(router: Router) -> None:
    for text in (
        "Hello, I am Dana!",
        "Hi, my name is Noa Levi. Nice to meet you!",
        "Hey there, I'm Dana",
        "Good morning, this is Dana.",
        "שלום, אני דנה",
        "היי, קוראים לי נועה",
        "שלום, שמי יוסי כהן, נעים מאוד",
    ):
        found = await narrow_with_history(router, text)
        assert found.need.certain, f"{text}: {found.need}"
        assert list_offered(found) == [], text
    for text in (
        "Hello, I am Dana, what is on my calendar?",
        "Hi, my name is Noa. Read the file notes.md",
        "Hi, I am Dana, which tables does the database have?",
        "שלום, אני דנה, יש לי פגישות ביום שלישי?",
        "Hello, I am in Tokyo, what time is it here right now?",
    ):
        found = await narrow_with_history(router, text)
        assert not found.need.certain, text
        assert list_offered(found), f"{text}: {found.need}"
