"""What people say is kept: once per person and request, masked, audited, and gone when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.errors import CallError, ConfigError, UnknownTool
from fingerpost.events import FeedbackGiven, LearningForgotten
from fingerpost.records import FeedbackVerdict, Scope
from fingerpost.records.codec import to_plain
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.api import open_served_api
from tests.kit.command_line import CommandLine
from tests.kit.learning import CALENDAR, MAIL, open_office_router, order
from tests.requirements import proves

POEM = "write me a poem about the sea"
ASKED = "find the mail of Kim about the budget"


@proves("L1", "A17")
async def test_a_word_is_kept_and_audited_and_a_later_one_replaces_it(tmp_path: Path) -> None:
    async with open_office_router(tmp_path) as (router, sink):
        route = await router.route(ASKED, caller="dana")
        await router.feedback(route.packet_id, "bad", by="dana", should_have="list_events", comment="no")
        await router.feedback(route.packet_id, "good", by="dana", comment="on second thoughts")
        await router.feedback(route.packet_id, FeedbackVerdict.BAD, by="kim")
        feedback_by_name = {one.by: one for one in await router.learning.list_feedback(route.packet_id)}
        assert (feedback_by_name["dana"].verdict, feedback_by_name["dana"].should_have) == (
            FeedbackVerdict.GOOD,
            None,
        )
        assert feedback_by_name["dana"].comment == "on second thoughts"
        assert feedback_by_name["dana"].request == ASKED
        assert feedback_by_name["kim"].tool is None, "it asked back which tool is meant, and used none"
        events = [event for event in sink.events if isinstance(event, FeedbackGiven)]
        assert [(one.packet_id, one.by, one.should_have) for one in events] == [
            (route.packet_id, "dana", "calendar/list_events"),
            (route.packet_id, "dana", None),
            (route.packet_id, "kim", None),
        ]
        trail = await router.store.audit.list_entries(limit=1000)
        assert sum(entry.kind == "feedback_given" for entry in trail) == 3
        assert await router.store.feedback.clear() == 2
        assert await router.learning.list_feedback(route.packet_id) == []


@pytest.mark.slow
@proves("L1")
async def test_secrets_are_masked_and_texts_bounded(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    async with open_office_router(tmp_path) as (router, sink):
        route = await router.route(f"find the mail with {secret} " + "and more " * 500)
        feedback = await router.feedback(
            route.packet_id, "good", by="dana", comment=f"{secret} " + "x" * 5000
        )
        kept = (await router.store.feedback.list_recent())[0]
    assert kept == feedback
    assert len(kept.request) <= 500
    assert len(kept.comment) <= 1000
    assert secret not in repr(kept)
    assert secret not in repr([event for event in sink.events if isinstance(event, FeedbackGiven)])


@proves("L1")
@pytest.mark.parametrize(("mode", "asked"), [("staged", POEM), ("simple", POEM), ("simple", ASKED)])
async def test_of_an_answer_without_a_tool_no_tool_is_judged(tmp_path: Path, mode: str, asked: str) -> None:
    spoken = "The sea, the sea."
    model = ScriptedModel(lambda request: spoken)
    async with open_office_router(tmp_path, model=model, flags={"learn_from_feedback": True}) as (router, _):
        before = order(await router.narrow(asked))
        for verdict in ("good", "bad"):
            route = await router.route(asked, mode=mode)
            assert route.answer == spoken
            feedback = await router.feedback(route.packet_id, verdict, by="dana")
            assert (feedback.tool, feedback.right, feedback.wrong) == (None, None, None)
            assert await router.learning.find_used_tools(route.packet_id) == ()
        assert order(await router.narrow(asked)) == before
        missing = await router.feedback(route.packet_id, "bad", by="dana", should_have="search_mail")
        assert (missing.right, missing.wrong) == ("mail/search_mail", None)


@pytest.mark.process
@proves("L1")
def test_what_is_kept_of_an_answer_without_a_tool_is_told(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    person.has("mail", MAIL)
    person.runs("ask", POEM)
    good = person.runs("feedback", "--last", "good")
    assert "kept: good\nNo tool was used, and that was right" in good.stdout
    bad = person.runs("feedback", "--last", "bad")
    assert "kept: bad\nNo tool was used, so the feedback applies to none" in bad.stdout


@proves("L1")
async def test_what_cannot_be_said_is_refused_with_what_to_do(tmp_path: Path) -> None:
    rules = [{"verdict": "deny", "tool": "notes/*"}]
    async with open_office_router(tmp_path, policy=rules) as (router, _):
        route = await router.route(ASKED)
        with pytest.raises(CallError, match="no request is recorded"):
            await router.feedback("pkt_nothing", "good", by="dana")
        with pytest.raises(ConfigError, match="neither good nor bad"):
            await router.feedback(route.packet_id, "great", by="dana")
        with pytest.raises(ConfigError, match="needs the name of the person"):
            await router.feedback(route.packet_id, "good", by=" ")
        with pytest.raises(ConfigError, match="good feedback cannot name"):
            await router.feedback(route.packet_id, "good", by="dana", should_have="list_events")
        with pytest.raises(ConfigError, match="is the tool that was used"):
            await router.feedback(route.packet_id, "bad", by="dana", should_have="search_mail")
        with pytest.raises(UnknownTool, match="could not have used 'list_event'") as unknown:
            await router.feedback(route.packet_id, "bad", by="dana", should_have="list_event")
        assert "calendar/list_events" in (unknown.value.hint or "")
        with pytest.raises(UnknownTool, match="could not have used"):  # a rule hides it
            await router.feedback(route.packet_id, "bad", by="dana", should_have="notes/find_notes")
        with pytest.raises(UnknownTool, match="neither used nor offered"):
            await router.feedback(route.packet_id, "bad", by="dana", tool="create_event")
        assert await router.store.feedback.list_recent() == []


@pytest.mark.slow
@proves("L1")
async def test_over_http_a_caller_gives_feedback_on_its_own_requests_only(tmp_path: Path) -> None:
    specs = (tool_server("mail", MAIL).spec(), tool_server("calendar", CALENDAR).spec())
    async with open_served_api(tmp_path, *specs) as house_:
        dana, kim = await house_.key("dana", "use"), await house_.key("kim", "use")
        boss = await house_.key("boss", "use", "watch", "manage")
        bound = await house_.key("bound", "use", scope=Scope(servers=("mail",)))
        mine = (await house_.router.route(ASKED, caller="dana")).packet_id
        theirs = (await house_.router.route(ASKED, caller="bound")).packet_id
        path = f"/api/packets/{mine}/feedback"
        word = {"verdict": "bad", "should_have": "calendar/list_events", "comment": "why mail?"}
        response = await house_.post(path, word, headers=dana)
        assert response.status_code == 200
        assert response.json()["should_have"] == "calendar/list_events"
        assert (await house_.post(path, {"verdict": "good"}, headers=kim)).status_code == 404
        assert (await house_.get(path, headers=kim)).status_code == 404
        assert (await house_.post(path, {"verdict": "good"}, headers=boss)).status_code == 200
        assert (await house_.post(path, {"verdict": "fine"}, headers=dana)).status_code == 422
        long = {"verdict": "good", "comment": "x" * 2000}
        assert (await house_.post(path, long, headers=dana)).status_code == 422
        # A key bounded to some tools cannot teach others.
        taught = await house_.post(f"/api/packets/{theirs}/feedback", word, headers=bound)
        assert (taught.status_code, taught.json()["title"]) == (422, "Invalid feedback")
        seen = (await house_.get(path, headers=dana)).json()
        assert [item["by"] for item in seen["items"]] == ["dana"]
        assert {item["by"] for item in (await house_.get(path, headers=boss)).json()["items"]} == {
            "dana",
            "boss",
        }
        # What was learned: others' words and names are not shown, and only one's own is forgotten.
        learned = (await house_.get("/api/learned", headers=kim)).json()
        assert learned["corrections"][0]["times"] >= 1
        assert all(not one["requests"] and not one["by"] for one in learned["corrections"])
        assert ASKED in (await house_.get("/api/learned", headers=boss)).text
        everything = {"what": ["corrections"]}
        assert (await house_.post("/api/learned/forget", everything, headers=dana)).status_code == 403
        not_hers = {"what": ["corrections"], "person": "boss"}
        assert (await house_.post("/api/learned/forget", not_hers, headers=dana)).status_code == 403
        own = {"what": ["corrections"], "person": "dana"}
        gone = await house_.post("/api/learned/forget", own, headers=dana)
        assert gone.json() == {"entries": 1}
        assert [one.by for one in await house_.router.store.feedback.list_recent()] == ["boss"]


@pytest.mark.process
@proves("L1", "L7")
def test_at_the_command(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    person.has("mail", MAIL)
    person.has("calendar", CALENDAR)
    assert person.runs("feedback", "--last", "good").returncode == 1
    assert person.runs("ask", ASKED, "--yes").returncode in (0, 1)
    output = person.runs("feedback", "--last", "bad", "--should-have-used", "list_events", "--comment", "no")
    assert "kept: bad of mail/search_mail; should have used calendar/list_events" in output.stdout
    assert "flags.learn_from_feedback is off" in output.stdout
    wrong = person.runs("feedback", "--last", "bad", "--should-have-used", "list_event")
    assert wrong.returncode == 3
    assert "Did you mean calendar/list_events" in wrong.stderr
    assert person.runs("feedback", "good").returncode == 2
    shown = person.runs("learned")
    assert "Off:                learn_from_feedback" in shown.stdout
    assert "calendar/list_events" in shown.stdout
    assert person.runs("learned", "corrections").returncode == 2
    assert "forgotten: corrections (1 recorded)" in person.runs("learned", "--reset", "corrections").stdout
    assert "Feedback received:  0" in person.runs("learned").stdout


@proves("L1", "L7")
async def test_forgetting_is_told_and_counts_at_once(tmp_path: Path) -> None:
    async with open_office_router(tmp_path, flags={"learn_from_feedback": True}) as (router, sink):
        route = await router.route(ASKED)
        await router.feedback(route.packet_id, "bad", by="dana", should_have="list_events")
        assert "corrected" in str(to_plain(await router.narrow(ASKED)))
        assert await router.learning.forget("corrections", by="kim") == 1
        assert "corrected" not in str(to_plain(await router.narrow(ASKED)))
        with pytest.raises(ConfigError, match="cannot be forgotten"):
            await router.learning.forget("everything", by="kim")
        with pytest.raises(ConfigError, match="for one person"):
            await router.learning.forget("outcomes", by="kim", person="kim")
    events = [event for event in sink.events if isinstance(event, LearningForgotten)]
    assert [(one.what, one.by, one.count) for one in events] == [("corrections", "kim", 1)]


@pytest.mark.process
@proves("L1")
def test_in_a_conversation(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    person.has("mail", MAIL)
    person.has("calendar", CALENDAR)
    lines = f"/good\n{ASKED}\n/bad calendar/list_events\n/bad nonsense\n/good\n"
    done = person.runs("chat", stdin=lines)
    assert "There is no request yet." in done.stderr
    assert "kept: bad of mail/search_mail; should have used calendar/list_events" in done.stdout
    assert "could not have used 'nonsense'" in done.stderr
    assert "kept: good of mail/search_mail" in done.stdout
