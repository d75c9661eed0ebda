"""A mistake that people corrected stays corrected, and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.learning import correct, first, open_office_router, open_package_router, order, why
from tests.requirements import proves

# Requests that the tools of real packages mislead, each with the tool that is right and other
# ways to say it.
MISTAKES = [
    (
        "what's different in my working copy",
        "git/git_diff_unstaged",
        ("what is different in the working copy?", "show me what differs in my working copy"),
    ),
    (
        "how old is that dump.sql",
        "filesystem/get_file_info",
        ("how old is this dump.sql?", "can you tell me how old dump.sql is"),
    ),
    (
        "how far did my branch drift from main",
        "git/git_diff",
        ("how far has my branch drifted from main?", "did my branch drift far from main"),
    ),
]
ELSEWHERE = [
    "read the file notes.txt",
    "list the pods of the cluster",
    "what time is it in Tokyo",
    "search arxiv for papers on diffusion",
    "commit the staged changes",
    "how do I get from Basel to Bern by train",
]


@pytest.mark.slow
@proves("L2", "E11")
async def test_a_mistake_corrected_three_times_stays_corrected(tmp_path: Path, vectors: Path) -> None:
    async with open_package_router(tmp_path, vectors) as plain:
        before = {text: order(await plain.narrow(text)) for text in ELSEWHERE}
        for request, right, _ in MISTAKES:
            await correct(plain, request, right, times=3)
            assert first(await plain.narrow(request)) != right, "the flag is off"
    # After a restart, and with the flag: for the very words, and for others that mean the same.
    async with open_package_router(tmp_path, vectors, learn_from_feedback=True) as taught:
        for request, right, paraphrases in MISTAKES:
            for text in (request, *paraphrases):
                found = await taught.narrow(text)
                assert first(found) == right, text
                assert found.shortlist.offered[0].tool == right
        after = {text: order(await taught.narrow(text)) for text in ELSEWHERE}
    assert after == before


@pytest.mark.slow
@proves("L2", "L7")
async def test_an_explanation_names_what_was_learned(tmp_path: Path) -> None:
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}) as (router, _):
        request = "which events did Dana mention in her notes?"
        await correct(router, request, "calendar/list_events")
        once = why(await router.narrow(request), "calendar/list_events")
        assert once["corrected"][0] > 0
        assert once["corrected"][1] == "corrected once by dana"
        await router.learning.forget("corrections", by="dana")
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}) as (router, _):
        wrong = first(await router.narrow(request))
        await correct(router, request, "calendar/list_events", times=3)
        found = await router.narrow(request)
        assert first(found) == "calendar/list_events"
        assert "corrected 3 times by dana" in why(found, "calendar/list_events")["corrected"][1]
        assert why(found, wrong)["corrected"][1] == "called wrong 3 times by dana"
        # Other callers do not learn who it was, nor the request.
        theirs = why(await router.narrow(request, caller="kim"), "calendar/list_events")
        assert theirs["corrected"][1].endswith("corrected 3 times by others")


@proves("L2")
@pytest.mark.parametrize(
    ("taught", "asked"),
    [
        ("read the note about the budget", "delete the note about the budget"),
        ("turn on the alarm for the meeting", "turn off the alarm for the meeting"),
        ("what did Dana say about the budget?", "put lunch with Kim into the calendar"),
    ],
)
async def test_what_wants_something_else_is_not_moved(tmp_path: Path, taught: str, asked: str) -> None:
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}) as (router, _):
        before = await router.narrow(asked)
        last = order(await router.narrow(taught))[-1]
        await correct(router, taught, last, times=3)
        assert first(await router.narrow(taught)) == last
        after = await router.narrow(asked)
    assert [(one.tool, one.score) for one in after.shortlist.candidates] == [
        (one.tool, one.score) for one in before.shortlist.candidates
    ]


@proves("L2")
async def test_people_who_change_their_mind_are_followed(tmp_path: Path) -> None:
    request = "what did Dana say about the budget?"
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}) as (router, _):
        await correct(router, request, "notes/find_notes", times=3)
        assert first(await router.narrow(request)) == "notes/find_notes"
        await correct(router, request, "calendar/list_events", times=6)
        assert first(await router.narrow(request)) == "calendar/list_events"


@proves("L2")
async def test_a_tool_the_request_names_or_that_is_hidden_is_not_overruled(tmp_path: Path) -> None:
    rules = [{"verdict": "deny", "tool": "notes/find_notes", "caller": "kim"}]
    request = "what did Dana say about the budget?"
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}, policy=rules) as (router, _):
        await correct(router, request, "notes/find_notes", times=3)
        named = await router.narrow("what did Dana say about the budget? use search_mail")
        hidden = await router.narrow(request, caller="kim")
        misread = "which notes mention the delete_note tool?"
        assert first(await router.narrow(misread)) == "notes/delete_note"
        await correct(router, misread, "notes/find_notes", times=3)
        assert first(await router.narrow(misread)) == "notes/find_notes", "it was corrected as it stands"
    assert first(named) == "mail/search_mail"
    assert "notes/find_notes" not in order(hidden)
