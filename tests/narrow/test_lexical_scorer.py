"""Tools by their words: what is found, in which languages, and what slips are forgiven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog.tool_names import count_edits
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.lexical_terms import iterate_terms, stem_word
from fingerpost.records import ToolCard
from tests.kit.scorers import EVERYDAY, ask, best, cards, tool
from tests.kit.tables import table


def scorer_of(tools: tuple[ToolCard, ...]) -> LexicalScorer:
    scorer = LexicalScorer()
    scorer.prepare(tools)
    return scorer


@table(
    ("word", "same"),
    [
        ("searching", "searches"),
        ("created", "creates"),
        ("queries", "query"),
        ("planned", "planning"),
        ("deletion", "delete"),
        ("relational", "relate"),
        ("electricity", "electrical"),
        ("hopefulness", "hopeful"),
    ],
)
def test_forms_of_a_word_have_one_stem(word: str, same: str) -> None:
    assert stem_word(word) == stem_word(same)


@table(
    ("word", "expected"),
    [
        ("sky", "sky"),
        ("agreed", "agre"),
        ("fizzed", "fizz"),
        ("filing", "file"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("yes", "ye"),
        ("at", "at"),
        ("קבצים", "קבצים"),
        ("mp3", "mp3"),
    ],
)
def test_stems_are_those_of_the_published_algorithm(word: str, expected: str) -> None:
    assert stem_word(word) == expected


def test_names_in_camel_case_are_their_words_and_brands_also_one() -> None:
    assert list(iterate_terms("getAirQuality")) == ["get", "air", "qualiti"]
    assert list(iterate_terms("GitHub")) == ["git", "hub", "github"]
    assert list(iterate_terms("snake_case-name 2024 café")) == ["snake", "case", "name", "cafe"]


@table(
    ("request_text", "tool_key"),
    [
        ("Will it rain? Give me the weather forecast for Rome", "weather/get_forecast"),
        ("send Dana an email", "gmail/send_message"),
        ("opening an issue for this bug", "github/create_issue"),
        ("pull requests please", "github/list_pull_requests"),
        ("use get_air_quality for Delhi", "weather/getAirQuality"),
        ("read the files", "files/read_file"),
    ],
)
def test_shared_words_find_the_tool(request_text: str, tool_key: str) -> None:
    assert best(scorer_of(EVERYDAY), EVERYDAY, request_text) == tool_key


@pytest.mark.parametrize(
    ("request_text", "tool_key"),
    [
        ("erase the branch", "github/delete_branch"),
        ("find something in my inbox", "gmail/search_messages"),
        ("save this document", "files/write_file"),
    ],
)
def test_everyday_words_find_the_tool_that_says_it_otherwise(request_text: str, tool_key: str) -> None:
    assert best(scorer_of(EVERYDAY), EVERYDAY, request_text) == tool_key


@table(
    ("request_text", "tool_key"),
    [
        ("forcast", "weather/get_forecast"),
        ("delte that brnach", "github/delete_branch"),
        ("the repositroy issue", "github/create_issue"),
        ("go to this webpage", "browser/open_page"),
        ("mail box", "gmail/search_messages"),
    ],
)
def test_a_slip_of_the_pen_or_a_missing_space_is_forgiven(request_text: str, tool_key: str) -> None:
    assert best(scorer_of(EVERYDAY), EVERYDAY, request_text) == tool_key


def test_a_known_word_is_never_bent_to_another() -> None:
    tools = cards(a=[tool("forms", "Fills it in."), tool("farms", "Feeds it.")])
    scores = dict(
        zip((card.name for card in tools), scorer_of(tools).scores(ask("the farm"), tools), strict=True)
    )
    assert scores["farms"] > 0
    assert scores["forms"] == 0


@table(
    ("left", "right", "counted"),
    [
        ("weather", "wether", 1),
        ("file", "flie", 1),
        ("a", "abc", 2),
        ("same", "same", 0),
        ("abcd", "wxyz", 3),
    ],
)
def test_slips_are_counted_up_to_a_bound(left: str, right: str, counted: int) -> None:
    assert count_edits(left, right, limit=2) == count_edits(right, left, limit=2) == counted


def test_chinese_japanese_and_korean_are_found_without_spaces() -> None:
    tools = cards(
        a=[
            tool("t1", "查询航班信息并预订机票"),
            tool("t2", "发送电子邮件给联系人"),
            tool("t3", "天気予報を取得する"),
            tool("t4", "파일을 삭제합니다"),
        ]
    )
    scorer = scorer_of(tools)
    assert best(scorer, tools, "帮我订一张去北京的机票") == "a/t1"
    assert best(scorer, tools, "给小王发一封邮件") == "a/t2"
    assert best(scorer, tools, "明日の天気は？") == "a/t3"
    assert best(scorer, tools, "이 파일 삭제해 줘") == "a/t4"


def test_hebrew_is_found_by_its_own_words_and_by_its_gloss() -> None:
    tools = (*EVERYDAY, *cards(local=[tool("t", "שליחת הודעה למשפחה")]))
    scorer = scorer_of(tools)
    assert best(scorer, tools, ask("הוֹדָעָה", language="he")) == "local/t"
    glossed = ask("מה התחזית למחר", gloss="forecast tomorrow", language="he")
    assert best(scorer, tools, glossed) == "weather/get_forecast"


def test_accents_and_capitals_do_not_matter() -> None:
    tools = cards(a=[tool("t1", "Prépare le résumé"), tool("t2", "Something else")])
    assert best(scorer_of(tools), tools, "RESUME") == "a/t1"


def test_no_shared_word_is_a_score_of_zero() -> None:
    assert not scorer_of(EVERYDAY).scores(ask("xylophone qqq"), EVERYDAY).any()


def test_scores_come_in_the_order_of_the_cards() -> None:
    scorer = scorer_of(EVERYDAY)
    there = scorer.scores(ask("delete a branch"), EVERYDAY)
    scorer.prepare(EVERYDAY[::-1])
    back = scorer.scores(ask("delete a branch"), EVERYDAY[::-1])
    assert np.allclose(there, back[::-1], atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_a_catalog_of_none_one_or_ten_thousand_identical_tools_is_scored(count: int) -> None:
    one = cards(a=[tool("read_file", "Reads a file.", path="Where it is")])
    scores = scorer_of(one * count).scores(ask("read a file"), one * count)
    assert scores.shape == (count,)
    assert np.isfinite(scores).all()
    assert (scores > 0).all()
    assert len(set(scores.tolist())) <= 1


JUNK = [
    "",
    " ",
    "\x00\x00",
    "🙂🙂",
    "\ud800",
    "?!.,;",
    "a" * 1_000_000,
    "read файл 文件 קובץ 🙂",
    "x " * 500_000,
    "0" * 99,
]


@table("text", JUNK, ids=[repr(text[:12]) for text in JUNK])
def test_junk_is_answered(text: str) -> None:
    scores = scorer_of(EVERYDAY).scores(ask(text, gloss=text), EVERYDAY)
    assert scores.shape == (len(EVERYDAY),)
    assert np.isfinite(scores).all()


@given(st.text(max_size=400))
def test_any_request_gets_finite_scores_that_are_not_negative(text: str) -> None:
    scores = SHARED.scores(ask(text), EVERYDAY)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()


SHARED = scorer_of(EVERYDAY)
