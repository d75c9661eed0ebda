"""A call that needs approval, and the person behind the client: every way it can go."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost.events import ApprovalDecided
from fingerpost.records import Decision, ErrorKind, Outcome, Principal
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.surfaces.http.access import Endpoint
from tests.kit.elicitation import (
    DANA,
    EVE,
    NOTE,
    ElicitationClient,
    ElicitationGateway,
    accept,
    create_client,
    open_elicitation_gateway,
    request,
)
from tests.requirements import proves

pytestmark = pytest.mark.anyio


def form_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.result is not None
    assert outcome.result["resultType"] == "input_required"
    asked: Any = outcome.result["inputRequests"]
    assert list(asked) == ["fingerpost-approval"]
    return asked["fingerpost-approval"]


def lose_table(database: Path, name: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"DROP TABLE {name}")


async def expect_refusal(work: Any, words: str) -> None:
    with pytest.raises(JsonRpcError, match=words) as caught:
        await work
    assert caught.value.code == -32602


@pytest.mark.slow
@proves("G6")
async def test_a_client_with_a_session_is_asked_and_the_call_runs(tmp_path: Path) -> None:
    person = create_client(accept())
    async with open_elicitation_gateway(tmp_path) as gateway:
        outcome = await gateway.call(request(modern=False), person)
        assert outcome.success
        assert gateway.notes.calls == [("delete_note", dict(NOTE))]
        [(method, params)] = person.questions
        assert method == "elicitation/create"
        assert params["mode"] == "form"
        assert "notes/delete_note" in params["message"]
        assert '    path = "/tmp/a.txt"' in params["message"]
        assert "destroy" in params["message"]
        [decided] = gateway.events(ApprovalDecided)
        assert decided.decided_by == "dana via inspector 1.0"


@proves("G6")
@pytest.mark.parametrize("answer", [accept("reject", reason="not today"), {"action": "decline"}])
async def test_a_no_is_a_no(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        outcome = await gateway.call(request(modern=False), create_client(answer))
        assert outcome.error is ErrorKind.CANCELLED
        assert "dana via inspector 1.0" in outcome.content
        assert ("not today" in outcome.content) == ("content" in answer)
        assert gateway.notes.calls == []
        assert await gateway.waiting() == []


@proves("G6")
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {"decision": "yes, of course"}},
        {"action": "accept", "content": {"decision": True}},
        {"action": "approve"},
        JsonRpcError(-32601, "no"),
        None,  # no answer in time
    ],
)
async def test_without_a_decision_it_keeps_waiting_and_says_where(tmp_path: Path, answer: Any) -> None:
    async with open_elicitation_gateway(tmp_path, approval_seconds=0.2) as gateway:
        outcome = await gateway.call(request(modern=False), create_client(answer))
        [pending] = await gateway.waiting()
        assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert f"fingerpost approvals approve {pending.pending_id}" in outcome.content
        assert gateway.notes.calls == []


@proves("G6")
async def test_for_the_conversation_means_not_asked_again_there(tmp_path: Path) -> None:
    person = create_client(accept("approve for this conversation"))
    async with open_elicitation_gateway(tmp_path) as gateway:
        assert (await gateway.call(request(modern=False), person)).success
        assert (await gateway.call(request(modern=False), person)).success
        assert len(person.questions) == 1
        assert len(gateway.notes.calls) == 2


@proves("G6")
async def test_what_is_decided_elsewhere_while_the_person_thinks_counts(tmp_path: Path) -> None:
    """Edited and approved in the terminal: the edited call runs, once, when the person closes the form."""
    asked, decided = anyio.Event(), anyio.Event()

    class Thinking(ElicitationClient):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            asked.set()
            await decided.wait()
            return {"action": "cancel"}

    async with open_elicitation_gateway(tmp_path) as gateway, anyio.create_task_group() as tasks:

        async def terminal() -> None:
            await asked.wait()
            [pending] = await gateway.waiting()
            other = {"path": "other"}
            await gateway.router.calls.decide(
                pending.pending_id, Decision.APPROVED, by="terminal", edited_arguments=other
            )
            decided.set()

        tasks.start_soon(terminal)
        outcome = await gateway.call(request(modern=False), Thinking())
        assert outcome.success
        assert gateway.notes.calls == [("delete_note", {"path": "other"})]


@proves("G6")
@pytest.mark.parametrize("word", [Decision.APPROVED, Decision.REJECTED])
async def test_who_decides_elsewhere_ends_the_question(tmp_path: Path, word: Decision) -> None:
    """The person at the client never answers, and the call does not wait until the time is over."""
    asked = anyio.Event()

    class Away(ElicitationClient):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            asked.set()
            return await super().ask(method, params)

    async with (
        open_elicitation_gateway(tmp_path, approval_seconds=3600) as gateway,
        anyio.create_task_group() as tasks,
    ):

        async def console() -> None:
            await asked.wait()
            [pending] = await gateway.waiting()
            await gateway.router.calls.decide(pending.pending_id, word, by="console", reason="I know why")

        tasks.start_soon(console)
        outcome = await gateway.call(request(modern=False), Away())
        assert outcome.success == (word is Decision.APPROVED)
        assert ("console: I know why" in outcome.content) == (word is Decision.REJECTED)


@proves("G6")
async def test_a_client_that_cannot_be_asked_hears_a_no_once_and_its_reason(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        again = partial(gateway.call, request(modern=False, capabilities={}))
        assert "approvals approve" in (await again()).content
        [pending] = await gateway.waiting()
        await gateway.router.calls.decide(
            pending.pending_id, Decision.REJECTED, by="dana", reason="use staging"
        )
        refused = await again()
        assert refused.error is ErrorKind.CANCELLED
        assert "dana: use staging" in refused.content
        assert await gateway.waiting() == []
        insisted = await again()
        assert insisted.error is ErrorKind.AUTHORIZATION_REQUIRED
        [anew] = await gateway.waiting()
        assert anew.pending_id != pending.pending_id
        assert gateway.notes.calls == []


@proves("G6")
async def test_a_rejection_is_reported_to_no_other_client(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        await gateway.call(request(modern=False, capabilities={}))
        [pending] = await gateway.waiting()
        await gateway.router.calls.decide(
            pending.pending_id, Decision.REJECTED, by="dana", reason="use staging"
        )
        namesake = Principal(name=DANA.name, kind="token")
        for other, modern in ((EVE, False), (EVE, True), (namesake, False), (namesake, True)):
            outcome = await gateway.call(request(modern=modern, capabilities={}, principal=other))
            assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
            assert "staging" not in outcome.content


@proves("G6")
async def test_an_edited_call_runs_once_when_a_client_that_cannot_be_asked_calls_again(
    tmp_path: Path,
) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        again = partial(gateway.call, request(modern=False, capabilities={}))
        await again()
        [pending] = await gateway.waiting()
        await gateway.router.calls.decide(
            pending.pending_id, Decision.APPROVED, by="dana", edited_arguments={"path": "other"}
        )
        assert (await again()).success
        assert (await again()).error is ErrorKind.AUTHORIZATION_REQUIRED
        assert gateway.notes.calls == [("delete_note", {"path": "other"})]


@proves("G6")
async def test_who_was_told_at_once_is_not_told_again(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        asking = request(modern=False)
        assert (await gateway.call(asking, create_client(accept("reject")))).error is ErrorKind.CANCELLED
        assert (await gateway.call(asking, create_client(accept()))).success


@proves("G6", "G7")
async def test_a_client_without_a_session_takes_the_question_away(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        form = form_of(asked)
        assert form["method"] == "elicitation/create"
        assert form["params"]["requestedSchema"]["required"] == ["decision"]
        assert gateway.notes.calls == []
        outcome = await gateway.retry(first, asked, accept())
        assert outcome.success
        assert gateway.notes.calls == [("delete_note", dict(NOTE))]
        await expect_refusal(gateway.retry(first, asked, accept()), "used already")
        assert len(gateway.notes.calls) == 1
        assert len(gateway.refusals) == 1


@pytest.mark.slow
@proves("G6", "G7")
async def test_the_answer_counts_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    first = request()
    async with open_elicitation_gateway(tmp_path) as gateway:
        asked = await gateway.call(first)
    async with open_elicitation_gateway(tmp_path) as gateway:
        assert (await gateway.retry(first, asked, accept())).success
        assert len(gateway.notes.calls) == 1
    async with open_elicitation_gateway(tmp_path) as gateway:  # and so does its being used
        await expect_refusal(gateway.retry(first, asked, accept()), "used already")
        assert gateway.notes.calls == []


@proves("G6", "F32")
async def test_a_rejected_call_cannot_be_approved_with_the_same_state(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        said_no = await gateway.retry(first, asked, accept("reject"))
        assert said_no.error is ErrorKind.CANCELLED
        await expect_refusal(gateway.retry(first, asked, accept()), "used already")
        assert gateway.notes.calls == []


@proves("G6")
async def test_a_cancelled_question_leaves_the_call_in_the_inbox(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        outcome = await gateway.retry(first, await gateway.call(first), {"action": "cancel"})
        assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert "fingerpost approvals approve apr_" in outcome.content
        assert len(await gateway.waiting()) == 1


@proves("G7")
@pytest.mark.parametrize("answers", [{}, {"fingerpost-approval": "approve"}, {"other": accept()}, "x"])
async def test_a_state_without_an_answer_is_asked_about_again(tmp_path: Path, answers: Any) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        again = await gateway.retry(first, asked, None, params={"inputResponses": answers})
        form_of(again)
        assert len(await gateway.waiting()) == 1
        assert (await gateway.retry(first, again, accept())).success
        assert len(gateway.notes.calls) == 1


@proves("G7", "F33")
async def test_two_racing_answers_run_the_call_once(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        results: list[object] = []

        async def answer() -> None:
            try:
                results.append((await gateway.retry(first, asked, accept())).success)
            except JsonRpcError as late:
                results.append(late.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(answer)
        assert sorted(results, key=str) == [-32602] * 7 + [True]
        assert len(gateway.notes.calls) == 1
        assert gateway.attempts == 1


@proves("G7", "F33")
async def test_two_gateways_on_one_store_run_the_call_once(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as one, open_elicitation_gateway(tmp_path) as other:
        first = request()
        asked = await one.call(first)
        results: list[object] = []

        async def answer(gateway: ElicitationGateway) -> None:
            try:
                results.append((await gateway.retry(first, asked, accept())).success)
            except JsonRpcError as late:
                results.append(late.code)

        async with anyio.create_task_group() as tasks:
            for gateway in (one, other, one, other):
                tasks.start_soon(answer, gateway)
        assert sorted(results, key=str) == [-32602] * 3 + [True]
        assert len(one.notes.calls) + len(other.notes.calls) == 1


@proves("G7", "F34")
async def test_a_state_is_good_for_its_owner_its_endpoint_and_its_call_alone(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        other_call = {"arguments": {"path": "/etc/passwd"}}
        await expect_refusal(gateway.retry(first, asked, accept(), principal=EVE), "another caller")
        elsewhere = Endpoint(path="/mcp/all", mode="all")
        await expect_refusal(gateway.retry(first, asked, accept(), endpoint=elsewhere), "another endpoint")
        await expect_refusal(gateway.retry(first, asked, accept(), params=other_call), "another call")
        await expect_refusal(
            gateway.retry(first, asked, accept(), params={"name": "notes__read_note"}), "another call"
        )
        await expect_refusal(gateway.retry(first, asked, accept(), method="prompts/get"), "another call")
        assert gateway.notes.calls == []
        assert len(gateway.refusals) == 5
        await gateway.router.store.journal.flush()
        trail = await gateway.router.store.journal.list_events(kinds=("access_refused",))
        assert len(trail) == 5
        assert (await gateway.retry(first, asked, accept())).success  # the owner's still is


@proves("G7")
@pytest.mark.parametrize("state", ["fp1.", "fp1.AAAA", "fp1." + "A" * 200, "fp1.é", 7, ["fp1."]])
async def test_a_made_up_state_runs_nothing(tmp_path: Path, state: Any) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        answers = {"fingerpost-approval": accept()}
        await expect_refusal(gateway.call(request(state=state, answers=answers)), "requestState")
        assert gateway.attempts == 0
        assert len(gateway.refusals) == 1


@proves("G7")
async def test_an_expired_state_is_refused(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path, approval_seconds=0.05) as gateway:
        first = request()
        asked = await gateway.call(first)
        await anyio.sleep(0.1)
        await expect_refusal(gateway.retry(first, asked, accept()), "expired")
        assert gateway.notes.calls == []


@proves("G7")
async def test_an_unrequested_approval_approves_nothing(tmp_path: Path) -> None:
    """`inputResponses` without a state: the question is put all the same."""
    async with open_elicitation_gateway(tmp_path) as gateway:
        outcome = await gateway.call(request(answers={"fingerpost-approval": accept()}))
        form_of(outcome)
        assert gateway.attempts == 0


@proves("G7", "F37")
async def test_without_a_store_an_answer_runs_nothing(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        first = request()
        asked = await gateway.call(first)
        await anyio.to_thread.run_sync(lose_table, tmp_path / "s.db", "grants")
        with pytest.raises(JsonRpcError, match="Nothing was run") as caught:
            await gateway.retry(first, asked, accept())
        assert caught.value.code == -32603
        assert gateway.attempts == 0


@proves("G6")
async def test_what_the_policy_denies_is_never_asked(tmp_path: Path) -> None:
    deny = [{"tool": "notes/delete_note", "verdict": "deny"}]
    person = create_client(accept())
    async with open_elicitation_gateway(tmp_path, policy=deny) as gateway:
        for modern in (True, False):
            outcome = await gateway.call(request(modern=modern), person)
            assert outcome.error is ErrorKind.DENIED
        assert person.questions == []
        assert gateway.attempts == 0


@proves("G6")
@pytest.mark.parametrize("modern", [True, False])
async def test_a_client_that_cannot_be_asked_is_told_where_to_approve(tmp_path: Path, modern: bool) -> None:
    """And the same call, made again after the approval, runs once."""
    async with open_elicitation_gateway(tmp_path) as gateway:
        unable = request(modern=modern, capabilities={"elicitation": {"url": {}}})
        outcome = await gateway.call(unable)
        [pending] = await gateway.waiting()
        assert f"fingerpost approvals approve {pending.pending_id}" in outcome.content
        assert "make the same call again" in outcome.content
        assert (await gateway.call(unable)).pending_id == pending.pending_id
        await gateway.router.calls.decide(pending.pending_id, Decision.APPROVED, by="terminal")
        assert (await gateway.call(unable)).success
        assert (await gateway.call(unable)).error is ErrorKind.AUTHORIZATION_REQUIRED
        assert gateway.attempts == 1


@proves("G6")
async def test_an_approval_is_for_the_one_who_asked(tmp_path: Path) -> None:
    async with open_elicitation_gateway(tmp_path) as gateway:
        mine = request(capabilities={})
        [pending] = [(await gateway.call(mine)).pending_id]
        assert pending is not None
        await gateway.router.calls.decide(pending, Decision.APPROVED, by="terminal")
        theirs = await gateway.call(request(capabilities={}, principal=EVE))
        assert theirs.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert DANA.name != EVE.name
        assert gateway.attempts == 0


async def test_a_call_that_needs_no_approval_asks_no_person(tmp_path: Path) -> None:
    person = ElicitationClient()
    async with open_elicitation_gateway(tmp_path) as gateway:
        outcome = await gateway.call(request(name="notes__read_note"), person)
        assert outcome.success
        assert person.questions == []
        assert len(gateway.asked.suspended) == 0
