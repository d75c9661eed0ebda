from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.react import ReactTurn, build_react_request, parse_react_turn
from fingerpost.llm import ModelRequest
from fingerpost.records import Json, Message, Step, ToolCall
from fingerpost.settings.model import ChooseSettings
from tests.choose.test_tool_loop import JSON
from tests.kit.choices import create_history, fits, packet, pick, step
from tests.kit.tables import table
from tests.requirements import proves

SETTINGS = ChooseSettings()
CARDS = pick("time/get_current_time", "files/read_file", "time/convert_time")
TOKYO = ToolCall(name="time/get_current_time", arguments={"timezone": "Asia/Tokyo"})


def ask(*steps: Step, last: bool = False) -> ModelRequest:
    made = packet("What time is it?", *steps, thoughts=["I need the time", "Once more", "And again"])
    return build_react_request(
        made, CARDS, system="SYSTEM", history=create_history("Hi", "Hi."), settings=SETTINGS, last=last
    )


@proves("E8")
def test_the_agent_is_told_what_it_thought_did_and_saw() -> None:
    request = ask(step(1), step(2))
    assert request.messages[0].text.startswith("SYSTEM\n\n# FORMAT\n")
    assert '"name": "time__get_current_time"' in request.messages[3].text
    assert request.messages[3].text.endswith("# REQUEST\nWhat time is it?")
    first, seen = request.messages[4:6]
    assert json.loads(first.text) == {
        "thought": "I need the time",
        "action": {"tool": "time__get_current_time", "arguments": {"timezone": "Zone/1"}},
        "answer": None,
    }
    assert seen == Message(role="user", text=f"Observation: {step(1).text}")
    assert json.loads(request.messages[6].text)["thought"] == "Once more"
    assert request.tools == ()


@proves("C9")
def test_every_turn_of_the_agent_begins_with_the_one_before() -> None:
    steps = [step(number) for number in range(1, 4)]
    turns = [ask(*steps[:made]) for made in range(4)] + [ask(*steps, last=True)]
    for before, after in itertools.pairwise(turns):
        assert after.messages[: len(before.messages)] == before.messages


@proves("E8")
def test_what_the_agent_is_shown_of_itself_fits_the_form_it_is_asked_for() -> None:
    request = ask(step(1))
    assert fits(json.loads(request.messages[-2].text), request)
    assert parse_react_turn(request.messages[-2].text, CARDS).call == ToolCall(
        name="time/get_current_time", arguments={"timezone": "Zone/1"}
    )


@proves("E8")
def test_in_the_last_turn_only_an_answer_is_possible() -> None:
    request = ask(step(1), last=True)
    assert "last step" in request.messages[-1].text
    acting: Json = {"thought": "", "action": {"tool": "files__read_file", "arguments": {}}, "answer": None}
    assert not fits(acting, request)
    turn = parse_react_turn(json.dumps(acting), CARDS, last=True)
    assert (turn.call, turn.answer, bool(turn.problem)) == (None, None, True)
    assert parse_react_turn("It is five.", CARDS, last=True).answer == "It is five."
    assert parse_react_turn("It is five.", CARDS).problem


ARGUMENTS = '{"timezone": "Asia/Tokyo"}'
CLASSIC = f"Thought: T\nAction: get_current_time\nAction Input: {ARGUMENTS}"


@proves("E8")
@table(
    "text",
    [
        f'{{"thought": "T", "action": {{"tool": "time__get_current_time", "arguments": {ARGUMENTS}}}}}',
        f'```json\n{{"thought": "T", "action": {{"name": "get_current_time", "args": {ARGUMENTS}}}}}\n```',
        f'{{"thought": "T", "action": "get_current_time", "action_input": {ARGUMENTS}}}',
        f'{{"thought": "T", "action": "get_current_time", "action_input": {json.dumps(ARGUMENTS)}}}',
        CLASSIC,
        f"**Thought:** T\n**Action:** `get_current_time`\n**Action Input:** ```json\n{ARGUMENTS}\n```",
        f"{CLASSIC}\nObservation: it is five\nThought: done\nFinal Answer: five",
        f"{CLASSIC}\nFinal Answer: five",
        f"{CLASSIC}\nAction: read_file\nAction Input: {{}}",
        "Thought: T\nAction: get_current_time\nAction Input: Asia/Tokyo",
        f"thought : T\n  action: get_current_time\naction input:\n{ARGUMENTS}",
    ],
)
def test_an_action_is_read_in_json_and_in_the_classic_form(text: str) -> None:
    assert parse_react_turn(text, CARDS) == ReactTurn(thought="T", call=TOKYO)


def test_nothing_the_model_built_on_an_observation_of_its_own_counts() -> None:
    text = f"Thought: T\nAction: get_current_time\nObservation: none\nAction Input: {ARGUMENTS}"
    assert parse_react_turn(text, CARDS).call == ToolCall(name="time/get_current_time", arguments={})


@table(
    ("text", "answer"),
    [
        ('{"thought": "T", "action": null, "answer": "Five."}', "Five."),
        ('{"thought": "T", "action": "none", "answer": 5}', "5"),
        ('{"thought": "T", "action": "Final Answer", "action_input": "Five."}', "Five."),
        ("Thought: T\nFinal Answer: Five.\nOr so.", "Five.\nOr so."),
        ("Thought: T\nAction: None\nFinal Answer: Five.", "Five."),
    ],
)
def test_an_answer_ends_the_work(text: str, answer: str) -> None:
    assert parse_react_turn(text, CARDS) == ReactTurn(thought="T", answer=answer)


@table(
    "text",
    [
        "",
        "{}",
        "null",
        "just prose",
        '{"thought": "T"}',
        '{"thought": "T", "action": null, "answer": ""}',
        '{"thought": "T", "action": {"tool": "files__delete_file", "arguments": {}}}',
        '{"thought": "T", "action": {"tool": "read_file", "arguments": {"answer": "42"}}',
        '{"action": {"tool": "read_file", "arguments": [1]}}',
        "Thought: T\nAction: rm -rf\nAction Input: /",
        "Thought: T\nAction: convert_time\nAction Input: now to Tokyo",
        "Thought: T",
        "Observation: it is five",
    ],
)
def test_what_is_neither_is_a_problem_and_nothing_is_called(text: str) -> None:
    turn = parse_react_turn(text, CARDS)
    assert (turn.call, turn.answer) == (None, None)
    assert turn.problem


@proves("E8")
def test_both_an_action_and_an_answer_act_first() -> None:
    text = json.dumps({"action": {"tool": "read_file", "arguments": {"path": "a"}}, "answer": "done"})
    assert parse_react_turn(text, CARDS) == ReactTurn(
        call=ToolCall(name="files/read_file", arguments={"path": "a"})
    )


PIECES = (
    *(
        "Thought: x",
        "Action: read_file",
        "Action: nothing",
        "Action Input: {",
        'Action Input: {"path": 1}',
        "}",
    ),
    *("Observation: y", "Final Answer: z", "```", "plain", "", "**Action:**", '{"action": 1}'),
)
LINES = st.lists(st.sampled_from(PIECES), max_size=12).map("\n".join)


@pytest.mark.slow
@given(text=st.text() | LINES | JSON.map(json.dumps), last=st.booleans())
def test_any_text_is_a_call_an_answer_or_a_problem_and_only_one_of_them(text: str, last: bool) -> None:
    turn = parse_react_turn(text, CARDS, last=last)
    assert [turn.call is not None, turn.answer is not None, bool(turn.problem)].count(True) == 1
    if turn.call is not None:
        assert not last
        assert turn.call.name in {card.key for card in CARDS}
