"""Whether a request needs a tool: through the judge, with the signals a real reader gives."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog.words import parse_word_set
from fingerpost.narrow.need.classifier import NeedClassifier
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import Mention, Message, Need, NeedVerdict, Signals
from fingerpost.settings import NarrowSettings
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves

READER = SignalReader()
READER.prepare(())
NOTES = SignalReader()
NOTES.prepare(catalog(create_listing("note", tool("write_note"), tool("look"))).snapshot.cards)
JUDGE = NeedClassifier(NarrowSettings())


def classify(text: str, *history: tuple[str, str]) -> Need:
    turns = tuple(Message(role=role, text=turn_text) for role, turn_text in history)
    return JUDGE.classify(text, READER.read(text), turns)


@proves("A2")
@table(
    "text",
    [
        "open src/main.py and show me the imports",
        "read the file with the meeting notes",
        "execute the script that cleans the cache",
        "search the web for used kayaks",
        "What's the weather like in Bergen right now?",
        "Send Ruth the invoice by mail",
        "which meetings do I have on my calendar tomorrow",
        "Find me a cheap flight to Lisbon next Friday",
        "make a bar chart of our monthly sales",
        "תפתח את הקובץ config.yaml",
        "תשלח לרות הודעה שאני בדרך",
        "מה מזג האוויר באילת עכשיו?",
        "תמצא לי טיסה זולה לליסבון",
    ],
)
def test_a_request_for_files_actions_or_live_facts_needs_a_tool(text: str) -> None:
    need = classify(text)
    assert need.verdict is NeedVerdict.TOOL
    assert need.reasons


@proves("A2", "B6")
@table(
    "text",
    [
        "hi there",
        "thank you so much!",
        "what is 14 * 3?",
        "What's the capital of France?",
        "How does photosynthesis work?",
        "Tell me a joke",
        "Write a poem about the sea",
        "Explain what recursion is",
        "Should I tell my friend the truth?",
        "Rewrite this sentence more formally: gotta go, see ya",
        "How do I sort a dictionary by value in Python?",
        "שלום, מה שלומך?",
        "כמה זה 14 כפול 3?",
        "תסביר לי איך עובדת פוטוסינתזה",
        "תכתוב שיר על הים",
        "למה הים מלוח?",
    ],
)
def test_small_talk_sums_knowledge_explanations_and_writing_need_none(text: str) -> None:
    need = classify(text)
    assert need.verdict is NeedVerdict.NONE
    assert need.reasons


@proves("A2")
@table(
    ("without", "with_tool"),
    [
        ("write a tweet about our new bakery", "post a tweet about our new bakery"),
        ("what is a stock split?", "what is Nvidia's stock trading at today?"),
        ("explain what git rebase does", "rebase my branch onto main"),
        ("what does a calendar week mean?", "what's on my calendar this week?"),
        ("how are weather forecasts made?", "what's the weather forecast for Turin?"),
        ("תכתוב הודעה לחברה שאני מאחר", "תשלח הודעה לחברה שאני מאחר"),
        ("מה זה שער חליפין?", "מה שער הדולר היום?"),
    ],
)
def test_requests_that_differ_in_one_thing_are_told_apart(without: str, with_tool: str) -> None:
    assert classify(without).score < 0.5 <= classify(with_tool).score


@proves("B6")
@table(
    ("text", "asked"),
    [
        ("My lucky number is 23.", "what was my lucky number?"),
        ("My sister Carla lives in Turin.", "where did I say Carla lives?"),
        ("We decided to paint the door green.", "remind me what we decided about the door"),
        ("מספר המזל שלי הוא 23", "מה היה מספר המזל שלי?"),
    ],
)
def test_what_the_conversation_holds_is_answered_from_it(text: str, asked: str) -> None:
    need = classify(asked, ("user", text), ("assistant", "Noted."))
    assert need.verdict is NeedVerdict.NONE
    assert need.reasons == ("the conversation already contains the answer",)


@proves("B6")
def test_what_the_conversation_does_not_hold_is_not_taken_from_it() -> None:
    chatter = (("user", "My lucky number is 23."), ("assistant", "Noted."))
    need = classify("what is the balance of my account?", *chatter)
    assert need.verdict is NeedVerdict.TOOL


@proves("B6")
@pytest.mark.parametrize("asked", ["shorter please", "can you say that more simply?", "thanks!"])
def test_a_wish_about_the_last_answer_needs_none_even_after_a_tool(asked: str) -> None:
    weather = (("user", "What's the weather in Rome?"), ("assistant", "It is 21 degrees and sunny."))
    assert classify(asked, *weather).verdict is NeedVerdict.NONE


@proves("B6")
@table(
    ("before", "answer", "asked"),
    [
        ("What's the weather in Rome right now?", "21 degrees.", "and now in Paris?"),
        ("Find me a flight to Oslo on Monday", "89 euros.", "what about Tuesday?"),
        ("Delete the old branches", "Shall I delete these three?", "yes, go ahead"),
        ("מה מזג האוויר ברומא?", "21 מעלות.", "ובפריז?"),
    ],
)
def test_a_request_that_leans_on_one_with_a_tool_needs_one(before: str, answer: str, asked: str) -> None:
    assert classify(asked, ("user", before), ("assistant", answer)).verdict is NeedVerdict.TOOL


@proves("B6")
def test_a_request_that_leans_on_one_without_a_tool_needs_none() -> None:
    before = (("user", "Who wrote the novel Emma?"), ("assistant", "Jane Austen."))
    assert classify("and Persuasion?", *before).verdict is NeedVerdict.NONE


@proves("A2")
@table("text", ["", "   \n\t", "🙂🙂🙂", "?!…", "\u200f"])
def test_where_nothing_was_asked_none_is_needed(text: str) -> None:
    need = classify(text)
    assert need.verdict is NeedVerdict.NONE
    assert need.reasons == ("nothing was asked",)


@proves("A2")
def test_a_megabyte_is_read_at_its_ends_only() -> None:
    text = "Search the web for this error: " + "lorem ipsum dolor " * 60_000
    tracemalloc.start()
    need = JUDGE.classify(text, Signals())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 <= need.score <= 1
    assert peak < 2_000_000  # a copy of the text would be a megabyte, its words fifty


@proves("A2")
def test_a_tool_named_outright_is_needed() -> None:
    named = Signals(mentions=(Mention(kind="server", name="ledger", text="ledger"),))
    plain = JUDGE.classify("the totals from ledger", Signals())
    need = JUDGE.classify("the totals from ledger", named)
    assert need.verdict is NeedVerdict.TOOL
    assert need.score >= plain.score
    assert need.reasons[0] == 'names the server "ledger"'


@proves("A2")
@table(
    "text",
    [
        'Use note/write_note to write the text "hello"',
        "use note__write_note to write hello",
        'Please write "x" with note__write_note',
        "Write a note with note/write_note: explain the plan to Bob",
        "Use note/look to explain my notes to me",
        "NOTE/WRITE_NOTE",
    ],
)
def test_a_tool_named_with_its_server_is_needed_whatever_it_is_used_for(text: str) -> None:
    need = JUDGE.classify(text, NOTES.read(text))
    assert need.verdict is NeedVerdict.TOOL
    assert need.reasons[0].startswith('names the tool "note/')
    assert JUDGE.classify(text, READER.read(text)).reasons[0] != need.reasons[0]  # there is no such tool here


@proves("A2")
@table(
    "text",
    [
        "what does note/write_note do?",
        "explain what note__write_note does",
        "how do I use note/write_note?",
        "write a poem about note/write_note",
        "write a python function like note__write_note",
        "Rewrite this more formally: I used note/write_note yesterday",
        "write a short note to my aunt",  # the words of a name are not the name
    ],
)
def test_a_request_about_a_tool_or_a_text_that_names_one_needs_none(text: str) -> None:
    assert JUDGE.classify(text, NOTES.read(text)).verdict is NeedVerdict.NONE


@pytest.mark.slow
@proves("A2")
@given(text=st.text(max_size=200), name=st.sampled_from(["note/write_note", "note__look", "note.look"]))
def test_what_stands_behind_a_tools_name_does_not_undo_it(text: str, name: str) -> None:
    asked = f"use {name} {text}"
    assert JUDGE.classify(asked, NOTES.read(asked)).verdict is NeedVerdict.TOOL


@proves("A2")
@table("text", ["My flight to Lisbon is next Friday", "I moved to Bergen where the weather is bad"])
def test_what_the_person_tells_about_themselves_needs_none(text: str) -> None:
    need = classify(text)
    assert need.verdict is NeedVerdict.NONE
    assert need.reasons[0] == "tells something about the person"


def test_a_language_without_data_is_left_unclear_unless_it_names_a_file() -> None:
    assert JUDGE.classify("明天的会议几点开始", Signals(language="zh")).verdict is NeedVerdict.UNCLEAR
    assert JUDGE.classify("打开 /srv/data/report.csv", Signals(language="zh")).score > 0.5


@proves("A2")
def test_the_thresholds_are_the_settings() -> None:
    text = "What's the weather like in Bergen right now?"
    strict = NeedClassifier(NarrowSettings(tool_above=1.0, none_below=0.0))
    assert strict.classify(text, READER.read(text)).verdict is NeedVerdict.UNCLEAR
    eager = NeedClassifier(NarrowSettings(tool_above=0.0, none_below=0.0))
    assert eager.classify("hello", READER.read("hello")).verdict is NeedVerdict.TOOL


@proves("A2")
def test_reasons_are_few_and_name_the_words() -> None:
    need = classify("Can you find the latest news about the election in my inbox and on Reddit, please?")
    assert 1 <= len(need.reasons) <= 4
    assert any('"' in reason for reason in need.reasons)


@proves("A2")
def test_a_vector_moves_the_score_and_keeps_it_in_bounds() -> None:
    text = "tell me about the harbour"
    plain = JUDGE.classify(text, Signals()).score
    scores = {plain}
    for seed in range(5):
        drawn = np.random.default_rng(seed).normal(size=384)
        vector = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        scores.add(JUDGE.classify(text, Signals(), (), vector).score)
    assert len(scores) > 1
    assert all(0 <= score <= 1 for score in scores)


texts = st.text(max_size=400) | st.lists(
    st.sampled_from(
        sorted(
            parse_word_set(
                "please find write my file explain the weather what is why מה תשלח קובץ 12 + ? . run yes"
            )
        )
    ),
    max_size=30,
).map(" ".join)


@pytest.mark.slow
@proves("A2")
@given(text=texts, earlier=st.lists(texts, max_size=3))
def test_any_text_gets_a_verdict_that_fits_its_score(text: str, earlier: list[str]) -> None:
    history = [
        Message(role="user" if place % 2 == 0 else "assistant", text=turn_text)
        for place, turn_text in enumerate(earlier)
    ]
    need = JUDGE.classify(text, READER.read(text), history)
    assert 0 <= need.score <= 1
    assert (need.verdict is NeedVerdict.TOOL) == (need.score >= 0.6)
    assert (need.verdict is NeedVerdict.NONE) == (need.score <= 0.4)
    assert 1 <= len(need.reasons) <= 4
    assert need == JUDGE.classify(text, READER.read(text), history)


@pytest.mark.slow
@proves("A2")
@given(
    words=st.lists(
        st.sampled_from(
            sorted(
                parse_word_set(
                    """
                    please find write my file explain weather what is why poem joke translate sentence hello
                    thanks should send post the a python function מה תכתוב שיר
                    """
                )
            )
        ),
        min_size=1,
        max_size=12,
    ),
    path=st.sampled_from(["/srv/data/report.csv", "notes.md", "~/todo.txt", "src/app/main.py"]),
)
def test_naming_a_file_never_lowers_the_score(words: list[str], path: str) -> None:
    text = " ".join(words)
    assert JUDGE.classify(f"{text} {path}", Signals()).score >= JUDGE.classify(text, Signals()).score - 1e-9


def test_the_training_data_is_labelled_varied_and_balanced() -> None:
    data = Path(__file__).parents[3] / "training" / "data" / "need" / "requests.jsonl"
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 1400
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({(row["query"], json.dumps(row.get("history"))) for row in rows}) == len(rows)
    assert 0.45 < sum(row["needs_tool"] for row in rows) / len(rows) < 0.55
    assert 0.28 < sum(row["lang"] == "he" for row in rows) / len(rows) < 0.4
    with_history = [row for row in rows if row.get("history")]
    right = sum(
        (classify(row["query"], *((turn["role"], turn["content"]) for turn in row["history"])).score >= 0.5)
        == row["needs_tool"]
        for row in with_history
    )
    assert right / len(with_history) >= 0.9  # these were not fitted on: rules decide them
