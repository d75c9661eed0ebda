"""The five journeys, end to end: a request in, every event out, over real servers."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from fingerpost.records import ExecutionStatus, PacketState, RouteOutcome
from fingerpost.testing import playbook
from tests.kit.routers import (
    create_clock_server,
    create_file_server,
    open_router,
    script_model,
    write_review,
    write_selection,
)
from tests.requirements import proves

pytestmark = pytest.mark.process

QUIET = ("request_narrowed", "smart_routing_start", "smart_routing_end")


def script(text: str) -> str:
    return dedent(text).strip()


@proves("A2", "B6", "W1")
async def test_a_greeting_is_answered_directly(tmp_path: Path) -> None:
    model = script_model(answer=["Hello! How can I help?"])
    async with open_router(tmp_path, [create_clock_server()], model) as router:
        route = await router.route("Hello there!")
    assert route.outcome is RouteOutcome.ANSWERED
    assert route.answer == "Hello! How can I help?"
    assert playbook(route, without=QUIET) == script(
        """
        packet_received: Hello there!
        route_began: staged with scripted
        task_scheduled: processing, next IntentDetection
        intent_detected: answer: needs no tool
        tools_offered: no tool
        task_scheduled: processing, next GenerateDraft
        model_answered: answer by scripted in … ms, … tokens
        answer_given: 22 characters by scripted
        task_scheduled: answered, next nothing
        route_ended: answered in … ms
        """
    )


@proves("A3", "A4", "A6", "A7", "A10", "A14", "W1")
async def test_a_question_is_answered_from_a_tool_and_names_it(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(request: object) -> str:
        seen.append(str(request))
        return "It is just after nine in the morning in Tokyo."

    model = script_model(
        selection=[write_selection("time__get_current_time", {"timezone": "Asia/Tokyo"})],
        review=[write_review(0.92)],
        answer=answer,
    )
    async with open_router(tmp_path, [create_clock_server()], model) as router:
        route = await router.route("What time is it in Tokyo right now?")
    assert route.outcome is RouteOutcome.ANSWERED
    assert route.answer.endswith("\n\nSource: time/get_current_time")
    assert route.sources == ("time/get_current_time",)
    assert "Asia/Tokyo" in seen[0]
    assert "datetime" in seen[0]  # the tool's own words reached the answering model
    packet = route.packet
    assert {field.key for field in packet.content.data_fields} == {"tool_result", "answer"}
    assert "latest_tool_result" in {note.key for note in packet.reasoning.sketchpad}
    assert packet.tool_routing.reinjection_count == 1
    assert packet.tool_routing.execution_status is ExecutionStatus.EXECUTED
    assert packet.status.state is PacketState.ANSWERED
    assert playbook(route, without=QUIET) == script(
        """
        packet_received: What time is it in Tokyo right now?
        route_began: staged with scripted
        task_scheduled: processing, next IntentDetection
        intent_detected: tool_routing: needs a tool
        tools_offered: time/convert_time, time/get_current_time
        task_scheduled: processing, next ToolRouting
        model_answered: selection by scripted in … ms, … tokens
        tool_selected: chose time/get_current_time: it fits
        execution_status_changed: pending
        execution_status_changed: awaiting_confidence
        task_scheduled: processing, next Validate
        model_answered: review by scripted in … ms, … tokens
        selection_reviewed: agrees at 0.92: looked at it
        confidence_judged: go at 0.92: the review agrees, at 0.92; 0.70 is enough
        task_scheduled: processing, next Decision
        execution_status_changed: ready to call: the review agrees, at 0.92; 0.70 is enough
        task_scheduled: processing, next ToolExecution
        task_scheduled: processing, next Research
        call_received: time/get_current_time was asked for
        call_prepared: time/get_current_time, 0 repairs
        call_ruled: time/get_current_time: allow (it only reads; default for read)
        attempt_started: time/get_current_time, attempt 1
        attempt_finished: time/get_current_time, attempt 1: succeeded in … ms
        result_digested: … tokens
        call_finished: time/get_current_time: succeeded
        execution_status_changed: executed
        tool_result_injected: succeeded in … ms
        packet_reinjected
        task_scheduled: processing, next GenerateDraft
        model_answered: answer by scripted in … ms, … tokens
        answer_given: 77 characters by scripted, from time/get_current_time
        task_scheduled: answered, next nothing
        route_ended: answered in … ms
        """
    )


@proves("A5", "W1")
async def test_with_low_confidence_the_shortlist_widens_once_and_then_the_person_is_asked(
    tmp_path: Path,
) -> None:
    choice = write_selection("time__get_current_time", {"timezone": "Asia/Tokyo"}, confidence=0.6)
    model = script_model(selection=[choice, choice], review=[write_review(0.55), write_review(0.55)])
    async with open_router(tmp_path, [create_clock_server(), create_file_server(tmp_path)], model) as router:
        route = await router.route("What time is it in Tokyo right now?")
        assert route.outcome is RouteOutcome.WAITING
        assert route.pending is not None
        assert route.pending.tool == "time/get_current_time"
        assert route.pending.reason == "the review agrees, at 0.55; below 0.70 a person decides"
        assert not [event for event in route.events if event.kind == "attempt_started"]
        events = playbook(route, without=(*QUIET, "task_scheduled", "model_answered"))
    assert events.startswith(
        script(
            """
            packet_received: What time is it in Tokyo right now?
            route_began: staged with scripted
            intent_detected: tool_routing: needs a tool
            """
        )
    )
    assert events.endswith(
        script(
            """
            tool_selected: chose time/get_current_time: it fits
            execution_status_changed: pending
            execution_status_changed: awaiting_confidence
            selection_reviewed: agrees at 0.55: looked at it
            confidence_judged: ask at 0.55: the review agrees, at 0.55; below 0.70 a person decides
            call_received: time/get_current_time was asked for
            call_prepared: time/get_current_time, 0 repairs
            call_ruled: time/get_current_time: ask (the review agrees, at 0.55; below 0.70 a person decides; confidence)
            approval_requested: time/get_current_time needs approval (apr_…): the review agrees, at 0.55; below 0.70 a person decides
            call_finished: time/get_current_time: authorization_required
            question_asked: time/get_current_time needs your approval (apr_…): the review agrees, at 0.55; below 0.70 a person decides
            route_ended: waiting in … ms
            """  # noqa: E501
        )
    )
    assert events.count("shortlist_widened") == 1


@proves("A5", "C6", "W1", "W2")
async def test_a_write_waits_for_a_person_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    target = folder / "list.md"
    choice = write_selection("files__write_file", {"path": str(target), "content": "milk\n"})
    before = script_model(selection=[choice], review=[write_review()])
    async with open_router(tmp_path, [create_file_server(folder)], before) as router:
        asked = await router.route(f"Write the word milk into {target}", caller="dana")
        assert asked.outcome is RouteOutcome.WAITING
        assert not target.exists()
    # Another process, another model: only the journal connects the two.
    after = script_model(answer=["Done: files/write_file wrote milk into list.md."])
    async with open_router(tmp_path, [create_file_server(folder)], after) as router:
        assert asked.pending is not None
        route = await router.resume(asked.pending.pending_id, asked.pending.approve(by="dana"))
        assert route.outcome is RouteOutcome.ANSWERED, route.detail
        assert target.read_text(encoding="utf-8") == "milk\n"
        assert route.packet_id == asked.packet_id
        assert route.packet.tool_routing.execution_status is ExecutionStatus.EXECUTED
        assert playbook(route, without=QUIET) == script(
            """
            approval_decided: apr_… approved by dana
            route_resumed: goes on after apr_… was decided
            task_scheduled: processing, next ToolExecution
            task_scheduled: processing, next TriggerAction
            call_received: files/write_file was asked for
            call_prepared: files/write_file, 0 repairs
            call_ruled: files/write_file: ask (no rule allows overwriting or deleting; default for destroy)
            attempt_started: files/write_file, attempt 1
            attempt_finished: files/write_file, attempt 1: succeeded in … ms
            result_digested: … tokens
            call_finished: files/write_file: succeeded
            execution_status_changed: executed
            tool_result_injected: succeeded in … ms
            packet_reinjected
            task_scheduled: processing, next GenerateDraft
            model_answered: answer by scripted in … ms, … tokens
            answer_given: 47 characters by scripted, from files/write_file
            task_scheduled: answered, next nothing
            route_ended: answered in … ms
            """
        )
        again = await router.resume(asked.pending.pending_id)
        assert again.answer == route.answer  # what was done is not done twice
        target.unlink()
        await router.resume(asked.pending.pending_id)
        assert not target.exists()


@proves("D11", "C8", "A11", "W1")
async def test_when_everything_failed_the_person_gets_guidance_and_no_raw_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "desk" / "gone.md")
    (tmp_path / "desk").mkdir()
    choice = write_selection("files__read_text_file", {"path": missing})
    other = write_selection("files__read_file", {"path": missing})
    model = script_model(
        selection=[choice, other, write_selection(None)], review=[write_review(), write_review()]
    )
    async with open_router(tmp_path, [create_file_server(tmp_path / "desk")], model) as router:
        route = await router.route(f"Read the file {missing} and tell me what it says")
    assert route.outcome is RouteOutcome.FAILED
    assert "ENOENT" not in route.answer
    assert "What you can do:" in route.answer
    assert "ENOENT" in route.detail  # for display
    assert [step.success for step in route.packet.tool_routing.steps] == [False, False]
    statuses = [event.summary() for event in route.events if event.kind == "execution_status_changed"]
    assert statuses.count("failed: execution_failed") == 2
