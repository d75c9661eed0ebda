"""Thoughts without a beginning: kept apart whole, held back in streams once a model is known for them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.llm import ModelPool, ModelRequest, Role
from fingerpost.llm.base import ModelReply
from fingerpost.llm.capabilities import ReasoningFilter, split_reasoning
from fingerpost.records import Message
from fingerpost.testing import ScriptedModel
from tests.kit.tables import table
from tests.requirements import proves

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
ALOUD = "Okay, they say hello.\nI greet them.\n</think>\n\nHello!"


def create_reply(text: str) -> ModelReply:
    return ModelReply(text=text, model="m", finish="stop")


@proves("W10")
@table(
    ("text", "thoughts", "answer"),
    [
        (ALOUD, "Okay, they say hello.\nI greet them.", "Hello!"),
        ("hm</THINKING>\nYes.", "hm", "Yes."),
        ("</think>\n\nHello!", "", "Hello!"),
        # No thoughts, or nothing behind them, or only talk about such things.
        ("Hello!", "", "Hello!"),
        ("all thoughts</think>", "", "all thoughts</think>"),
        ("<think>a</think>\nb", "", "<think>a</think>\nb"),
        ("The </think> tag ends it.", "", "The </think> tag ends it."),
        ("Write\n```\na\n</think>\nb\n```", "", "Write\n```\na\n</think>\nb\n```"),
    ],
)
def test_what_stands_before_the_end_of_a_thought_is_no_answer(text: str, thoughts: str, answer: str) -> None:
    reply = split_reasoning(create_reply(text))
    assert (reply.reasoning, reply.text) == (thoughts, answer)


def test_a_server_that_keeps_thoughts_apart_itself_is_left_alone() -> None:
    reply = ModelReply(text=ALOUD, model="m", reasoning="mine")
    assert split_reasoning(reply) is reply


@proves("W10")
async def test_a_whole_reply_is_right_at_once_and_a_stream_from_the_next_on() -> None:
    pool = ModelPool(prime=ScriptedModel([ALOUD] * 4 + ["Plainly.", ALOUD]))
    assert (await pool.ask(Role.PRIME, HELLO)).text == "Hello!"
    for _ in range(3):
        pieces: list[str] = []
        reply = await pool.ask(Role.PRIME, HELLO, on_text=pieces.append)
        assert "".join(pieces) == reply.text == "Hello!"
        assert reply.reasoning.startswith("Okay")
    # One that stops doing so is believed, and nothing of it is lost.
    pieces = []
    assert (await pool.ask(Role.PRIME, HELLO, on_text=pieces.append)).text == "".join(pieces) == "Plainly."
    pieces = []
    assert (await pool.ask(Role.PRIME, HELLO, on_text=pieces.append)).text == "".join(pieces) == ALOUD


async def test_what_was_streamed_before_it_was_known_stays_as_it_was_said() -> None:
    pool = ModelPool(prime=ScriptedModel([ALOUD]))
    pieces: list[str] = []
    assert (await pool.ask(Role.PRIME, HELLO, on_text=pieces.append)).text == "".join(pieces) == ALOUD


@example(["</think>", "\n", "a"])
@given(
    st.lists(
        st.sampled_from(["a", "\n", " ", "<", "</", "think>", "</think>", "<think>", "ing>", "```", "`"]),
        max_size=10,
    )
)
def test_a_stream_says_what_the_whole_would_however_it_is_cut(pieces: list[str]) -> None:
    texts: list[str] = []
    held = ReasoningFilter(texts.append)
    for piece in pieces:
        held(piece)
    held.end()
    assert "".join(texts).strip() == split_reasoning(create_reply("".join(pieces))).text.strip()
