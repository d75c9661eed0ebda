"""Results cut to what fits: by their structure, honestly, and never beyond the budget."""

from __future__ import annotations

import base64
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.digest import build_digest, build_handle, compute_budget, count_tokens
from fingerpost.call.digest.blocks import read_parts
from fingerpost.records import CallContext, Digest, Known, Source
from fingerpost.settings.model import DigestSettings
from tests.kit.cards import card, snapshot
from tests.kit.tables import table
from tests.requirements import proves

CARD = card("get_things")
HANDLE = build_handle("call_1")


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts], **more}


def cut(result: dict[str, Any], budget: int, request: str = "", *, tool: Any = CARD) -> Digest:
    made = build_digest(result, tool, budget=budget, request=request, handle=HANDLE)
    assert made.tokens == count_tokens(made.text) <= budget
    return made


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=12), inner, max_size=12),
    max_leaves=60,
)
texts: st.SearchStrategy[str] = (
    st.text(max_size=2000)
    | st.lists(st.text(alphabet="abc ,|.אב\n", max_size=80), max_size=80).map("\n".join)
    | json_values.map(json.dumps)
    | st.lists(
        st.lists(st.integers(0, 9999).map(str), min_size=3, max_size=3).map(",".join), max_size=99
    ).map("\n".join)
    | st.text(alphabet="<>/abp &;!-", max_size=600).map(lambda some: f"<html><body>{some}")
)


def _text_block(some: str) -> Any:
    return {"type": "text", "text": some}


def _image(some: str) -> Any:
    return {"type": "image", "data": some, "mimeType": "image/png"}


def _link(some: str) -> Any:
    return {"type": "resource_link", "uri": some, "name": some}


def _resource(some: str) -> Any:
    return {"type": "resource", "resource": {"uri": "x:y", "text": some}}


blocks: st.SearchStrategy[Any] = (
    texts.map(_text_block)
    | st.text(max_size=300).map(_image)
    | st.text(max_size=30).map(_link)
    | texts.map(_resource)
    | json_values
)
results: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=6) | json_values},
    optional={"structuredContent": json_values, "isError": st.booleans()},
)
tools = st.sampled_from(
    snapshot(
        files=[{"name": "list_directory"}, {"name": "read_file"}],
        git=[{"name": "git_diff"}, {"name": "git_log"}],
        web=[{"name": "web_search"}],
    ).cards
)


@pytest.mark.slow
@proves("D6")
@given(results, tools, st.integers(0, 400), st.text(max_size=40))
@settings(max_examples=25, deadline=None)
def test_a_digest_never_takes_more_than_its_budget(
    result: dict[str, Any], tool: Any, budget: int, request: str
) -> None:
    made = cut(result, budget, request, tool=tool)
    if made.content_type == "json":
        json.loads(made.text)
    if not made.trimmed and not made.references:
        assert made.handle is None
        parts = read_parts(result)
        if all(part.value is None for part in parts):  # JSON may lose its blanks, and nothing else
            assert made.text == "\n".join(part.text for part in parts)


@table(
    "whole",
    ["", "fine", '{"a": [1, 2, 3]}', "a,b\n1,2\n3,4\n5,6\n", "<html><p>x</p></html>", "שלום\r\nעולם\t\u200f"],
)
@proves("D6")
def test_what_fits_is_not_touched(whole: str) -> None:
    made = cut(text(whole), 100)
    assert made.text == whole
    assert not made.trimmed
    assert made.handle is None


@proves("D6")
def test_a_list_keeps_both_ends_what_was_asked_about_and_the_count() -> None:
    people = [{"id": number, "name": f"person {number}"} for number in range(500)]
    people[321]["name"] = "Dana Levi"
    made = cut(text(json.dumps(people)), 400, "what is the id of Dana Levi?")
    shown: list[Any] = json.loads(made.text)
    assert made.content_type == "json"
    assert shown[0] == people[0]
    assert people[321] in shown
    assert people[499] in shown
    kept = [item for item in shown if item in people]
    gaps: list[str] = [item for item in shown[:-1] if item not in people]
    assert all("of 500 items left out" in gap for gap in gaps)
    assert sum(int(gap.split()[1]) for gap in gaps) + len(kept) == 500
    assert made.dropped == (f"{500 - len(kept)} of 500 items",)
    assert f"fingerpost result {HANDLE}" in shown[-1]


@proves("D6")
def test_an_object_keeps_its_keys_and_shortens_long_values() -> None:
    page = {"title": "Hours", "url": "https://example.org", "content": "Some words. " * 2000, "status": 200}
    made = cut(text(json.dumps(page)), 200)
    shown = json.loads(made.text)
    assert {"title", "url", "content", "status"} < shown.keys()
    assert shown["status"] == 200
    assert len(shown["content"]) < 2000


def test_a_long_text_inside_json_keeps_the_passage_asked_about() -> None:
    words = ["The city has many parks and streets."] * 400
    words[250] = "Opening hours are nine to five."
    made = cut(text(json.dumps({"content": "\n".join(words)})), 300, "opening hours?")
    assert "nine to five" in json.loads(made.text)["content"]


def test_deep_json_is_cut_at_a_depth_and_stays_json() -> None:
    value: Any = "bottom"
    for _ in range(90):
        value = {"down": [value, "x" * 50]}
    made = cut(text(json.dumps(value)), 120)
    assert made.content_type == "json"
    json.loads(made.text)
    assert any("nested" in what for what in made.dropped)


def test_json_nested_beyond_parsing_is_cut_as_text() -> None:
    made = cut(text("[" * 100_000 + "]" * 100_000), 80)
    assert made.content_type == "text"
    assert made.trimmed
    value: Any = []
    for _ in range(5_000):
        value = [value]
    assert cut({"content": [], "structuredContent": {"x": value}}, 80).tokens > 0


@proves("D6")
@table(
    ("header", "row"),
    [
        ("id,name,price", "{0},thing {0},{0}.50"),
        ("id\tname\tprice", "{0}\tthing {0}\t{0}.50"),
        ("| id | name |\n|---|---|", "| {0} | thing {0} |"),
        ("ID      NAME      PRICE", "{0}     thing-{0}     {0}.50"),
    ],
    ids=["CSV", "TSV", "Markdown", "aligned"],
)
def test_a_table_keeps_its_header_first_and_last_rows_and_the_count(header: str, row: str) -> None:
    rows = [row.format(number) for number in range(300)]
    made = cut(text(header + "\n" + "\n".join(rows)), 200, "thing 222")
    assert made.text.startswith(header + "\n" + rows[0])
    assert rows[299] in made.text
    assert rows[222] in made.text
    assert made.dropped[0].endswith("of 300 rows")


def test_a_header_larger_than_the_budget_is_cut_itself() -> None:
    header = ",".join(f"column {number}" for number in range(40))
    made = cut(text("\n".join((header, *([",".join("1" * 40)] * 200)))), 60)
    assert made.text.startswith("column 0,column 1,")
    assert "1,1,1,1" not in made.text


@proves("D6")
def test_text_keeps_beginning_end_and_the_passage_nearest_the_request() -> None:
    lines = [f"Paragraph {number} speaks of the weather and the fields." for number in range(400)]
    lines[0], lines[-1] = "The beginning of it.", "The end of it."
    lines[200] = "The library opens at nine."
    made = cut(text("\n".join(lines)), 200, "When does the library open?")
    assert made.text.startswith("The beginning of it.")
    assert "The library opens at nine." in made.text
    assert "The end of it." in made.text
    unasked = cut(text("\n".join(lines)), 200)
    assert "library" not in unasked.text


@proves("D6")
def test_hebrew_text_keeps_the_passage_asked_about() -> None:
    lines = ["הספר מספר על שדות ועל נהרות בצפון הארץ."] * 300
    lines[150] = "שעות הפתיחה הן מתשע עד חמש."
    made = cut(text("\n".join(lines)), 250, "מה שעות הפתיחה בספרייה?")
    assert lines[150] in made.text


def test_one_endless_line_keeps_the_sentence_asked_about() -> None:
    prose = "Many people come here to read. " * 500 + "The code word is pelican. " + "It rains often. " * 500
    assert "pelican" in cut(text(prose), 200, "what is the code word?").text


def test_a_log_keeps_its_errors_without_being_asked() -> None:
    lines = [f"2025-01-01 10:00:{number % 60:02} INFO request {number} served" for number in range(1000)]
    lines[700] = "2025-01-01 10:11:40 ERROR the database refused the connection"
    assert lines[700] in cut(text("\n".join(lines)), 250).text


def test_code_keeps_whole_lines() -> None:
    lines = [
        f"def function_{number}(argument: int) -> int:\n    return argument * {number}"
        for number in range(300)
    ]
    source = "\n\n\n".join(lines)
    made = cut(text(source), 300, "function_150")
    assert "def function_150(" in made.text
    every = set(source.splitlines())
    assert all(line in every for line in made.text.splitlines() if line and line[0] not in "…[")


@proves("D6")
def test_a_web_page_becomes_its_text() -> None:
    body = "".join(
        f"<div class='row'><p>Paragraph <b>{number}</b> &amp; more</p></div>" for number in range(300)
    )
    page = (
        f"<!doctype html><html><head><title>t</title><script>evil()</script></head><body>{body}</body></html>"
    )
    made = cut(text(page), 300)
    assert "Paragraph 0 & more" in made.text
    assert "<div" not in made.text
    assert "evil" not in made.text
    assert "the markup of the page" in made.dropped


@pytest.mark.slow
@table("page", ["<", "<script>", "<!--", "<p", "<a href='", "</"])
def test_a_page_of_unclosed_tags_takes_no_longer_than_its_length(page: str) -> None:
    # Quadratic behaviour would run into the test's time-out.
    cut(text("<html>" + page * (1_000_000 // len(page))), 100)


@proves("D6")
def test_pictures_and_bytes_become_references_and_never_text() -> None:
    data = base64.b64encode(bytes(range(256)) * 100).decode()
    made = cut(
        {
            "content": [
                {"type": "text", "text": "Here it is."},
                {"type": "image", "data": data, "mimeType": "image/png"},
                {"type": "audio", "data": data, "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": data}},
                {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "More"},
            ]
        },
        300,
    )
    assert data[:40] not in made.text
    assert made.references == (
        "image/png, 26 KB, part 2",
        "audio/wav, 26 KB, part 3",
        "binary, 26 KB, part 4, file:///a.bin",
    )
    assert all(reference in made.text for reference in made.references)
    assert "b <file:///b.txt>: More" in made.text
    assert made.handle == HANDLE
    assert not made.trimmed


@table(
    ("content", "structured"),
    [
        (['{"sum": 5}'], {"sum": 5}),
        (["5"], {"result": "5"}),
        (["a", "b"], {"result": ["a", "b"]}),
        (["[1, 2]"], {"result": [1, 2]}),
    ],
)
def test_structured_content_that_says_the_same_is_said_once(content: list[str], structured: Any) -> None:
    assert cut(text(*content, structuredContent=structured), 100).text == "\n".join(content)


def test_structured_content_of_its_own_is_kept() -> None:
    made = cut(text("Done.", structuredContent={"temperature": 21}), 100)
    assert made.text == 'Done.\n{"temperature":21}'
    assert cut({"content": [], "structuredContent": {"a": 1}}, 100).content_type == "json"


def test_small_parts_stay_whole_beside_a_large_one() -> None:
    made = cut(text("A short word before.", "long and winding " * 5000, "A short word after."), 200)
    assert "A short word before." in made.text
    assert "A short word after." in made.text
    assert made.dropped[0].endswith("of part 2")


def test_ten_thousand_blocks_are_one_text() -> None:
    made = cut(text(*(f"line {number}" for number in range(10_000))), 200, "line 7777")
    assert "line 7777" in made.text


@proves("D6")
def test_an_error_keeps_its_message() -> None:
    trace = "\n".join(f"  File lib{number}.py, line {number}, in call" for number in range(500))
    made = cut(text(f"Traceback:\n{trace}\nValueError: no such city", isError=True), 150)
    assert "ValueError: no such city" in made.text
    value = {"data": [{"n": number} for number in range(500)], "error": {"message": "quota used up"}}
    assert "quota used up" in cut(text(json.dumps(value), isError=True), 150).text


@proves("D6", "F6")
def test_the_last_line_says_what_is_missing_and_how_to_get_it() -> None:
    made = cut(text("\n".join(f"line {number}" for number in range(1000))), 200)
    last = made.text.splitlines()[-1]
    assert made.dropped[0] in last
    assert f"fingerpost result {HANDLE}" in last
    assert "read_result" in last
    assert made.handle == HANDLE
    unkept = build_digest(text("word " * 5000), CARD, budget=100)
    assert unkept.trimmed
    assert unkept.handle is None
    assert "fingerpost result" not in unkept.text


@pytest.mark.slow
@proves("F6")
def test_a_huge_result_is_cut_without_being_copied_many_times() -> None:
    line = "2025-01-01 10:00:00 INFO all is well with request number 4711 of this day\n"
    big = line * (3_000_000 // len(line)) + "The needle: pelican.\n" + line * (3_000_000 // len(line))
    result = text(big)
    tracemalloc.start()
    try:
        made = cut(result, 500, "what is said of the pelican?")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "The needle: pelican." in made.text
    assert made.original_tokens > 1_000_000
    assert peak < 2 * len(big)


def test_search_results_become_titles_and_addresses() -> None:
    found = {
        "query": "x",
        "results": [
            {
                "title": f"Page {number}",
                "url": f"https://e.org/{number}",
                "content": "word " * 400,
                "raw": "y" * 900,
            }
            for number in range(10)
        ],
    }
    search = snapshot(tavily=[{"name": "tavily_search"}]).cards[0]
    made = cut(text(json.dumps(found)), 500, tool=search)
    assert all(f"Page {number} <https://e.org/{number}> word" in made.text for number in range(10))
    assert "all but title" in made.dropped[0]


def test_a_folder_becomes_counts_by_kind() -> None:
    listed = "\n".join(
        [f"[FILE] part{number}.py" for number in range(400)] + ["[DIR] sub", "[FILE] notes.md"]
    )
    made = cut(text(listed), 150, tool=snapshot(files=[{"name": "list_directory"}]).cards[0])
    assert made.text.startswith("402 entries: .py × 400")
    assert "folder × 1" in made.text


def test_a_diff_begins_with_what_changed_where() -> None:
    files = [
        f"diff --git a/f{n}.py b/f{n}.py\n--- a/f{n}.py\n+++ b/f{n}.py\n@@ -1,2 +1,3 @@\n"
        + "+new line\n" * 40
        + "-old\n"
        for n in range(5)
    ]
    made = cut(text("".join(files)), 300, tool=snapshot(git=[{"name": "git_diff"}]).cards[0])
    assert made.text.startswith("5 files changed, +200 -5")
    assert "f4.py +40 -1" in made.text


def test_a_history_becomes_one_line_for_each_commit() -> None:
    log = "".join(
        f"commit {number:040x}\nAuthor: Dana <d@e.org>\nDate:   Mon Jan {number} 2025\n\n"
        f"    Change number {number}\n\n    " + "A long explanation. " * 30 + "\n\n"
        for number in range(1, 21)
    )
    made = cut(text(log), 900, tool=snapshot(git=[{"name": "git_log"}]).cards[0])
    assert made.text.startswith("20 commits")
    assert all(f"Change number {number}" in made.text for number in range(1, 21))
    assert "explanation" not in made.text


@proves("D6")
def test_the_budget_is_the_least_of_tool_settings_and_context() -> None:
    wide = DigestSettings(max_tokens=100_000, context_share=0.25)
    most = CARD.intelligence.response.max_tokens.value
    assert compute_budget(CARD, CallContext(call_id="c"), wide) == most
    assert compute_budget(CARD, CallContext(call_id="c"), DigestSettings(max_tokens=900)) == 900
    assert compute_budget(CARD, CallContext(call_id="c", tokens_left=2_000), wide) == 500
    assert compute_budget(CARD, CallContext(call_id="c", tokens_left=-7), wide) == 50


@pytest.mark.slow
@given(st.integers(200, 900), st.integers(2, 5), st.integers(1, 6))
@settings(max_examples=10, deadline=None)
def test_many_gaps_leave_room_for_their_markers_and_the_last_line(
    budget: int, every: int, width: int
) -> None:
    birds = ["heron" if number % (9 * every) else "pelican" for number in range(800)]
    rows = [f"{number},{bird}{' x' * width}" for number, bird in enumerate(birds)]
    made = cut(text("id,bird\n" + "\n".join(rows)), budget, "pelican")
    assert made.text.count("rows left out") > 1
    assert HANDLE in made.text.splitlines()[-1]


@proves("D1", "D6")
def test_data_of_a_tool_that_is_said_to_give_data_is_cut_as_data() -> None:
    found = [{"title": f"Owl {n}", "url": f"https://owls.test/{n}", "text": "hoot " * 60} for n in range(60)]
    result: dict[str, Any] = {"content": [{"type": "text", "text": json.dumps({"results": found})}]}
    search = snapshot(web=[{"name": "web_search"}]).cards[0]
    as_list = build_digest(result, search, budget=600)
    assert as_list.text.startswith("60 results")
    known = search.intelligence
    data = replace(known.response, structured=Known(value=True, source=Source.WRITTEN))
    as_data = build_digest(result, replace(search, intelligence=replace(known, response=data)), budget=600)
    assert as_data.content_type == "json"
    assert json.loads(as_data.text)["results"][0]["title"] == "Owl 0"


@proves("D6")
@pytest.mark.parametrize(
    ("given_text", "structured"),
    [
        ("[{}]", {"rows": "{}", "count": 400}),
        ('{{"rows": [{}]}}', {"rows": "{}", "next": None}),
    ],
)
def test_cut_data_that_say_more_than_the_text_are_shown_without_it(
    given_text: str, structured: dict[str, Any]
) -> None:
    rows = [{"id": number, "name": f"thing {number}"} for number in range(400)]
    listed = ", ".join(json.dumps(row) for row in rows)
    made = cut(text(given_text.format(listed), structuredContent={**structured, "rows": rows}), 300)
    assert made.trimmed
    assert made.text.count('"thing 0"') == 1
    assert made.content_type == "json"
