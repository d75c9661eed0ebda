"""Files of strangers: odd names come through, bad lines are named, nothing is lost in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ConfigError
from fingerpost.evals.datasets import EvalCatalog, ToolRecord, read_predictions, read_queries, read_tools
from fingerpost.settings import Settings


def lines(path: Path, *rows: Mapping[str, object] | str) -> Path:
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def record(name: str, own: str, server: str = "shop", description: str = "Buys things") -> ToolRecord:
    return ToolRecord(id=own, server=server, name=name, description=description)


def test_a_query_is_read_with_everything_we_look_at_and_the_rest_is_passed_over(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "q.jsonl",
        {
            "id": "1",
            "query": "buy bread",
            "relevant": ["a"],
            "relevant_groups": [["a", "b"], []],
            "needs_tool": True,
            "lang": "en",
            "candidates": ["a", "z"],
            "scope": "candidates",
            "history": [{"role": "user", "content": "hello"}],
            "calls": [{"tool": "a"}],
            "anything": {"else": 1},
        },
        "",
        {"id": "2", "query": "", "relevant": [], "needs_tool": None},
    )
    first, second = read_queries(path)
    assert first.wanted_groups == (frozenset({"a", "b"}),)
    assert (first.candidates, first.scope, first.history[0].text) == (("a", "z"), "candidates", "hello")
    assert (second.candidates, second.needs_tool, second.wanted_groups) == (None, None, ())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        (None, ""),
        ([{"type": "text", "text": "two"}, {"type": "image_url"}, {"text": "parts"}], "two parts"),
    ],
)
def test_messages_are_read_as_chat_apis_write_them(tmp_path: Path, content: object, text: str) -> None:
    history = [{"role": "assistant", "content": content}]
    path = lines(tmp_path / "q.jsonl", {"id": "1", "query": "x", "history": history})
    assert read_queries(path)[0].history[0].text == text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not an object"),
        ("[" * 100_000, "nested too deeply"),
        ({"query": "x"}, "'id' is missing"),
        ({"id": 7, "query": "x"}, "'id' must be text"),
        ({"id": "1", "query": None}, "'query' must be text"),
        ({"id": "1", "query": "x", "needs_tool": "yes"}, "'needs_tool' must be true or false"),
        ({"id": "1", "query": "x", "relevant": "a"}, "'relevant' must be a list"),
        ({"id": "1", "query": "x", "relevant": [1]}, "'relevant' must hold texts only"),
        ({"id": "1", "query": "x", "relevant_groups": {"a": 1}}, "'relevant_groups' must be a list of lists"),
        ({"id": "1", "query": "x", "history": ["hi"]}, "'history' must be a list of objects"),
        ({"id": "1", "query": "x", "history": [{"role": "user"}]}, "needs a 'role' and a 'content'"),
    ],
)
def test_a_bad_line_is_named_with_its_number(
    tmp_path: Path, line: Mapping[str, object] | str, text: str
) -> None:
    path = lines(tmp_path / "q.jsonl", {"id": "0", "query": "fine"}, "", line)
    with pytest.raises(ConfigError, match="line 3") as caught:
        read_queries(path)
    assert text in str(caught.value)


def test_bytes_that_are_not_text_and_files_that_are_not_there_are_explained(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"id": "1", "name": "\xff"}\n')
    with pytest.raises(ConfigError, match="line 1"):
        read_tools(tmp_path / "t.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tools(tmp_path / "nothing.jsonl")


def test_the_same_query_id_twice_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", {"id": "1", "query": "x"}, {"id": "1", "query": "y"})
    with pytest.raises(ConfigError, match="several lines"):
        read_queries(path)


def test_an_interrupted_last_line_of_predictions_is_passed_over_but_no_other(tmp_path: Path) -> None:
    good = json.dumps({"id": "1", "need": {"verdict": "tool", "score": 1}, "fit": 1, "ranking": [], "ms": 2})
    path = tmp_path / "p.jsonl"
    path.write_text(good + "\n" + good[:20], encoding="utf-8")
    assert set(read_predictions(path)) == {"1"}
    path.write_text(good[:20] + "\n" + good + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        read_predictions(path)


def test_tools_that_share_server_and_name_are_all_there_with_their_own_words() -> None:
    tools = [
        record("buy", "shop.buy"),
        record("buy", "shop.buy~2", description="Buys stocks"),
        record("buy~2", "odd"),
        record("buy", "third"),
    ]
    shelf = EvalCatalog.from_tools(tools, Settings())
    assert {shelf.ids[card.key]: (card.name, card.description) for card in shelf.snapshot.cards} == {
        "shop.buy": ("buy", "Buys things"),
        "shop.buy~2": ("buy", "Buys stocks"),
        "odd": ("buy~2", "Buys things"),
        "third": ("buy", "Buys things"),
    }
    assert {card.server for card in shelf.snapshot.cards} == {"shop"}


def test_the_same_id_on_two_tools_names_both() -> None:
    shelf = EvalCatalog.from_tools([record("buy", "x"), record("sell", "x")], Settings())
    assert shelf.get_keys(["x", "unknown"]) == {"shop/buy", "shop/sell"}


def test_what_cannot_become_a_tool_is_named_with_the_reason() -> None:
    shelf = EvalCatalog.from_tools([record("  ", "blank"), record("buy", "fine")], Settings())
    assert shelf.left_out == ("blank: has no name",)
    off = Settings.model_validate({"tools": [{"match": "shop/sell", "enabled": False}]})
    shelf = EvalCatalog.from_tools([record("sell", "gone"), record("buy", "fine")], off)
    assert shelf.left_out[0].startswith("gone: switched off")
    with pytest.raises(ConfigError, match="none of the 1 tools"):
        EvalCatalog.from_tools([record("", "blank")], Settings())


def test_no_tools_at_all_is_an_empty_catalog() -> None:
    assert EvalCatalog.from_tools([], Settings()).snapshot.cards == ()


@pytest.mark.slow
@given(
    names=st.lists(
        st.tuples(st.sampled_from(["a", "a/b", "a~2", "שלום"]), st.text(min_size=1, max_size=4)), max_size=25
    )
)
def test_every_id_comes_back_whatever_the_names_are(names: list[tuple[str, str]]) -> None:
    tools = [
        record(name, f"id {number}", server)
        for number, (server, name) in enumerate(names)
        if name.strip() and name.isprintable()
    ]
    shelf = EvalCatalog.from_tools(tools, Settings())
    assert sorted(shelf.ids[card.key] for card in shelf.snapshot.cards) == sorted(tool.id for tool in tools)
    assert len(shelf.snapshot.cards) == len({card.key for card in shelf.snapshot.cards}) == len(tools)
