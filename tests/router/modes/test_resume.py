"""Resuming after a decision: once, whatever the decision, however often, and after any failure."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.errors import CallError
from fingerpost.events import ToolSelected, ToolsOffered
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import ExecutionStatus, Pending, RouteOutcome, Scope
from fingerpost.router import Route
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, tool_server
from tests.kit.call_recorder import DESTROYS, READS, matches_journal, tool
from tests.kit.routers import open_router, script_model, write_review, write_selection
from tests.requirements import proves

WISH = "Delete the file a.txt for good"
DELETE = write_selection("files__delete_file", {"path": "a.txt"})
TOOLS = (
    tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
    tool("read_file", "Read a text file.", "path", **READS),
)


def files(*tools: Any) -> ToolServer:
    return tool_server("files", tools or TOOLS)


@asynccontextmanager
async def open_files_router(
    folder: Path, server: ToolServer | None, model: ScriptedModel | None, **more: Any
) -> AsyncGenerator[Router]:
    """Open a router on this store; opening it again is a restart."""
    specs = [] if server is None else [server.spec()]
    async with open_router(folder, specs, model, **more) as router:
        yield router


def chooser() -> ScriptedModel:
    return script_model(
        selection=lambda request: DELETE,
        review=lambda request: write_review(),
        answer=lambda request: "It is deleted, says files/delete_file.",
    )


def waits(route: Route) -> Pending:
    assert route.outcome is RouteOutcome.WAITING, route.trace
    assert route.pending is not None
    return route.pending


@pytest.mark.slow
@proves("W2", "A5")
async def test_what_was_approved_runs_once_however_often_it_is_resumed(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
        assert await matches_journal(router, asked)
        done = await router.resume(asked, waits(asked).approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED
        assert await matches_journal(router, done)
        for _ in range(3):
            again = await router.resume(asked, waits(asked).approve(by="dana"))
            assert (again.outcome, again.answer) == (done.outcome, done.answer)
            assert await matches_journal(router, again)
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@pytest.mark.slow
@proves("W2")
async def test_what_was_broken_off_while_it_ran_is_not_asked_about_as_if_it_never_had(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def delete(_: str, __: dict[str, object]) -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    server = tool_server("files", TOOLS, call=delete)
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
        waiting = waits(asked)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(router.resume, asked, waiting.approve(by="dana"))
            await begun.wait()
            tasks.cancel_scope.cancel()
    async with open_files_router(tmp_path, server, chooser()) as router:
        again = await router.resume(waiting.pending_id)
    assert any("whether it took effect is unknown" in event.summary() for event in again.events)
    assert len(server.calls) == 1


@proves("W2")
async def test_a_rejection_is_told_with_its_reason_and_stays_one(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
        done = await router.resume(asked, waits(asked).reject(by="dana", reason="it is the only copy"))
        assert done.outcome is RouteOutcome.DECLINED
        assert "files/delete_file" in done.answer
        assert done.packet.tool_routing.execution_status is ExecutionStatus.USER_DENIED
        assert "it is the only copy" in done.packet.tool_routing.steps[0].text
        again = await router.resume(asked, waits(asked).approve(by="eve"))
        assert (again.outcome, again.answer) == (done.outcome, done.answer)
        assert await matches_journal(router, again)
    assert server.calls == []


@proves("W2")
async def test_edited_arguments_run_instead_and_wrong_ones_are_refused_before_anything_happens(
    tmp_path: Path,
) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
        with pytest.raises(CallError, match="path"):
            await router.resume(asked, waits(asked).approve(by="dana", arguments={"colour": "red"}))
        done = await router.resume(asked, waits(asked).approve(by="dana", arguments={"path": "b.txt"}))
        assert done.outcome is RouteOutcome.ANSWERED
        assert done.packet.tool_routing.steps[0].arguments == {"path": "b.txt"}
        assert await matches_journal(router, done)
    assert server.calls == [("delete_file", {"path": "b.txt"})]


@proves("W2", "F36")
async def test_an_expired_call_was_not_rejected_and_does_not_run(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser(), call={"pending_seconds": 1}) as router:
        asked = await router.route(WISH)
        await anyio.sleep(1.1)
        done = await router.resume(asked, waits(asked).approve(by="dana"))
        assert done.outcome is RouteOutcome.DECLINED
        assert "You said no" not in done.answer
        assert "in time" in done.answer
        assert await matches_journal(router, done)
    assert server.calls == []


@proves("W2", "C6")
async def test_a_yes_for_the_conversation_is_not_asked_for_again_there_but_elsewhere(tmp_path: Path) -> None:
    server = files()
    paths = iter(["a.txt", "a.txt", "a.txt"])
    model = script_model(
        selection=lambda request: write_selection("files__delete_file", {"path": next(paths)}),
        review=lambda request: write_review(),
        answer=lambda request: "It is deleted, says files/delete_file.",
    )
    async with open_files_router(tmp_path, server, model) as router:
        asked = await router.route(WISH, conversation="ses_one")
        word = waits(asked).approve(by="dana", for_conversation=True)
        assert (await router.resume(asked, word)).outcome is RouteOutcome.ANSWERED
        following = await router.route(WISH, conversation="ses_one")
        assert following.outcome is RouteOutcome.ANSWERED, following.trace
        assert await matches_journal(router, following)
        waits(await router.route(WISH, conversation="ses_two"))
    assert [arguments["path"] for _, arguments in server.calls] == ["a.txt", "a.txt"]


@proves("W2", "F32", "F33")
async def test_two_who_resume_at_once_get_one_execution_and_the_same_answer(tmp_path: Path, url: str) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser(), store={"url": url}) as router:
        asked = await router.route(WISH)
        routes: list[Route] = []

        async def go_on(who: str) -> None:
            routes.append(await router.resume(asked, waits(asked).approve(by=who)))

        async with anyio.create_task_group() as tasks:
            for who in ("dana", "eve", "adam"):
                tasks.start_soon(go_on, who)
        assert [route.outcome for route in routes] == [RouteOutcome.ANSWERED] * 3
        assert len({route.answer for route in routes}) == 1
        assert await matches_journal(router, routes[-1])
        assert await router.calls.approvals.list_waiting() == []
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@proves("F24", "W2")
async def test_a_tool_that_changed_after_the_yes_is_not_run(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
    changed = tool("delete_file", "Delete a file for good, and all its copies.", "path", **DESTROYS)
    other = files(changed, TOOLS[1])
    async with open_files_router(
        tmp_path, other, script_model(selection=[write_selection(None)], answer=["It has changed."])
    ) as router:
        done = await router.resume(waits(asked).pending_id, waits(asked).approve(by="dana"))
        assert done.outcome in (RouteOutcome.ANSWERED, RouteOutcome.FAILED)
        assert [step.success for step in done.packet.tool_routing.steps] == [False]
        assert await matches_journal(router, done)
    assert server.calls == other.calls == []


@proves("W2")
async def test_why_what_was_allowed_cannot_be_done_now_is_told_and_what_helps(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, None) as router:
        asked = await router.route('Use files/delete_file with path "a.txt"')
        await router.disabled_tools.set_tool_enabled(
            "files/delete_file", enabled=False, by="dana", reason="maintenance"
        )
        done = await router.resume(asked, waits(asked).approve(by="dana"))
    assert done.outcome is RouteOutcome.FAILED
    assert "switched off by dana: maintenance" in done.answer
    assert "Switch it on in the console" in done.answer
    assert "fingerpost doctor" not in done.answer
    assert server.calls == []


@pytest.mark.slow
@proves("F24", "W2")
async def test_a_yes_to_the_old_definition_is_no_yes_to_the_accepted_new_one(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser()) as router:
        asked = await router.route(WISH)
    changed = files(tool("delete_file", "Delete a file, and all its copies.", "path", **DESTROYS), TOOLS[1])
    async with open_files_router(tmp_path, changed, chooser()) as router:
        (held,) = router.catalog.quarantined
        await router.accept(held.card.key, by="dana", fingerprint=held.card.fingerprint)
        again = await router.resume(waits(asked).pending_id, waits(asked).approve(by="dana"))
        assert waits(again).pending_id != waits(asked).pending_id
        assert changed.calls == []
        done = await router.resume(again, waits(again).approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED
        assert await matches_journal(router, done)
    assert changed.calls == [("delete_file", {"path": "a.txt"})]


@proves("W2", "D11")
async def test_when_the_server_is_gone_the_person_is_told_what_to_do(tmp_path: Path) -> None:
    async with open_files_router(tmp_path, files(), chooser()) as router:
        asked = await router.route(WISH)
    async with open_files_router(tmp_path, None, script_model(answer=["It is gone."])) as router:
        done = await router.resume(waits(asked).pending_id, waits(asked).approve(by="dana"))
        assert done.outcome is RouteOutcome.FAILED
        assert "delete file (files)" in done.answer
        assert "What you can do:" in done.answer
        assert await matches_journal(router, done)


@pytest.mark.slow
@proves("W2", "W4")
async def test_another_process_without_any_model_goes_on_and_says_so(tmp_path: Path, url: str) -> None:
    server = files()
    async with open_files_router(tmp_path, server, chooser(), store={"url": url}) as router:
        asked = await router.route(WISH)
    async with open_files_router(tmp_path, server, None, store={"url": url}) as router:
        done = await router.resume(waits(asked).pending_id, waits(asked).approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED
        assert done.answered_by == "no model"
        assert '"path":"a.txt"' in done.answer.replace(" ", "")
        assert await matches_journal(router, done)
    assert len(server.calls) == 1


BOTH = "Delete the files a.txt and b.txt for good, and read c.txt"


def two_deletions(*, answer: str = "Both are gone, by files/delete_file.") -> ScriptedModel:
    def play(request: ModelRequest) -> str | ModelReply:
        if not request.tools or any(message.role == "tool" for message in request.messages):
            return answer
        a, b = ({"path": "a.txt"}, {"path": "b.txt"})
        return calls(
            ("files__delete_file", a), ("files__read_file", {"path": "c.txt"}), ("files__delete_file", b)
        )

    return ScriptedModel(play)


async def both(router: Router) -> tuple[Route, Pending, Pending]:
    asked = await router.route(BOTH, mode="simple")
    first = waits(asked)
    waiting = await router.calls.approvals.list_waiting()
    (second,) = (one for one in waiting if one.pending_id != first.pending_id)
    return asked, first, second


@proves("W2", "A17")
async def test_of_two_calls_that_wait_each_is_decided_and_each_runs_once(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, two_deletions()) as router:
        asked, first, second = await both(router)
        assert await matches_journal(router, asked)
        halfway = await router.resume(asked, first.approve(by="dana"))
        assert waits(halfway).pending_id == second.pending_id
        assert await matches_journal(router, halfway)
        done = await router.resume(halfway, second.approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert done.answer == "Both are gone, by files/delete_file."
        assert await matches_journal(router, done)
        again = await router.resume(first.pending_id)
        assert again.answer == done.answer
    assert sorted(arguments["path"] for _, arguments in server.calls) == ["a.txt", "b.txt", "c.txt"]


@proves("W2")
@pytest.mark.parametrize("yes_to_first", [True, False])
async def test_of_two_one_is_allowed_and_the_other_is_not(tmp_path: Path, yes_to_first: bool) -> None:
    server = files()
    async with open_files_router(
        tmp_path, server, two_deletions(answer="One is gone, by files/delete_file.")
    ) as router:
        asked, first, second = await both(router)
        halfway = await router.resume(
            asked, first.approve(by="dana") if yes_to_first else first.reject(by="dana")
        )
        assert waits(halfway).pending_id == second.pending_id
        done = await router.resume(
            halfway, second.reject(by="dana") if yes_to_first else second.approve(by="dana")
        )
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert await matches_journal(router, done)
        deleted = [arguments["path"] for name, arguments in server.calls if name == "delete_file"]
        assert deleted == [(first if yes_to_first else second).arguments["path"]]


@proves("W2")
async def test_what_was_decided_elsewhere_is_done_too_before_the_answer(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, two_deletions()) as router:
        asked, first, second = await both(router)
        for pending in (first, second):
            word = pending.approve(by="dana")
            await router.calls.decide(pending.pending_id, word.decision, by=word.by)
        done = await router.resume(asked)
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert len(done.packet.tool_routing.steps) == 3
        assert await matches_journal(router, done)
    assert sorted(arguments["path"] for _, arguments in server.calls) == ["a.txt", "b.txt", "c.txt"]


@proves("W2")
async def test_two_calls_of_one_turn_resumed_at_once_each_run_once(tmp_path: Path) -> None:
    server = files()
    async with open_files_router(tmp_path, server, two_deletions()) as router:
        _, first, second = await both(router)
        routes: list[Route] = []

        async def go_on(pending: Pending) -> None:
            routes.append(await router.resume(pending, pending.approve(by="dana")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_on, first)
            tasks.start_soon(go_on, second)
        assert {route.outcome for route in routes} <= {RouteOutcome.WAITING, RouteOutcome.ANSWERED}
        last = await router.resume(first)
        assert last.outcome is RouteOutcome.ANSWERED
        assert len(last.packet.tool_routing.steps) == 3
        assert await matches_journal(router, last)
    assert sorted(arguments["path"] for _, arguments in server.calls) == ["a.txt", "b.txt", "c.txt"]


@proves("W2", "F35")
async def test_interrupted_after_the_call_it_goes_on_to_the_answer_without_calling_again(
    tmp_path: Path,
) -> None:
    server = files()
    hanging = script_model(
        selection=lambda request: DELETE, review=lambda request: write_review(), answer=lambda request: HANG
    )
    async with open_files_router(tmp_path, server, hanging) as router:
        asked = await router.route(WISH)
        with anyio.move_on_after(1.0) as scope:
            await router.resume(asked, waits(asked).approve(by="dana"))
        assert scope.cancelled_caught
        assert len(server.calls) == 1
    async with open_files_router(tmp_path, server, chooser()) as router:
        done = await router.resume(waits(asked).pending_id)
        assert done.outcome is RouteOutcome.ANSWERED, done.answer
        assert done.answer == "It is deleted, says files/delete_file."
        assert await matches_journal(router, done)
    assert len(server.calls) == 1


@proves("W2")
async def test_resuming_what_is_done_shows_what_waits_now(tmp_path: Path) -> None:
    """An agent went on to another call that waits: its first permission leads there, and ends nothing."""
    server = files()

    def play(request: ModelRequest) -> str | ModelReply:
        done = sum(message.role == "tool" for message in request.messages)
        if done < 2:
            return calls(("files__delete_file", {"path": f"{done}.txt"}))
        return "Both are gone, by files/delete_file."

    async with open_files_router(tmp_path, server, ScriptedModel(play)) as router:
        asked = await router.route(BOTH, mode="simple")
        following = await router.resume(asked, waits(asked).approve(by="dana"))
        assert waits(following).pending_id != waits(asked).pending_id
        again = await router.resume(asked)
        assert waits(again).pending_id == waits(following).pending_id
        done = await router.resume(following, waits(following).approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert await matches_journal(router, done)
        assert sum(isinstance(event, ToolSelected) for event in done.events) == 0
    assert [arguments["path"] for _, arguments in server.calls] == ["0.txt", "1.txt"]


@proves("W2")
@pytest.mark.parametrize("model", [lambda: None, chooser], ids=["keyless", "staged"])
async def test_an_unknown_packet_is_a_clear_error(
    tmp_path: Path, model: Callable[[], ScriptedModel | None]
) -> None:
    async with open_files_router(tmp_path, files(), model()) as router:
        with pytest.raises(CallError, match="apr_nowhere"):
            await router.resume("apr_nowhere")
        outcome = await router.call("files/delete_file", {"path": "a.txt"})
        assert outcome.pending_id is not None
        with pytest.raises(CallError, match="belongs to a single call"):
            await router.resume(outcome.pending_id)
        greeting = await router.route("Hello!")
        with pytest.raises(CallError, match="does not wait for an approval"):
            await router.resume(greeting)


@pytest.mark.slow
@proves("W2", "F33")
async def test_two_processes_that_resume_at_once_give_one_answer_and_leave_no_question(
    tmp_path: Path,
    url: str,
) -> None:
    server, store = files(), {"url": url}
    async with (
        open_files_router(tmp_path, server, chooser(), store=store) as one,
        open_files_router(tmp_path, server, chooser(), store=store) as other,
    ):
        asked = await one.route(WISH)
        routes: list[Route] = []

        async def go_on(router: Router) -> None:
            routes.append(await router.resume(waits(asked), waits(asked).approve(by="dana")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_on, one)
            tasks.start_soon(go_on, other)
        assert [route.outcome for route in routes] == [RouteOutcome.ANSWERED] * 2
        assert len({route.answer for route in routes}) == 1
        assert await one.calls.approvals.list_waiting() == []
        assert await matches_journal(other, routes[-1])
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@pytest.mark.slow
@proves("W2", "C6")
async def test_two_requests_that_wait_for_one_call_are_both_answered_and_it_runs_once(
    tmp_path: Path, url: str
) -> None:
    server, model, store = files(), chooser(), {"url": url}
    async with (
        open_files_router(tmp_path, server, model, store=store) as one,
        open_files_router(tmp_path, server, model, store=store) as other,
    ):
        first = await one.route(WISH, conversation="ses_one")
        second = await other.route(WISH, conversation="ses_one")
        assert waits(first).pending_id == waits(second).pending_id
        done = [await one.resume(first, waits(first).approve(by="dana")), await other.resume(second)]
        assert [route.packet_id for route in done] == [first.packet_id, second.packet_id]
        assert [route.outcome for route in done] == [RouteOutcome.ANSWERED] * 2, done[1].trace
        assert "made once for 2 requests" in done[1].packet.tool_routing.steps[0].text
        assert await one.calls.approvals.list_waiting() == []
        assert await matches_journal(one, done[0]) and await matches_journal(other, done[1])
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@proves("W2", "C6")
async def test_two_requests_that_wait_for_one_call_both_hear_the_rejection(tmp_path: Path) -> None:
    server, model = files(), stubborn()
    async with open_files_router(tmp_path, server, model) as router:
        asked = [await router.route(WISH, mode="simple", conversation="ses_one") for _ in range(2)]
        assert len({waits(route).pending_id for route in asked}) == 1
        word = waits(asked[0]).reject(by="dana", reason="it is the only copy")
        done = [await router.resume(asked[0], word), await router.resume(asked[1])]
        assert {route.answer for route in done} == {"I left a.txt alone, because it is the only copy."}
        assert [route.packet_id for route in done] == [route.packet_id for route in asked]
    assert server.calls == []


@proves("I3")
async def test_who_goes_on_stays_within_the_bounds_of_who_asked(tmp_path: Path) -> None:
    plan = write_selection("files__delete_file", {"path": "a.txt"}, remaining="read the text file b.txt")
    model = script_model(
        selection=[plan, write_selection(None)],
        review=[write_review()],
        answer=["Deleted, by files/delete_file."],
    )
    only = (Scope(tools=("files/delete_file",)),)
    async with open_files_router(tmp_path, files(), model) as router:
        route = await router.route(WISH, mode="staged", caller="ada", scopes=only)
    async with open_files_router(tmp_path, files(), model) as router:
        over = await router.resume(waits(route).pending_id, waits(route).approve(by="dana"))
    assert over.outcome is RouteOutcome.ANSWERED, over.trace
    offered = [event.tools for event in over.events if isinstance(event, ToolsOffered)]
    assert offered == [("files/delete_file",)]


def join_messages(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


def stubborn(*, retries: tuple[tuple[str, dict[str, Any]], ...] = ()) -> ScriptedModel:
    """Deletes, and after a rejection tries each of `retries` before it answers; in every mode."""
    left = list(retries)

    def play(request: ModelRequest) -> str | ModelReply:
        has_heard = "only copy" in join_messages(request)
        shape = None if request.schema is None else request.schema.name
        if shape == "selection":
            return DELETE
        if shape == "review":
            return write_review()
        if has_heard and (not left or not (request.tools or shape)):
            answer = "I left a.txt alone, because it is the only copy."
            return json.dumps({"thought": "", "action": None, "answer": answer}) if shape else answer
        name, arguments = left.pop(0) if has_heard else ("files__delete_file", {"path": "a.txt"})
        if shape is not None:
            action = {"tool": name, "arguments": arguments}
            return json.dumps({"thought": "", "action": action, "answer": None})
        return calls((name, arguments))

    return ScriptedModel(play)


@proves("C6", "C8")
@pytest.mark.parametrize("mode", ["staged", "single", "simple", "react"])
async def test_after_a_rejection_the_model_hears_the_reason_and_answers(tmp_path: Path, mode: str) -> None:
    server, model = files(), stubborn()
    async with open_files_router(tmp_path, server, model) as router:
        asked = await router.route(WISH, mode=mode)
        before = len(model.asked)
        done = await router.resume(asked, waits(asked).reject(by="dana", reason="it is the only copy"))
        assert done.answer == "I left a.txt alone, because it is the only copy."
        assert (done.outcome, done.answered_by) == (RouteOutcome.DECLINED, "scripted")
        prompt = join_messages(model.asked[before])
        assert "dana rejected this call" in prompt and '"it is the only copy"' in prompt
        assert await matches_journal(router, done)
        again = await router.resume(asked)
        assert (again.outcome, again.answer) == (done.outcome, done.answer)
    assert server.calls == []


@proves("C6")
@pytest.mark.parametrize("mode", ["simple", "react"])
async def test_what_a_person_rejected_is_not_done_another_way_in_the_same_request(
    tmp_path: Path, mode: str
) -> None:
    """Reading goes on; a repetition, and any other call that changes something, is refused unasked."""
    shred = tool("shred_file", "Shred a file for good.", "path", **DESTROYS)
    server = files(*TOOLS, shred)
    model = stubborn(
        retries=(("files__read_file", {"path": "b.txt"}), ("files__shred_file", {"path": "./a.txt"}))
    )
    allow = [{"tool": "files/shred_file", "verdict": "allow"}]
    async with open_files_router(tmp_path, server, model, policy=allow) as router:
        asked = await router.route(
            "Read the text file b.txt, delete the file a.txt, shred the file a.txt", mode=mode
        )
        done = await router.resume(asked, waits(asked).reject(by="dana", reason="it is the only copy"))
        assert done.answer.startswith("I left a.txt alone, because it is the only copy.")
        refused = done.packet.tool_routing.steps[-1]
        assert (refused.tool, refused.error) == ("files/shred_file", "cancelled")
        assert "a person did not allow files/delete_file" in refused.text
        assert await router.calls.approvals.list_waiting() == []
        assert await matches_journal(router, done)
    assert server.calls == [("read_file", {"path": "b.txt"})]
