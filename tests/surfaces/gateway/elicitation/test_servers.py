"""Questions of servers, in every pairing of eras: they reach the person, the answer reaches the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.events import ApprovalDecided, CallFinished
from fingerpost.records import ErrorKind, Outcome
from fingerpost.servers.requests import RequestContext
from fingerpost.surfaces.gateway.protocol import ClientRequest, JsonRpcError
from tests.kit.elicitation import (
    EVE,
    ElicitationGateway,
    accept,
    create_client,
    open_elicitation_gateway,
    request,
)
from tests.kit.elicitation_servers import IMITATION, RoundsServer, SessionServer
from tests.requirements import proves

pytestmark = pytest.mark.anyio

ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


def accept_name(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def create_request(tool: str, **more: Any) -> ClientRequest:
    return request(name=tool, arguments={}, capabilities=ABLE, **more)


def questions_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.result is not None, outcome.content
    assert outcome.result["resultType"] == "input_required"
    found: Any = outcome.result["inputRequests"]
    return found


def text_of(outcome: Outcome) -> str:
    assert outcome.success, outcome.content
    assert outcome.result is not None
    content: Any = outcome.result["content"]
    return content[0]["text"]


async def expect_refusal(work: Any, words: str) -> None:
    with pytest.raises(JsonRpcError, match=words) as caught:
        await work
    assert caught.value.code == -32602


async def wait_for_end(gateway: ElicitationGateway) -> None:
    """The parked calls are over. They end by themselves, at the latest when the test's time is up."""
    with anyio.fail_after(30):
        while len(gateway.asked.suspended):  # noqa: ASYNC110 - nothing tells a client that a call it left is over
            await anyio.sleep(0.02)


@pytest.mark.slow
@proves("G8")
async def test_session_client_and_session_server(tmp_path: Path) -> None:
    old = SessionServer()
    person = create_client(accept_name("Dana"))
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        outcome = await gateway.call(create_request("old__greet", modern=False), person)
        assert text_of(outcome) == "greet Dana"
        assert person.questions[0][1]["message"] == "Who are you?"


@proves("G8")
async def test_session_client_and_rounds_server(tmp_path: Path) -> None:
    new = RoundsServer()
    person = create_client(accept_name("Dana"))
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        outcome = await gateway.call(create_request("new__look", modern=False), person)
        assert text_of(outcome) == "look Dana"
        assert new.rounds[1] == (new.STATE, {"who": accept_name("Dana")})


@proves("G8")
async def test_rounds_client_and_rounds_server(tmp_path: Path) -> None:
    """Nothing of ours in between: the server's state goes out and comes back as it is."""
    new = RoundsServer()
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        first = create_request("new__look")
        asked = await gateway.call(first)
        assert asked.result is not None
        assert asked.result["requestState"] == new.STATE
        assert len(gateway.asked.suspended) == 0
        outcome = await gateway.go_on(first, asked, {"who": accept_name("Dana")})
        assert text_of(outcome) == "look Dana"
        assert new.rounds == [(None, None), (new.STATE, {"who": accept_name("Dana")})]


@proves("G8", "G7")
async def test_rounds_client_and_session_server(tmp_path: Path) -> None:
    """The call waits in the server while the client is away with the question; the state is good once."""
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request("old__twice")
        one = await gateway.call(first)
        [(key, question)] = questions_of(one).items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "First?"
        two = await gateway.go_on(first, one, {key: accept_name("Dana")})
        [(key, question)] = questions_of(two).items()
        assert question["params"]["message"] == "Second?"
        await expect_refusal(gateway.go_on(first, one, {key: accept_name("Eve")}), "used already")
        last = await gateway.go_on(first, two, {key: accept_name("Fox")})
        assert text_of(last) == "Dana Fox"
        await expect_refusal(gateway.go_on(first, two, {key: accept_name("Eve")}), "has expired")
        assert old.begun == 1
        assert len(gateway.asked.suspended) == 0
        assert len(gateway.refusals) == 2


@proves("G8")
async def test_two_questions_at_once_and_one_answer(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request("old__both")
        outcome = await gateway.call(first)
        rounds = 0
        while outcome.result is not None and outcome.result.get("resultType") == "input_required":
            key, question = next(iter(questions_of(outcome).items()))
            number = question["params"]["message"].split()[1]
            answers = {key: accept_name(f"Dana{number}"), "never-asked": accept_name("Eve")}
            outcome = await gateway.go_on(first, outcome, answers)
            rounds += 1
        assert text_of(outcome) == "Dana1? Dana2?"
        assert rounds == 2


@proves("G8")
@pytest.mark.parametrize(
    ("tool", "method", "answer", "text"),
    [
        (
            "sample",
            "sampling/createMessage",
            {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m-1"},
            "m-1",
        ),
        ("roots", "roots/list", {"roots": [{"uri": "file:///home/dana"}]}, "file:///home/dana"),
    ],
)
async def test_sampling_and_roots_go_the_same_way(
    tmp_path: Path, tool: str, method: str, answer: dict[str, Any], text: str
) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request(f"old__{tool}")
        asked = await gateway.call(first)
        [(key, question)] = questions_of(asked).items()
        assert question["method"] == method
        assert text_of(await gateway.go_on(first, asked, {key: answer})) == text


@proves("G7")
async def test_a_parked_call_goes_on_for_its_caller_alone(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request("old__greet")
        asked = await gateway.call(first)
        key = next(iter(questions_of(asked)))
        answers = {key: accept_name("Eve")}
        await expect_refusal(gateway.go_on(first, asked, answers, principal=EVE), "another caller")
        await expect_refusal(
            gateway.go_on(first, asked, answers, params={"name": "old__twice"}), "another call"
        )
        again = await gateway.go_on(
            first, asked, {"other": accept_name("Eve")}
        )  # no answer to what was asked
        assert next(iter(questions_of(again))) == key
        odd = await gateway.go_on(first, again, {key: {"action": "perhaps"}})
        assert text_of(await gateway.go_on(first, odd, {key: accept_name("Dana")})) == "greet Dana"
        assert old.answers == [accept_name("Dana")]


@proves("G7")
async def test_forged_states_are_refused_where_no_server_can_have_made_them(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        await expect_refusal(
            gateway.call(create_request("old__greet", state="made up")), "not made by this gateway"
        )
        await expect_refusal(
            gateway.call(create_request("old__greet", state="fp1.made-up")), "changed on its way"
        )
        assert old.begun == 0
        asked = await gateway.call(create_request("old__greet", answers={"question-1": accept_name("Eve")}))
        assert questions_of(asked)  # answers to nothing count for nothing


@proves("G8")
async def test_a_call_whose_client_does_not_return_ends_with_a_record(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec, approval_seconds=0.6) as gateway:
        first = create_request("old__twice")
        asked = await gateway.call(first)
        key = next(iter(questions_of(asked)))
        await wait_for_end(gateway)
        assert old.answers == [{"action": "cancel"}, {"action": "cancel"}]  # the second is not waited for
        [finished] = gateway.events(CallFinished)
        assert finished.tool == "old/twice"
        assert [reason for reason in gateway.refusals if "was not answered within" in reason] == [
            "a question of old (elicitation/create) was not answered within 0.6 s"
        ]
        await expect_refusal(gateway.go_on(first, asked, {key: accept_name("late")}), "expired|time was over")


@proves("F30", "G8")
async def test_a_client_that_leaves_ends_its_call(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as client:
                client.start_soon(gateway.call, create_request("old__hang"))
                while not old.begun:  # noqa: ASYNC110 - see `ended`
                    await anyio.sleep(0.02)
                client.cancel_scope.cancel()
            while not (gateway.events(CallFinished) and old.cancelled):  # noqa: ASYNC110 - see `ended`
                await anyio.sleep(0.02)
        assert gateway.events(CallFinished)[0].error is ErrorKind.CANCELLED
        assert old.begun == 1


@pytest.mark.slow
@proves("G8")
async def test_places_are_bounded_for_each_caller(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec, call={"concurrency": 100}) as gateway:
        for index in range(32):
            one = request(name="old__greet", arguments={"n": index}, capabilities=ABLE)
            assert questions_of(await gateway.call(one))
        assert len(gateway.asked.suspended) == 32
        refused_one = await gateway.call(create_request("old__greet"))
        assert not refused_one.success
        assert questions_of(await gateway.call(create_request("old__greet", principal=EVE)))


@proves("G8")
async def test_who_lost_the_question_is_asked_again(tmp_path: Path) -> None:
    """The same call again, without our state: the question again, and the call beside it still runs once."""
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        lost = await gateway.call(create_request("old__greet"))
        again = await gateway.call(create_request("old__greet"))
        assert questions_of(again) == questions_of(lost)
        assert len(gateway.asked.suspended) == 1
        [key] = questions_of(again)
        assert (
            text_of(await gateway.go_on(create_request("old__greet"), again, {key: accept_name("Dana")}))
            == "greet Dana"
        )
        await expect_refusal(
            gateway.go_on(create_request("old__greet"), lost, {key: accept_name("Eve")}), "has expired"
        )


@proves("G8")
async def test_who_comes_twice_with_one_answer_is_not_told_that_nothing_was_run(tmp_path: Path) -> None:
    """The first answer reached the server: it may well have acted on it."""
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request("old__greet")
        asked = await gateway.call(first)
        [key] = questions_of(asked)
        await gateway.go_on(first, asked, {key: accept_name("Dana")})
        await wait_for_end(gateway)
        with pytest.raises(JsonRpcError) as caught:
            await gateway.go_on(first, asked, {key: accept_name("Dana")})
        assert "Nothing was run" not in caught.value.message
        assert "may have run" in caught.value.message


@proves("G6")
async def test_a_server_cannot_get_its_own_approval(tmp_path: Path) -> None:
    """Its question looks like ours; the yes goes to it alone, and what waits goes on waiting."""
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        assert questions_of(await gateway.call(request()))  # notes/delete_note waits for approval
        first = create_request("old__imitate")
        asked = await gateway.call(first)
        [(key, question)] = questions_of(asked).items()
        shown = question["params"]["message"]
        assert shown == f"[The server old asks this, not Fingerpost.]\n{IMITATION}"
        answers = {key: accept(), "fingerpost-approval": accept()}
        await gateway.go_on(first, asked, answers)
        assert len(await gateway.waiting()) == 1
        assert gateway.notes.calls == []


@proves("G6", "G7")
async def test_an_approval_and_then_the_servers_own_round(tmp_path: Path) -> None:
    """Asked for approval once; the server's state is inside of ours and reaches it byte for byte."""
    new = RoundsServer()
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        first = create_request("new__wipe")
        asked = await gateway.call(first)
        assert list(questions_of(asked)) == ["fingerpost-approval"]
        assert new.rounds == []
        server_asks = await gateway.retry(first, asked, accept())
        assert list(questions_of(server_asks)) == ["who"]
        assert server_asks.result is not None
        assert new.STATE not in str(server_asks.result["requestState"])
        outcome = await gateway.go_on(first, server_asks, {"who": accept_name("Dana")})
        assert text_of(outcome) == "wipe Dana"
        assert new.rounds == [(None, None), (new.STATE, {"who": accept_name("Dana")})]
        await expect_refusal(gateway.go_on(first, server_asks, {"who": accept_name("Dana")}), "used already")
        fresh = await gateway.call(first)  # a new call is a new question
        assert list(questions_of(fresh)) == ["fingerpost-approval"]
        assert len(new.rounds) == 2


@pytest.mark.slow
@proves("G6", "G7")
async def test_the_servers_round_after_an_approval_goes_on_after_a_restart(tmp_path: Path) -> None:
    new = RoundsServer()
    first = create_request("new__wipe")
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        server_asks = await gateway.retry(first, await gateway.call(first), accept())
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        outcome = await gateway.go_on(first, server_asks, {"who": accept_name("Dana")})
        assert text_of(outcome) == "wipe Dana"
        assert new.rounds[1] == (new.STATE, {"who": accept_name("Dana")})
        [decided] = gateway.events(ApprovalDecided)
        assert "a further round of apr_" in decided.decided_by
        assert list(questions_of(await gateway.call(first))) == ["fingerpost-approval"]
        assert len(new.rounds) == 2


@pytest.mark.slow
@proves("G6", "G7")
async def test_a_definition_that_changed_between_the_rounds_is_asked_about_again(tmp_path: Path) -> None:
    """The yes was to another tool, so to say: the restarted gateway does not carry it over."""
    new, changed = RoundsServer(), RoundsServer(description="Now it wipes everything.")
    first = create_request("new__wipe")
    no_pins = {"pins": False}  # or the changed tool would not even be there
    async with open_elicitation_gateway(tmp_path, new.spec, flags=no_pins) as gateway:
        server_asks = await gateway.retry(first, await gateway.call(first), accept())
    async with open_elicitation_gateway(tmp_path, changed.spec, flags=no_pins) as gateway:
        asked = await gateway.go_on(first, server_asks, {"who": accept_name("Dana")})
        assert list(questions_of(asked)) == ["fingerpost-approval"]
        assert changed.rounds == []
        assert text_of(await gateway.retry(first, asked, accept())) == "wipe Dana"  # nothing got lost over it


@proves("G6", "G7")
async def test_an_approval_and_then_a_question_inside_of_the_call(tmp_path: Path) -> None:
    old = SessionServer()
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = create_request("old__wipe")
        asked = await gateway.call(first)
        assert list(questions_of(asked)) == ["fingerpost-approval"]
        inside = await gateway.retry(first, asked, accept())
        [key] = questions_of(inside)
        assert text_of(await gateway.go_on(first, inside, {key: accept_name("Dana")})) == "wipe Dana"
        assert old.begun == 1


@proves("G7")
async def test_answers_for_the_server_are_not_lost_over_our_question(tmp_path: Path) -> None:
    """A server's round that needs approval after all: its state and answers wait inside of ours."""
    new = RoundsServer()
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        first = create_request("new__wipe", state=new.STATE, answers={"who": accept_name("Dana")})
        asked = await gateway.call(first)
        assert list(questions_of(asked)) == ["fingerpost-approval"]
        again = await gateway.go_on(first, asked, {})
        assert text_of(await gateway.retry(first, again, accept())) == "wipe Dana"
        assert new.rounds == [(new.STATE, {"who": accept_name("Dana")})]


@proves("G7")
async def test_a_server_that_writes_our_prefix_harms_itself_alone(tmp_path: Path) -> None:
    new = RoundsServer(state="fp1.of-the-server")
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        first = create_request("new__look")
        asked = await gateway.call(first)
        await expect_refusal(gateway.go_on(first, asked, {"who": accept_name("Dana")}), "changed on its way")
        first = create_request("new__wipe")
        asked = await gateway.retry(first, await gateway.call(first), accept())
        assert text_of(await gateway.go_on(first, asked, {"who": accept_name("Dana")})) == "wipe Dana"


@proves("G8")
@pytest.mark.parametrize("modern", [True, False])
async def test_questions_about_prompts(tmp_path: Path, modern: bool) -> None:
    old = SessionServer()
    person = create_client(accept_name("Dana"))
    async with open_elicitation_gateway(tmp_path, old.spec) as gateway:
        first = replace(create_request("hello", modern=modern), method="prompts/get")

        async def get(passage: RequestContext) -> Any:
            given = {"name": "hello"}
            return await gateway.asked.ask_server(
                first, person, "old", "prompts/get", given, passage, timeout=10
            )

        result = await get(RequestContext())
        if modern:
            [key] = result["inputRequests"]
            state = result["requestState"]
            result = await get(
                RequestContext(input_responses={key: accept_name("Dana")}, request_state=state)
            )
            await expect_refusal(get(RequestContext(request_state=state)), "has expired")
        assert result["messages"][0]["content"]["text"] == "Say hello to Dana"
        assert bool(person.questions) is not modern


@proves("G8")
@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}])
async def test_a_round_that_the_client_cannot_answer_is_an_error_and_not_a_question(
    tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    """It never said that it takes such questions: it may not know what to do with one."""
    new = RoundsServer()
    async with open_elicitation_gateway(tmp_path, new.spec) as gateway:
        outcome = await gateway.call(request(name="new__look", arguments={}, capabilities=capabilities))
        assert not outcome.success
        assert outcome.error is ErrorKind.OPERATION_NOT_SUPPORTED
        assert outcome.result is None
        assert "elicitation" in outcome.content
        able = await gateway.call(request(name="new__look", arguments={}, capabilities=ABLE))
        assert list(questions_of(able)) == ["who"]
