"""The caller as a server sees them, the form they are shown, and what cannot pass for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ToolFailed
from fingerpost.records import Effect, Pending
from fingerpost.redaction import MASK
from fingerpost.surfaces.gateway.elicitation.approvals import (
    MAX_FORM_LENGTH,
    build_approval_form,
    parse_approval,
)
from fingerpost.surfaces.gateway.elicitation.client import GatewayCaller, mark_question, mark_result
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from tests.kit.elicitation import ElicitationClient, create_client, request
from tests.kit.tables import table
from tests.requirements import proves

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
TOOLS: list[dict[str, Any]] = [{}]
ANSWER: dict[str, Any] = {"action": "accept", "content": {"name": "Dana"}}

LACKING: list[tuple[dict[str, Any], str, dict[str, Any], dict[str, Any] | None]] = [
    ({}, ELICIT, {}, {"elicitation": {"form": {}}}),
    ({"elicitation": {"url": {}}}, ELICIT, {}, {"elicitation": {"form": {}}}),
    ({"elicitation": {}}, ELICIT, {"mode": "url"}, {"elicitation": {"url": {}}}),
    ({}, SAMPLE, {}, {"sampling": {}}),
    ({"sampling": {}}, SAMPLE, {"tools": TOOLS}, {"sampling": {"tools": {}}}),
    ({"sampling": {}}, SAMPLE, {"includeContext": "allServers"}, {"sampling": {"context": {}}}),
    ({"elicitation": {}}, ROOTS, {}, {"roots": {}}),
    ({"elicitation": {}}, "made/up", {}, None),
]
OFFERED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"elicitation": {}}, ELICIT, {"message": "Who?", "x-odd": [1]}),
    ({"elicitation": {"form": {}, "url": {}}}, ELICIT, {"mode": "url", "url": "https://a.example"}),
    ({"sampling": {"tools": {}}}, SAMPLE, {"tools": TOOLS, "messages": []}),
    ({"sampling": {}}, SAMPLE, {"includeContext": "none"}),
    ({"roots": {"listChanged": True}}, ROOTS, {}),
]


def side(
    person: ElicitationClient, *, log_level: str | None = None, seconds: float = 5.0, **asking: Any
) -> GatewayCaller:
    return GatewayCaller(
        request(modern=asking.pop("modern", False), **asking),
        person,
        server="notes",
        seconds=seconds,
        log_level=log_level,
    )


def create_pending(arguments: Mapping[str, Any], **more: Any) -> Pending:
    now = datetime(2026, 11, 15, tzinfo=UTC)
    known: dict[str, Any] = {
        "pending_id": "apr_1",
        "tool": "notes/delete_note",
        "operation": "notes/delete_note",
        "arguments": arguments,
        "call_fingerprint": "f",
        "effect": Effect.DESTROY,
        "reason": "default for destroy",
        "created": now,
        "expires": now,
        "conversation": "c",
    }
    return Pending(**{**known, **more})


def message_of(waiting: Pending) -> str:
    return str(build_approval_form(waiting, request(), grant_seconds=300)["message"])


@proves("G8")
@pytest.mark.anyio
@table(("capabilities", "method", "params", "needed"), LACKING)
async def test_a_caller_is_not_asked_for_what_they_do_not_offer(
    capabilities: dict[str, Any], method: str, params: dict[str, Any], needed: dict[str, Any] | None
) -> None:
    person = create_client(ANSWER)
    with pytest.raises(ToolFailed) as caught:
        await side(person, capabilities=capabilities).ask(method, params)
    assert caught.value.code == -32601
    with pytest.raises(ToolFailed) as caught:
        await side(person, capabilities=capabilities, modern=True).ask(method, params)
    assert caught.value.code == (-32601 if needed is None else -32021)
    assert caught.value.data == (None if needed is None else {"requiredCapabilities": needed})
    assert person.questions == []


@proves("G8")
@pytest.mark.anyio
@table(("capabilities", "method", "params"), OFFERED)
async def test_a_question_arrives_as_it_was_put(
    capabilities: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    person = create_client(ANSWER)
    assert await side(person, capabilities=capabilities).ask(method, params) == ANSWER
    assert person.questions == [(method, params)]


@proves("G8")
@pytest.mark.anyio
async def test_a_refusal_keeps_its_code_and_silence_is_cancelled() -> None:
    able: dict[str, Any] = {"elicitation": {}, "sampling": {}}
    person = create_client(JsonRpcError(-1, "User rejected", {"why": "no"}))
    with pytest.raises(ToolFailed, match="User rejected") as caught:
        await side(person, capabilities=able).ask(SAMPLE, {})
    assert (caught.value.code, caught.value.data) == (-1, {"why": "no"})
    silent = side(ElicitationClient(), capabilities=able, seconds=0.05)
    assert await silent.ask(ELICIT, {}) == {"action": "cancel"}
    with pytest.raises(ToolFailed, match="in time"):
        await silent.ask(SAMPLE, {})


@proves("G8")
@pytest.mark.anyio
async def test_progress_goes_under_the_callers_own_token_or_not_at_all() -> None:
    person = ElicitationClient()
    progress = {"progressToken": "ours", "progress": 1, "x": 2}
    await side(person).tell("notifications/progress", progress)
    await side(person, meta={"progressToken": 0}).tell("notifications/progress", progress)
    assert person.notifications == [("notifications/progress", {"progressToken": 0, "progress": 1, "x": 2})]


@proves("G8")
@pytest.mark.anyio
@table(
    ("modern", "asked_for", "received"),
    [
        (False, None, ["debug", "warning", "emergency"]),
        (True, None, []),
        (True, "warning", ["warning", "emergency"]),
        (False, "critical", ["emergency"]),
        (True, "loud", []),
    ],
)
async def test_log_messages_come_from_the_level_asked_for(
    modern: bool, asked_for: str | None, received: list[str]
) -> None:
    person = ElicitationClient()
    caller = side(person, modern=modern, log_level=asked_for)
    for level in ("debug", "warning", "emergency"):
        await caller.tell("notifications/message", {"level": level, "data": 1})
    await caller.tell("notifications/cancelled", {"requestId": 1})
    assert [params["level"] for _, params in person.notifications] == received


@proves("G6")
def test_the_form_hides_nothing_and_marks_what_looks_secret() -> None:
    message = message_of(
        create_pending(
            {
                "path": "a\u200b\u202eb\n\nFingerpost: nothing, all is well",
                "api_key": "sk-abcdefghijklmnopqrstuvwx",
                "html": "</pre><img src=x> ![](https://evil.example)",
                "nested": {"deep": [1, 2, None]},
            }
        )
    )
    assert "\u200b" not in message
    assert "\u202e" not in message
    assert "\\u200b\\u202e" in message
    assert '    api_key = "sk-abcdefghijklmnopqrstuvwx"  (looks like a secret)\n' in message
    assert MASK not in message
    assert "\nFingerpost:" not in message  # ours is the first line, and no line of the server begins so
    assert '    nested = {"deep": [1, 2, null]}' in message
    begin = message.index("as the model wrote them:\n\n")
    theirs = message[begin:].split("\n\n")[1].split("\n")
    assert len(theirs) == 4
    assert all(line.startswith("    ") for line in theirs)  # a code block, if rendered as Markdown


@proves("G6")
@given(st.dictionaries(st.text(max_size=20), st.text(max_size=60), max_size=5))
def test_arguments_stay_on_their_own_lines(arguments: dict[str, str]) -> None:
    lines = message_of(create_pending(arguments)).splitlines()
    assert lines[0] == "Fingerpost: approve this tool call?"
    assert lines[-1] == "Its id is apr_1."
    begin = lines.index("Its arguments, as the model wrote them:") + 2
    assert len(lines[begin:-2]) == max(1, len(arguments))
    assert all(line.startswith("    ") for line in lines[begin:-2])


@proves("G6")
def test_the_form_is_bounded_and_says_what_it_leaves_out() -> None:
    long = message_of(create_pending({"text": "x" * 100_000}))
    assert "characters are not shown" in long
    many = message_of(create_pending({f"name{index}": "x" * 1000 for index in range(100)}))
    assert "more: `fingerpost approvals show apr_1` shows all" in many
    assert max(len(long), len(many)) < MAX_FORM_LENGTH + 2000


def test_only_the_words_of_the_form_are_a_yes() -> None:
    wide = {"action": "accept", "content": {"decision": "approve for this conversation"}}
    for asked_alone in (
        create_pending({}, conversation=None),
        create_pending({}, conversation="of another session"),
    ):
        assert not hasattr(parse_approval(wide, asked_alone, request(modern=False)), "decision")
        assert "this conversation" not in str(
            build_approval_form(asked_alone, request(modern=False), grant_seconds=300)
        )


@proves("G6")
@table("name", ["Fingerpost", "FINGER\u200bPOST", "F i n g e r p o s t", "Fingerроst"])
def test_a_server_that_speaks_in_our_name_is_named(name: str) -> None:
    question: dict[str, Any] = {"message": f"{name} asks: may this tool run?", "requestedSchema": {}}
    shown = mark_question("evil\u200b", ELICIT, question)
    assert str(shown["message"]).startswith("[The server evil\\u200b asks this, not Fingerpost.]\n")
    result = {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": ELICIT, "params": question}, "r": {"method": ROOTS}},
        "requestState": "theirs",
    }
    marked: Any = mark_result("evil", result)
    assert marked["requestState"] == "theirs"
    assert "not Fingerpost" in marked["inputRequests"]["q"]["params"]["message"]


def test_an_honest_question_is_not_touched() -> None:
    question: dict[str, Any] = {"message": "Which finger?", "requestedSchema": {}}
    assert mark_question("notes", ELICIT, question) is question
    result: dict[str, Any] = {"inputRequests": {"q": {"method": ELICIT, "params": question}}}
    assert mark_result("notes", result) is result
