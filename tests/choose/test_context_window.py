from __future__ import annotations

import itertools

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fingerpost.choose.context_window import (
    MAX_TRANSCRIPT_LENGTH,
    FittedHistory,
    SummaryCache,
    count_message_tokens,
    fit_history,
    fit_packet_history,
    split_into_units,
)
from fingerpost.errors import ModelUnavailable
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Message
from fingerpost.testing.models import HANG, ScriptedModel
from tests.kit.choices import create_history, packet
from tests.requirements import proves


def quarter(text: str) -> int:
    return -(-len(text) // 4)


def build_conversation(turns: int, *, characters: int = 200) -> tuple[Message, ...]:
    """A conversation of so many numbered questions and answers."""
    return create_history(*(f"message {number} ".ljust(characters, ".") for number in range(2 * turns)))


async def cut(history: tuple[Message, ...], budget: int) -> FittedHistory:
    return await fit_history(None, history, budget=budget, count=quarter)


@proves("B12", "B6")
async def test_the_history_goes_in_whole_as_long_as_it_fits() -> None:
    history = build_conversation(20)
    model = ScriptedModel([])
    made = await fit_packet_history(
        packet(history=history), window_tokens=8000, reserve=2000, count=quarter, ask=model.complete
    )
    assert made.history == history
    assert (made.by, made.left_out, made.tokens_after) == ("", 0, made.tokens_before)


async def test_what_else_must_fit_leaves_less_room_for_the_history() -> None:
    history = build_conversation(20)
    made = await fit_packet_history(packet(history=history), window_tokens=8000, reserve=7000, count=quarter)
    assert made.by == "cut"
    assert made.tokens_after <= 1000 < made.tokens_before
    crowded = await fit_packet_history(
        packet(history=history), window_tokens=8000, reserve=2000, count=quarter, system="x" * 20_000
    )
    assert crowded.by == "cut"
    assert (
        await fit_packet_history(packet(history=history), window_tokens=500, reserve=900, count=quarter)
    ).history == ()


async def test_a_model_puts_the_beginning_into_fewer_words_once_and_is_not_asked_again() -> None:
    history, memory = build_conversation(30), SummaryCache()
    model = ScriptedModel(["They spoke of messages 0 to 9."])
    first = await fit_history(model.complete, history, budget=2000, count=quarter, summaries=memory)
    again = await fit_history(model.complete, history, budget=2000, count=quarter, summaries=memory)
    assert first == again
    assert len(model.asked) == 1
    assert first.by == "scripted"
    assert "written by a model" in first.history[0].text
    assert "They spoke of messages 0 to 9." in first.history[0].text
    assert first.tokens_after <= 2000 < first.tokens_before
    assert first.history[-1] == history[-1]
    assert first.left_out == len(history) - len(first.history)


async def test_the_next_summary_builds_on_the_one_before() -> None:
    memory = SummaryCache()
    model = ScriptedModel(["SUMMARY ONE", "SUMMARY TWO"])
    history = build_conversation(60)
    length, texts = 0, list[str]()
    while len(texts) < 2:
        length += 2
        made = await fit_history(
            model.complete, history[:length], budget=2000, count=quarter, summaries=memory
        )
        if made.summary and made.summary not in texts:
            texts.append(made.summary)
    assert "SUMMARY ONE" in texts[0]
    assert "SUMMARY TWO" in texts[1]
    second = model.asked[1].messages[-1].text
    assert "SUMMARY ONE" in second
    assert "message 0 " not in second, "what is in the first summary is not read again"


@proves("C9")
async def test_the_cut_stays_in_its_place_for_many_turns() -> None:
    history = build_conversation(100)
    starts = list[str]()
    for length in range(2, len(history) + 1, 2):
        made = await cut(history[:length], 2000)
        starts.append(made.history[0].text)
    moves = sum(1 for one, other in itertools.pairwise(starts) if one != other)
    assert 1 <= moves <= 100 / 8


@proves("C9")
async def test_a_longer_question_hardly_ever_moves_the_cut() -> None:
    history = build_conversation(40)
    starts: set[str] = set()
    for length in range(4, 800, 4):  # up to 200 tokens, less than one step of the window
        made = await fit_packet_history(
            packet("?" * length, history=history), window_tokens=4000, reserve=1000, count=quarter
        )
        assert made.by == "cut"
        starts.add(made.history[0].text)
    assert len(starts) <= 2


async def test_without_a_model_the_first_words_and_the_latest_turns_are_kept() -> None:
    made = await cut(build_conversation(30), 1000)
    assert "began with: message 0" in made.history[0].text
    assert f"[{made.left_out} messages are left out here]" in made.history[0].text
    assert made.history[-1].text.startswith("message 59")
    assert made.history[0].role == "user"


@pytest.mark.parametrize("failure", [ModelUnavailable("gone", model="lite"), "", "<think>hm</think>"])
async def test_a_model_that_fails_or_says_nothing_is_done_without(failure: Exception | str) -> None:
    made = await fit_history(
        ScriptedModel([failure]).complete, build_conversation(30), budget=1000, count=quarter
    )
    assert made == await cut(build_conversation(30), 1000)


async def test_an_endless_summary_is_bounded_and_so_is_the_question() -> None:
    model = ScriptedModel(["word " * 100_000])
    made = await fit_history(
        model.complete, build_conversation(200, characters=4000), budget=4000, count=quarter
    )
    assert made.tokens_after <= 4000
    asked = sum(len(message.text) for message in model.asked[0].messages)
    assert asked < MAX_TRANSCRIPT_LENGTH + 3000
    assert model.asked[0].max_tokens is not None
    assert model.asked[0].max_tokens <= 800


async def test_cancelling_ends_the_wait_for_a_summary() -> None:
    with anyio.move_on_after(0.05) as scope:
        await fit_history(ScriptedModel([HANG]).complete, build_conversation(30), budget=1000, count=quarter)
    assert scope.cancelled_caught


def test_a_tools_reply_belongs_to_its_call() -> None:
    call = Message(role="assistant", text="", tool_calls=({"id": "1"}, {"id": "2"}))
    replies = (
        Message(role="tool", text="a", tool_call_id="1"),
        Message(role="tool", text="b", tool_call_id="2"),
    )
    asked, thanks = create_history("Do it")[0], Message(role="user", text="thanks")
    assert split_into_units([asked, call, *replies, thanks]) == [(asked,), (call, *replies), (thanks,)]


MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "tool", "system"]),
        text=st.text(max_size=300),
        tool_calls=st.sampled_from([(), ({"id": "c", "function": {"name": "f", "arguments": "{}"}},)]),
    ),
    max_size=40,
).map(tuple)


@pytest.mark.slow
@given(history=MESSAGES, budget=st.integers(0, 1500), summary=st.none() | st.text(max_size=3000))
def test_whatever_was_said_it_fits_and_no_reply_loses_its_call(
    history: tuple[Message, ...], budget: int, summary: str | None
) -> None:
    async def ask(request: ModelRequest) -> ModelReply:
        return ModelReply(text=summary or "", model="m")

    made = anyio.run(
        lambda: fit_history(None if summary is None else ask, history, budget=budget, count=quarter)
    )
    assert made.tokens_after == sum(count_message_tokens(message, quarter) for message in made.history)
    if not made.by:
        assert made.history == history
        return
    system = [message for message in history if message.role == "system"]
    units = [unit for unit in split_into_units(history) if unit[0].role != "system" or len(unit) > 1]
    assume(all(unit[0].role != "system" for unit in units))  # a reply to no call, behind the system's words
    assert [message for message in made.history if message.role == "system"] == system, "never cut"
    fitted = [message for message in made.history if message.role != "system"]
    assert sum(count_message_tokens(message, quarter) for message in fitted) <= budget
    if fitted:
        talked = [message for unit in units for message in unit]
        kept = len(talked) - made.left_out
        shapes = [[(m.role, m.tool_calls) for m in side[len(side) - kept :]] for side in (fitted, talked)]
        assert shapes[0] == shapes[1], "what is kept is the end of the conversation"
        assert made.left_out == 0 or kept == 0 or talked[made.left_out].role != "tool"
