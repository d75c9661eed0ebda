"""Long texts as messages: whole, in order, and no block of code torn open."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.surfaces.discord.messages import MAX_MESSAGE_LENGTH, split_message
from tests.requirements import proves

_WORDS = st.text(alphabet="ab é`\n\U0001f44d*_#", max_size=60)
_CODE = st.builds(
    "```{}\n{}\n```".format,
    st.sampled_from(["", "py", "c++", "text"]),
    st.text(alphabet="xy =\n\t(", min_size=1, max_size=300),
)
_TEXTS = st.lists(st.one_of(_WORDS, _CODE, st.text(max_size=40)), max_size=12).map("\n".join)


def in_and_out(text: str) -> list[tuple[str, bool]]:
    """Every character one can see, and whether it is code; marks and languages left out."""
    seen: list[tuple[str, bool]] = []
    inside = False
    for number, part in enumerate(text.replace("\r\n", "\n").split("```")):
        inside = number % 2 == 1
        if inside:
            part = re.sub(r"\A[A-Za-z0-9_+.#-]{1,24}(?=\n)", "", part)
        seen += [(character, inside) for character in part if not character.isspace()]
    return seen


@proves("T3")
@given(_TEXTS, st.integers(min_value=80, max_value=400))
@example("```py\n" + "x = 1\n" * 50 + "```", 100)
@example("word " * 100 + "```" + "a" * 300, 80)
def test_pieces_hold_the_whole_text_in_order_and_no_block_is_torn(text: str, limit: int) -> None:
    found = split_message(text, limit)
    assert all(piece.strip() and len(piece) <= limit for piece in found)
    assert [one for piece in found for one in in_and_out(piece)] == in_and_out(text)
    assert all(piece.count("```") % 2 == 0 for piece in found)


@proves("T3")
def test_a_block_goes_on_in_the_next_message_with_its_language() -> None:
    text = "Here it is:\n\n```python\n" + "print('hello')\n" * 200 + "```\n\nThat was it."
    found = split_message(text)
    assert len(found) > 1
    assert all(piece.startswith("```python\n") for piece in found[1:])
    assert all(piece.endswith("\n```") for piece in found[:-1])
    assert found[-1].endswith("That was it.")


@proves("T3")
def test_paragraphs_are_kept_together_then_lines_then_words() -> None:
    paragraphs = "\n\n".join(f"Paragraph {number}. " + "Some words. " * 40 for number in range(12))
    assert all(piece.startswith("Paragraph") for piece in split_message(paragraphs))
    lines = "\n".join(f"line {number} " + "word " * 20 for number in range(100))
    assert all(piece.startswith("line") for piece in split_message(lines))
    words = "wonderful " * 1000
    assert all(
        piece.startswith("wonderful") and piece.endswith("wonderful") for piece in split_message(words)
    )


def test_a_short_text_is_one_message_as_it_is() -> None:
    assert split_message("Hello **there**.") == ("Hello **there**.",)
    assert split_message("") == () == split_message(" \n ")
    assert max(len(piece) for piece in split_message("x" * 9000)) <= MAX_MESSAGE_LENGTH
