"""A call that waits for a person: held, given elsewhere, gone on with; also later, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from fingerpost import Router
from fingerpost.events import ApprovalRequested
from fingerpost.records import Decision
from fingerpost.testing import ScriptedModel, calls
from tests.kit import api
from tests.kit.chat_completions import MAP, ServedCompletions, ask, open_served_completions, user
from tests.kit.server_pools import all_blocked
from tests.requirements import proves

WRITE = "Delete the old note and write a note that says: buy milk"
NOT_HELD = {"completions": {"approval_seconds": 0}}


def writes() -> ScriptedModel:
    def say(request: Any) -> Any:
        if request.tools and request.messages[-1].role == "user":
            return calls(("notes__delete_and_write_note", {"text": "buy milk"}))
        if "rejected this call" in request.messages[-1].text:
            return f"Not written: {'the list is full' in request.messages[-1].text}."
        return "I wrote it down."

    return ScriptedModel(say)


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "fingerpost", "messages": [user(WRITE), *messages], **more}


async def decide(router: Router, pending_id: str, decision: Decision = Decision.APPROVED) -> None:
    reason = "the list is full" if decision is Decision.REJECTED else None
    await router.calls.decide(pending_id, decision, by="dana", reason=reason)


async def decide_when_asked(completions: ServedCompletions, decision: Decision) -> None:
    with completions.router.live.subscribe() as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                await decide(completions.router, event.pending_id, decision)
                return


async def request_and_wait(completions: ServedCompletions) -> Any:
    """The answer of a request that was not held long enough."""
    answer = (await ask(completions, body())).json
    assert answer["choices"][0]["finish_reason"] == "stop"
    extension = answer["fingerpost"]
    assert extension["outcome"] == "waiting"
    assert extension["approve_at"] == f"{completions.address}/#/approvals/{extension['pending_id']}"
    assert extension["approve_at"] in answer["choices"][0]["message"]["content"]
    assert completions.notes.calls == []
    return answer


@proves("O7")
async def test_the_request_is_held_until_a_person_says_yes(tmp_path: Path):
    async with (
        open_served_completions(tmp_path, writes()) as completions,
        completions.client() as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(decide_when_asked, completions, Decision.APPROVED)
        await anyio.lowlevel.checkpoint()
        answer = await client.chat.completions.create(model="fingerpost", messages=[user(WRITE)])
        assert completions.notes.calls == [("delete_and_write_note", {"text": "buy milk"})]
        assert (answer.choices[0].message.content or "").startswith("I wrote it down.")
        assert (answer.model_extra or {})["fingerpost"]["outcome"] == "answered"


@proves("C6", "C8")
async def test_a_stream_says_what_it_waits_for_and_goes_on(tmp_path: Path):
    waits = ": notes/delete_and_write_note waits for approval at http"
    lines: list[str] = []
    async with (
        open_served_completions(tmp_path, writes()) as completions,
        completions.plain() as client,
        client.stream("POST", "/v1/chat/completions", json=body(stream=True)) as got,
    ):
        async for line in got.aiter_lines():
            lines.append(line)
            if line.startswith(waits):  # only then: an immediate decision is not waited for
                await decide(completions.router, line.rpartition("/")[2], Decision.REJECTED)
        assert any(line.startswith(waits) for line in lines)
        pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        deltas = [choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"]]
        assert "".join(deltas) == "Not written: True."
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert completions.notes.calls == []


@proves("O7")
async def test_going_on_with_the_next_message(tmp_path: Path):
    model = writes()
    async with open_served_completions(tmp_path, model, **NOT_HELD) as completions:
        first = await request_and_wait(completions)
        note = first["choices"][0]["message"]
        still = await ask(completions, body(note, user("Done?")))
        assert still.json["fingerpost"]["outcome"] == "waiting"
        await decide(completions.router, first["fingerpost"]["pending_id"])
        asked = body(note, user("Done?"), still.json["choices"][0]["message"], user("And now?"))
        after = await ask(completions, asked)
        again = await ask(completions, asked)
    assert after.text.startswith("I wrote it down.")
    assert after.json["fingerpost"]["packet_id"] == first["fingerpost"]["packet_id"]
    assert again.text == after.text
    prompt = "\n".join(message.text for message in model.asked[-1].messages)
    assert (WRITE in prompt, "approval" in prompt, "Done?" in prompt) == (True, False, False)
    assert completions.notes.calls == [("delete_and_write_note", {"text": "buy milk"})]


@pytest.mark.slow
@proves("O7")
async def test_going_on_by_id_after_a_restart(tmp_path: Path):
    async with open_served_completions(tmp_path, writes(), **NOT_HELD) as completions:
        pending = (await request_and_wait(completions))["fingerpost"]["pending_id"]
    async with open_served_completions(tmp_path, writes(), **NOT_HELD) as completions:
        await decide(completions.router, pending)
        for stream in (False, True):
            more = {"fingerpost": {"resume": pending}, "stream": stream}
            async with completions.plain() as client:
                got = await client.post("/v1/chat/completions", json=body(**more))
            assert "I wrote it down." in got.text
    assert completions.notes.calls == [("delete_and_write_note", {"text": "buy milk"})]


async def test_no_other_caller_can_continue_it(tmp_path: Path):
    async with open_served_completions(tmp_path, writes(), **NOT_HELD) as completions:
        first = await request_and_wait(completions)
        pending = first["fingerpost"]["pending_id"]
        await decide(completions.router, pending)
        _, key = await completions.router.store.keys.add("other")
        asked = body(fingerpost={"resume": pending})
        by_id = await ask(completions, asked, authorization=f"Bearer {key}")
        by_note = await ask(
            completions, body(first["choices"][0]["message"], user("And?")), authorization=f"Bearer {key}"
        )
    assert (by_id.status, by_id.error["param"]) == (404, "fingerpost.resume")
    assert by_note.json["fingerpost"]["packet_id"] != first["fingerpost"]["packet_id"]
    assert completions.notes.calls == []


TERMS: dict[str, Any] = {"temperature": 0.11, "seed": 7, "max_tokens": 77}


@pytest.mark.slow
@proves("O7")
@pytest.mark.parametrize("word", ["approve", "reject"])
async def test_what_is_decided_in_the_console_waits_for_its_caller_and_their_terms(tmp_path: Path, word: str):
    """The console cannot know which model, options and tools the caller brought: they go on themselves."""
    model = writes()
    terms = {**TERMS, "model": "another", "tools": [MAP]}
    async with (
        open_served_completions(tmp_path, model, **NOT_HELD) as completions,
        api.serve_api(completions.router, operator=True) as console,
    ):
        first = (await ask(completions, body(**terms))).json
        asked = len(model.asked)
        path = f"/api/approvals/{first['fingerpost']['pending_id']}/{word}"
        decided = (await console.post(path, {})).json()
        assert (decided["stood"], decided["resumed"]) == (True, False)
        assert "program that asked" in decided["note"]
        await all_blocked()
        assert (completions.notes.calls, len(model.asked)) == ([], asked)
        after = await ask(completions, body(first["choices"][0]["message"], user("And now?"), **terms))
    assert after.json["fingerpost"]["packet_id"] == first["fingerpost"]["packet_id"]
    assert len(completions.notes.calls) == (1 if word == "approve" else 0)
    if word == "approve":
        last = model.asked[-1]
        assert (last.model, last.options, last.tools[0]) == ("another", TERMS, MAP)
        assert after.text.startswith("I wrote it down.")
    else:
        assert after.text == "Not written: False."


@pytest.mark.slow
@proves("O7")
@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.REJECTED])
async def test_any_message_in_a_named_conversation_goes_on(tmp_path: Path, decision: Decision):
    """A caller that sends only what is new, and never what was said before."""
    model = writes()
    named = {"fingerpost": {"conversation": "mine"}}
    async with open_served_completions(tmp_path, model, **NOT_HELD) as completions:
        first = (await ask(completions, body(**named))).json
        await decide(completions.router, first["fingerpost"]["pending_id"], decision)
    new = {"model": "fingerpost", "messages": [user("Go on")], **named}
    async with open_served_completions(tmp_path, model, **NOT_HELD) as completions:
        elsewhere = await ask(completions, {**new, "fingerpost": {"conversation": "another"}})
        after = await ask(completions, new)
        other = await ask(completions, {**new, "messages": [user("Tell me a tale of bears")]})
    first_id = first["fingerpost"]["packet_id"]
    ids = [answer.json["fingerpost"]["packet_id"] for answer in (elsewhere, after, other)]
    assert [each == first_id for each in ids] == [False, True, False]
    wrote = [("delete_and_write_note", {"text": "buy milk"})] if decision is Decision.APPROVED else []
    assert completions.notes.calls == wrote
    assert after.text.startswith("I wrote it down." if wrote else "Not written: True.")


async def test_while_it_waits_another_question_in_the_conversation_is_answered(tmp_path: Path):
    named = {"fingerpost": {"conversation": "mine"}}
    async with open_served_completions(tmp_path, writes(), **NOT_HELD) as completions:
        first = (await ask(completions, body(**named))).json
        tale = {"model": "fingerpost", "messages": [user("What is a bear?")], "tool_choice": "none", **named}
        other = await ask(completions, tale)
        await decide(completions.router, first["fingerpost"]["pending_id"])
        after = await ask(completions, {"model": "fingerpost", "messages": [user("Go on")], **named})
    assert other.json["fingerpost"]["packet_id"] != first["fingerpost"]["packet_id"]
    assert after.json["fingerpost"]["packet_id"] == first["fingerpost"]["packet_id"]
    assert len(completions.notes.calls) == 1
