from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.answer import (
    ANSWER_RULES,
    LIMIT_REACHED_NOTE,
    build_answer_request,
    format_sources,
    has_source_name,
)
from fingerpost.choose.prompts import MAX_STEP_LENGTH
from fingerpost.settings.model import ChooseSettings
from tests.kit.choices import create_history, packet, step
from tests.kit.tables import table
from tests.requirements import proves

SETTINGS = ChooseSettings(answer_tokens=321, answer_temperature=0.4)
HISTORY = create_history("My lucky number is 7.", "Noted.")


@proves("A10")
def test_the_answer_is_asked_for_with_the_results_and_from_them() -> None:
    made = packet("What time is it in Tokyo?", step(1), step(2, success=False, text="timeout: try later"))
    request = build_answer_request(made, system="SYSTEM", history=HISTORY, settings=SETTINGS)
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[1:3] == HISTORY
    asked = request.messages[-1].text
    assert asked.startswith("What time is it in Tokyo?\n")
    assert '1. time/get_current_time with {"timezone": "Zone/1"} returned:\n<data-1>\nresult 1' in asked
    assert "2. time/get_current_time with" in asked
    assert "failed:\ntimeout: try later" in asked
    assert asked.endswith("and name the tool.")
    assert "Claim nothing" in request.messages[0].text
    assert (request.max_tokens, request.temperature) == (321, 0.4)
    assert request.tools == ()


@proves("A11")
def test_at_the_cap_the_answer_is_asked_for_without_more_tools() -> None:
    request = build_answer_request(
        packet("?", step(1)), system="", history=(), settings=SETTINGS, note=LIMIT_REACHED_NOTE
    )
    assert request.messages[-1].text.endswith(LIMIT_REACHED_NOTE)
    assert request.tools == ()


def test_an_answer_without_any_result_must_say_so() -> None:
    request = build_answer_request(
        packet("Open the door"), system="", history=(), settings=SETTINGS, note="Be brief."
    )
    assert "No tool has returned anything" in request.messages[-1].text


@proves("B6")
def test_a_request_that_needs_no_tool_is_the_conversation_and_the_persons_words() -> None:
    request = build_answer_request(
        packet("What was my number?"), system="S", history=HISTORY, settings=SETTINGS
    )
    assert [message.text for message in request.messages] == [
        f"S\n\n{ANSWER_RULES}",
        "My lucky number is 7.",
        "Noted.",
        "What was my number?",
    ]


@proves("C9")
def test_answers_with_and_without_results_begin_with_the_conversation_before_them() -> None:
    first = build_answer_request(packet("Hello"), system="S", history=(), settings=SETTINGS)
    history = create_history("Hello", "Hello to you.")
    second = build_answer_request(packet("Time?", step(1)), system="S", history=history, settings=SETTINGS)
    later = (*history, *create_history("Time?", "Five, says the time server."))
    third = build_answer_request(packet("Thanks"), system="S", history=later, settings=SETTINGS)
    assert second.messages[:2] == first.messages
    assert third.messages[:3] == second.messages[:3]
    assert second.messages[3].text.startswith(third.messages[3].text)


def test_a_result_beyond_all_bounds_is_cut_and_keeps_the_end_of_its_fence() -> None:
    huge = "<data-9>\n" + "x" * (2 * MAX_STEP_LENGTH) + "\n</data-9>"
    request = build_answer_request(packet("?", step(1, text=huge)), system="", history=(), settings=SETTINGS)
    asked = request.messages[-1].text
    assert len(asked) < MAX_STEP_LENGTH + 2000
    assert "[cut here]" in asked
    assert "\n</data-9>" in asked


def test_the_sources_are_the_tools_that_returned_something_each_once() -> None:
    steps = (step(1), step(2), step(3, "web/fetch", success=False), step(4, "files/read_file"))
    assert format_sources(steps) == "Sources: time/get_current_time, files/read_file"
    assert format_sources(steps[:2]) == "Source: time/get_current_time"
    assert format_sources(steps[:1], language="he") == "מקור: time/get_current_time"
    assert format_sources(steps[2:3]) == ""
    many = format_sources([step(number, f"s/t{number}") for number in range(12)])
    assert many.endswith("s/t7 +4")


@table(
    ("text", "named"),
    [
        ("It is 14:05 (time/get_current_time).", True),
        ("According to `time__get_current_time` it is 14:05.", True),
        ("The get current time tool says 14:05.", True),
        ("The time server says 14:05.", True),
        ("השעה 14:05, לפי time.", True),
        ("Source: time", True),
        ("The time in Tokyo is 14:05.", False),
        ("I do not know what time it is.", False),
        ("", False),
    ],
)
def test_whether_an_answer_names_its_source(text: str, named: bool) -> None:
    assert has_source_name(text, [step(1)]) is named


def test_a_tool_that_failed_is_no_source() -> None:
    assert not has_source_name("time/get_current_time failed", [step(1, success=False)])


@pytest.mark.slow
@given(text=st.text(), tool=st.text(max_size=40))
def test_any_text_and_any_name_can_be_looked_at(text: str, tool: str) -> None:
    steps = [step(1, tool)]
    assert isinstance(has_source_name(text, steps), bool)
    assert tool in format_sources(steps)
