"""What is read of a tool and of a request."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.scorer import (
    MAX_DESCRIPTION_LENGTH,
    MAX_SENTENCES,
    build_tool_text,
    split_sentences,
    split_tool_name,
)
from fingerpost.records import Json
from tests.kit.scorers import cards, tool
from tests.kit.tables import table


def test_a_tool_is_written_as_server_name_description_and_parameters() -> None:
    (card,) = cards(myServer=[tool("getUserById", "Finds a user.", userId="The id", verbose="")])
    assert build_tool_text(card).format_long() == (
        "my server - get user by id: Finds a user. Parameters: user id The id verbose"
    )


def test_a_tool_without_description_and_parameters_is_its_name() -> None:
    (card,) = cards(a=[tool("ping")])
    assert build_tool_text(card).format_long() == "a - ping: "


@table(
    ("name", "words"),
    [
        ("getUserById", "get user by id"),
        ("get-user_by.id", "get user by id"),
        ("HTTPServer", "http server"),
        ("convertMP3", "convert mp3"),
        ("קרא_קובץ", "קרא קובץ"),
        ("", ""),
    ],
)
def test_names_are_split_into_words(name: str, words: str) -> None:
    assert split_tool_name(name) == words


def test_what_a_parameter_says_is_cut_short_at_a_word() -> None:
    (card,) = cards(a=[tool("t", "d", p="word " * 50)])
    assert build_tool_text(card).format_long().endswith("Parameters: p" + " word" * 12)


def test_the_values_a_parameter_may_take_are_words_of_the_tool() -> None:
    operations: dict[str, Json] = {
        "operation": {"type": "string", "enum": ["createTable", "drop", 7, None]},
        "tags": {"type": "array", "items": {"enum": ["urgent"]}},
        "odd": {"enum": "not a list"},
        "odder": True,
    }
    definition: dict[str, Json] = {"name": "db", "inputSchema": {"type": "object", "properties": operations}}
    (card,) = cards(a=[definition])
    text = build_tool_text(card)
    assert [parameter.values for parameter in text.parameters] == [
        ("create table", "drop"),
        ("urgent",),
        (),
        (),
    ]
    assert text.format_long() == "a - db:  Parameters: operation tags odd odder"


def test_what_cannot_be_seen_is_not_read() -> None:
    hidden = "Reads\u200b a\x00 file\u202e.\n\nIgnore\ufeff this\U000e0041."
    (card,) = cards(a=[tool("t", hidden)])
    assert build_tool_text(card).description == "Reads a file . Ignore this ."


def test_a_huge_description_is_read_only_at_its_beginning() -> None:
    (card,) = cards(a=[tool("t", "x " * 60_000)])
    assert len(build_tool_text(card).description) <= MAX_DESCRIPTION_LENGTH


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_description_gives_one_line_of_bounded_valid_text(description: str, about: str) -> None:
    made = cards(a=[tool("t", description.encode("utf-8", "replace").decode(), p=about)])
    for card in made:
        line = build_tool_text(card).format_long()
        assert line.encode()
        assert re.search(r"[\x00-\x1f\x7f\u200b\u202e\n]", line) is None


def test_a_request_of_several_sentences_is_split_and_the_empty_ones_left_out() -> None:
    text = "Find me a flight to Rome. Thanks! Then put it into my calendar.\nAnd tell Dana about it; ok?"
    assert split_sentences(text) == (
        "Find me a flight to Rome.",
        "Then put it into my calendar.",
        "And tell Dana about it;",
    )


def test_chinese_sentences_need_no_spaces() -> None:
    assert split_sentences("我家的电视需要维修。请帮我预约时间！好。") == (
        "我家的电视需要维修。",
        "请帮我预约时间！",
    )


@table("text", ["", "Hi.", "What is the weather in Paris?", "See www.example.com/a.b for it"])
def test_a_request_of_one_sentence_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == ()


def test_a_megabyte_of_sentences_gives_the_first_few() -> None:
    assert len(split_sentences("This is one sentence. " * 50_000)) == MAX_SENTENCES
