"""What the guard gives back, what it makes of talk about syntax, and how it bears ill will."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.syntax_guard.formats import MAX_HELD_LENGTH
from fingerpost.choose.syntax_guard.scanner import SyntaxGuard
from tests.choose.syntax_guard.corpus import GUARD, REQUESTS, SYNTAX
from tests.kit.catalogs import card, tool
from tests.kit.tables import table
from tests.requirements import proves

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Haifa"}}</tool_call>'


def test_several_calls_in_one_answer_are_all_given_back() -> None:
    cleaned = GUARD.clean(
        CALL + "\n" + '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>\nSoon.'
    )
    assert [one.name for one in cleaned.removed] == ["weather/get_weather", "files/read_file"]
    assert cleaned.text == "Soon."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is sunny.</tool_call>", "It is sunny."),
        ("Done!</function_calls>\n\nMore.", "Done!\n\nMore."),
        ("It is sunny.</think>", "It is sunny."),
        ("A call ends with </tool_call>", "A call ends with </tool_call>"),
        ("A call ends so.</tool_call> is how.", "A call ends so.</tool_call> is how."),
    ],
)
def test_an_end_without_a_beginning_behind_a_whole_sentence_is_left_over(text: str, shown: str) -> None:
    assert GUARD.clean(text).text == shown


def test_a_labelled_call_within_a_sentence_is_shown() -> None:
    assert GUARD.clean("Let me see. Tool call: brew_tea(cups=2)").text == "Let me see."
    text = "Let me see. Tool call: brew_tea(cups=2) is what I would write."
    assert GUARD.clean(text).text == text


def test_a_name_that_two_tools_have_is_stopped_but_means_neither() -> None:
    twins = (card(tool("get_weather"), server="north"), card(tool("get_weather"), server="south"))
    cleaned = SyntaxGuard(twins).clean('{"name": "get_weather", "arguments": {"city": "Haifa"}}')
    assert cleaned.text == ""
    assert [(one.name, one.arguments) for one in cleaned.removed] == [(None, None)]


def test_what_follows_an_invented_observation_is_not_a_call_to_make() -> None:
    cleaned = GUARD.clean(
        'Action: get_weather\nAction Input: {"city": "Haifa"}\nObservation: storm\n'
        'Action: send_email\nAction Input: {"to": "all", "body": "storm"}'
    )
    assert [one.name for one in cleaned.removed] == ["weather/get_weather"]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "write_file", "arguments": {"path": "a", "options": {"mode": 1}, "content": "so',
        '<tool_call>{"name": "write_file", "arguments": {"path": "a", "options": {"mode": "w"}',
        '```json\n{"name": "write_file", "arguments": {"options": {"mode": "w"}, "content": "so',
    ],
)
def test_half_a_call_is_never_given_back_as_a_whole_one(text: str) -> None:
    cleaned = GUARD.clean(text)
    assert cleaned.text == ""
    assert all(one.arguments is None for one in cleaned.removed)


def test_keys_that_differ_in_punctuation_alone_break_nothing() -> None:
    cleaned = GUARD.clean('<tool_call>{"": {}, ":": {}}</tool_call>Soon.')
    assert cleaned.text == "Soon."
    assert [one.name for one in cleaned.removed] == [None]


def test_an_invented_result_is_hidden_and_is_no_call() -> None:
    cleaned = GUARD.clean(
        '<tool_response>{"name": "get_weather", "arguments": {"a": 1}}</tool_response>Warm.'
    )
    assert cleaned.text == "Warm."
    assert cleaned.removed[0].name is None


def test_thinking_aloud_is_hidden_and_counted_as_thought() -> None:
    cleaned = GUARD.clean("<think>They greet. " + CALL + "</think>Hello!")
    assert (cleaned.text, [one.syntax for one in cleaned.removed]) == ("Hello!", ["thought"])


@proves("A15")
def test_a_real_call_is_stopped_even_where_syntax_is_the_subject() -> None:
    cleaned = GUARD.clean("In Hermes format: " + CALL, request=SYNTAX)
    assert "get_weather" not in cleaned.text
    assert cleaned.removed[0].name == "weather/get_weather"


@table(
    "request_text",
    [
        "How do Hermes tool calls look?",
        "what does a ChatML prompt look like",
        "Explain the special tokens of Llama 3",
        "Write a regex that finds <tool_call> blocks",
        "Review my parser for function calls in Mistral's format",
        "What is <|im_start|>?",
        "What does the ReAct prompt format look like for agents?",
        "איך נראית קריאה לכלי בפורמט של Hermes?",
        "מה זה <|im_end|>?",
    ],
)
def test_a_question_about_syntax_is_recognised(request_text: str) -> None:
    assert GUARD.is_about_syntax(request_text)


@table(
    "request_text",
    [
        "What is the weather in Haifa?",
        "Call Dana and tell her I am late",
        "How do I write a React component?",
        "Which Hermes bag is that?",
        "Format my hard disk",
        "Show me llamas",
        "מה מזג האוויר בחיפה?",
        "תקרא לי את הקובץ notes.txt",
    ],
)
def test_other_questions_are_not_about_syntax(request_text: str) -> None:
    assert not GUARD.is_about_syntax(request_text)


@pytest.mark.slow
@table(
    "pattern",
    [
        "<|",
        "<|a",
        "<tool>",
        "<tool_call>",
        "<tool_call ",
        "Action:",
        "Action: x\n",
        "Thought: a\n",
        "`",
        "`a``b```c",
        "```json\n",
        '{"arguments":',
        '{"name":',
        "{{a",
        "[",
        "[tool ",
        "\n",
        "&lt;",
        "<\u200b",
        "to=functions.",
        "<|im_start|>user\n",
        "[get_weather(",
        "x <tool_call> y ",
        "<invoke name='a'>",
        "=== Tool Call\n",
    ],
)
@pytest.mark.parametrize(("asked", "length"), [*zip(REQUESTS, (8_000, 3_000, 3_000), strict=True)])
def test_a_long_hostile_text_is_gone_through_in_time(pattern: str, asked: str, length: int) -> None:
    go_through(pattern, length, asked)


@table(
    "pattern",
    [
        "<tool_call>",
        "Action:",
        "`",
        "```json\n",
        '{"arguments":',
        "[",
        "\n",
        "to=functions.",
        "<invoke name='a'>",
    ],
)
def test_a_text_longer_than_what_is_held_back_is_gone_through_in_time(pattern: str) -> None:
    go_through(pattern, MAX_HELD_LENGTH + 2_000, "")


def go_through(pattern: str, length: int, asked: str) -> None:
    text = (pattern * (length // len(pattern) + 1))[:length]
    began = time.process_time()
    cleaned = GUARD.clean(text, request=asked)
    assert time.process_time() - began < 5  # it takes a tenth of a second
    assert len(cleaned.text) <= len(text)
    assert len(cleaned.removed) <= 250


@given(st.text(max_size=400))
def test_any_text_is_gone_through_and_nothing_is_added_to_it(text: str) -> None:
    cleaned = GUARD.clean(text)
    if not cleaned.removed:
        assert cleaned.text == text


@pytest.mark.slow
@table("sign", ['{"a":', "[", "(", "<a>", "not ", "-", "a."])
def test_deep_nesting_breaks_nothing(sign: str) -> None:
    for depth in (1, 2, 150, 4_000):
        cleaned = GUARD.clean("<tool_call>get_weather(x=" + sign * depth)
        assert cleaned.text == ""
