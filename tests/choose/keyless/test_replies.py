"""What a person reads where no model writes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.digest import fence_as_data
from fingerpost.choose.keyless.replies import (
    build_direct_reply,
    build_keyless_answer,
    evaluate_expression,
    remove_fence,
)
from fingerpost.records import Entity, EntityKind, Narrowing, Need, NeedVerdict, Step
from tests.choose.keyless.corpus import read
from tests.kit.tables import table

ABILITIES = ("time/get_current_time", "files/read_text_file")


def step(text: str, *, success: bool = True, tool: str = "time/get_current_time") -> Step:
    return Step(tool=tool, arguments={}, success=success, text=text)


def direct(text: str, *abilities: str) -> str:
    narrowing = Narrowing(need=Need(verdict=NeedVerdict.NONE, score=0.05), signals=read(text))
    return build_direct_reply(narrowing, text, abilities=abilities or ABILITIES)


def test_the_reply_of_the_tool_is_the_answer_and_says_who_wrote_it():
    answer = build_keyless_answer([step(fence_as_data("14:00 in Tokyo", "time/get_current_time"))])
    assert answer == (
        "From time/get_current_time:\n14:00 in Tokyo\n\n"
        "No language model is configured; this is the tool's own reply."
    )


def test_hebrew_is_answered_in_hebrew():
    answer = build_keyless_answer([step("14:00")], "he")
    assert answer.startswith("מתוך time/get_current_time:\n14:00")
    assert "לא מוגדר מודל שפה" in answer


def test_what_was_not_taken_into_account_is_said():
    answer = build_keyless_answer(
        [step("all lines")], unused_entities=[Entity(kind=EntityKind.NUMBER, text="10 lines")]
    )
    assert "Not used from your request: 10 lines." in answer


def test_a_failure_is_told_without_the_words_of_the_error():
    answer = build_keyless_answer(
        [step("execution_failed: Traceback (most recent call last)", success=False)]
    )
    assert "get_current_time failed" in answer
    assert "Traceback" not in answer


def test_a_reply_of_any_length_is_bounded_and_an_empty_one_is_said():
    assert len(build_keyless_answer([step("x" * 1_000_000)])) < 21_000
    assert "answered with nothing" in build_keyless_answer([step("  ")])


@given(text=st.text(max_size=300))
def test_unfencing_gives_back_what_was_fenced(text: str):
    shown = fence_as_data(text, "s/t").split("\n", 2)[2].rsplit("\n", 1)[0]
    assert remove_fence(fence_as_data(text, "s/t")) == shown


@table("text", ["hello", "hi there!", "Good morning", "היי", "שלום, מה נשמע?"])
def test_a_greeting_gets_a_greeting_and_what_can_be_done(text: str):
    answer = direct(text)
    assert answer.startswith(("Hello!", "שלום!"))
    assert "time/get_current_time" in answer


def test_thanks_and_goodbye_are_answered():
    assert (direct("thanks a lot"), direct("bye")) == ("You're welcome.", "Goodbye.")


def test_a_sum_is_worked_out():
    assert direct("what is 17*23?").startswith("391 ")
    assert direct("כמה זה 12 כפול 3?").startswith("36 ")


def test_everything_else_says_what_is_missing_and_how_to_get_it():
    answer = direct("write me a poem about the sea")
    assert "models.prime" in answer
    assert "time/get_current_time" in answer


def test_a_greeting_before_a_question_is_not_taken_for_the_whole():
    assert "models.prime" in direct("hello, why is the sky blue and the grass green?")


@table(
    ("text", "result"),
    [
        ("(3 + 4) * 12", "84"),
        ("0.1+0.2", "0.3"),
        ("1/3", "≈ 0.333333333333"),
        ("2^10", "1024"),
        ("-3^2", "-9"),
        ("2^-2", "0.25"),
        ("7 % 4", "3"),
        ("100 divided by 8", "12.5"),
        ("1,000 + 1", "1001"),
        ("10 - 3 - 2", "5"),
        ("9^9^9", None),
        ("2^200^200", None),
        ("1/0", None),
        ("5 % 0", None),
        ("2026-11-15", None),
        ("12/11/2026", None),
        ("3 apples + 2", None),
        ("__import__('os')", None),
        ("5", None),
        ("2+", None),
        ("(" * 100 + "1+1" + ")" * 100, None),
    ],
)
def test_sums_are_exact_or_not_told(text: str, result: str | None):
    assert evaluate_expression(text) == result


sums = st.recursive(
    st.integers(0, 999).map(lambda number: (str(number), Fraction(number))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda both: (
            f"({both[0][0]} {both[1]} {both[2][0]})",
            {
                "+": both[0][1] + both[2][1],
                "-": both[0][1] - both[2][1],
                "*": both[0][1] * both[2][1],
            }[both[1]],
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(one=sums, other=sums)
def test_a_sum_comes_out_as_it_should(one: tuple[str, Fraction], other: tuple[str, Fraction]):
    assert evaluate_expression(f"{one[0]} + {other[0]}") in (str(one[1] + other[1]), None)
    short = len(one[0]) + len(other[0]) < 60
    assert not short or evaluate_expression(f"{one[0]} - {other[0]}") == str(one[1] - other[1])


@given(text=st.text(alphabet="0123456789+-*/^%(). ", max_size=120))
def test_no_sum_takes_long_or_breaks_the_reader(text: str):
    result = evaluate_expression(text)
    assert result is None or len(result) < 200
