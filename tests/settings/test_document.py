"""Whatever a file looks like, every key's line is right, and JSON with comments means the same."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.settings.document import SettingsDocument, parse_json, parse_toml
from fingerpost.settings.problems import KeyPath, Problem
from tests.kit.tables import table

KEYS = st.text(max_size=6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
NOISE = ["", "", "", " ", "\t", "\n", "\r\n", '// c, } ] " x\n', "/* a\n, } */", "/**/", "\n\n"]
HERE = Path("/here")


class Writer:
    """Writes a document piece by piece and notes on which line each key begins."""

    def __init__(self, noise: Callable[[], str]) -> None:
        self.text = ""
        self.lines: dict[KeyPath, int] = {}
        self.noise = noise

    def put(self, text: str) -> None:
        self.text += text

    def note(self, path: KeyPath) -> None:
        self.lines[path] = self.text.count("\n") + 1

    def json(self, value: Any, path: KeyPath) -> None:
        self.put(self.noise())
        if isinstance(path[-1] if path else None, int):
            self.note(path)
        if isinstance(value, dict):
            self.members("{}", [(str(key), item) for key, item in value.items()], path)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        elif isinstance(value, list):
            self.members("[]", list(enumerate(value)), path)  # pyright: ignore[reportUnknownArgumentType]
        else:
            self.put(json.dumps(value))
        self.put(self.noise())

    def members(self, brackets: str, members: list[tuple[Any, Any]], path: KeyPath) -> None:
        self.put(brackets[0] + self.noise())
        for number, (key, item) in enumerate(members):
            if isinstance(key, str):
                self.note((*path, key))
                self.put(json.dumps(key) + self.noise() + ":")
            self.json(item, (*path, key))
            last = number == len(members) - 1
            self.put("," if not last or self.noise() else "")
            self.put(self.noise())
        self.put(brackets[1])


@pytest.mark.slow
@given(value=st.dictionaries(KEYS, VALUES, max_size=4), data=st.data())
def test_json_decorated_with_comments_and_commas_means_the_same_and_keeps_its_lines(
    value: dict[str, Any], data: st.DataObject
) -> None:
    writer = Writer(lambda: data.draw(st.sampled_from(NOISE)))
    writer.json(value, ())
    document = parse_json(writer.text, "x.json", HERE)
    assert isinstance(document, SettingsDocument), document
    assert document.values == value
    assert document.lines == writer.lines
    assert document.repeated == ()


@given(text=st.text(alphabet='{}[],:"/*\\ \n1a'))
def test_any_text_is_a_document_or_a_problem_and_valid_json_reads_as_ever(text: str) -> None:
    document = parse_json(text, "x.json", HERE)
    try:
        value: Any = json.loads(text)
    except ValueError:
        return
    if isinstance(value, dict):
        assert isinstance(document, SettingsDocument)
        assert document.values == value


@table(
    "text",
    [
        *("{,}", '{"a": [,]}', '{"a": [1,,]}', '{"a": [1 2]}', '{"a":,}', '{"a": 1,, "b": 2}', "{'a': 1}"),
        *(
            '{"a" /* : */ 1}',
            '{"a": 1} /',
            '{"a": "x // "',
            '{"a": "b\nc"}',
            '{"a": 1}, // end',
            '{"a": tru/**/e}',
        ),
    ],
)
def test_comments_and_one_trailing_comma_are_the_only_liberties_taken(text: str) -> None:
    assert isinstance(parse_json(text, "x.json", HERE), Problem)


def test_keys_given_twice_are_found_with_both_lines() -> None:
    document = parse_json('{"a": 1,\n"b": {"a": 1, "a": 2},\n"a": 3}', "x.json", HERE)
    assert isinstance(document, SettingsDocument)
    assert [(again.path, again.line, again.first) for again in document.repeated] == [
        (("b", "a"), 2, 2),
        (("a",), 3, 1),
    ]


# A value as written, and the keys inside it with their lines, counted from the value's own.
TOML_VALUES: st.SearchStrategy[tuple[str, dict[KeyPath, int]]] = st.sampled_from(
    [
        ("1", {}),
        ("-1.5e3 # note", {}),
        ("true", {}),
        ('"a # = [x] \\" b"', {}),
        ("'c:\\d'", {}),
        ("1979-05-27 07:32:00", {}),
        ('"""\n[not.a.table]\nkey = "x" ""\\\n  """', {}),
        ("'''\n# no comment\n''x'''", {}),
        ('""""quoted""""', {}),
        ("[]", {}),
        ("[1, 2]", {(0,): 0, (1,): 0}),
        ("[ # note ]\n  'a', # 'b',\n\n  ['c',\n  'd'],\n]", {(0,): 1, (1,): 3, (1, 0): 3, (1, 1): 4}),
        ("{}", {}),
        (
            "{ a = 1, 'b c' = { d.e = [1] } }",
            {("a",): 0, ("b c",): 0, ("b c", "d"): 0, ("b c", "d", "e"): 0, ("b c", "d", "e", 0): 0},
        ),
        ("[{ a = 1 },\n { a = 2 }]", {(0,): 0, (0, "a"): 0, (1,): 1, (1, "a"): 1}),
    ]
)
BETWEEN = st.sampled_from(["", "\n", "# [x]\n", "  \t\n# a = 1\n\n"])
QUOTING = st.sampled_from(["{}", '"{}"', "'{}'", '"{} ."'])


class TomlWriter:
    """Writes tables one after the other, under names that never meet."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[KeyPath, int] = {}
        self.count = 0

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def fresh(self) -> tuple[str, str]:
        """A key that was not used yet: as written, and its value."""
        self.count += 1
        written = self.draw(QUOTING).format(f"k{self.count}")
        return written, written.strip("\"'")

    def pair(self, table: KeyPath) -> None:
        self.text += self.draw(BETWEEN)
        keys = [self.fresh() for _ in range(self.draw(st.integers(1, 3)))]
        path = table
        line = self.line
        for _, name in keys:
            path = (*path, name)
            self.lines[path] = line
        value, inside = self.draw(TOML_VALUES)
        self.text += (
            self.draw(st.sampled_from(["", "  "])) + " . ".join(written for written, _ in keys) + " = "
        )
        for inner, offset in inside.items():
            self.lines[(*path, *inner)] = line + offset
        self.text += value + "\n"

    def table(self) -> None:
        self.text += self.draw(BETWEEN)
        outer, inner = self.fresh(), self.fresh()
        self.lines[(outer[1],)] = self.lines[(outer[1], inner[1])] = self.line
        self.text += f"[{outer[0]} . {inner[0]}] # note\n"
        self.pairs((outer[1], inner[1]))

    def rows(self) -> None:
        name = self.fresh()
        for row in range(self.draw(st.integers(1, 3))):
            self.text += self.draw(BETWEEN)
            self.lines.setdefault((name[1],), self.line)
            self.lines[(name[1], row)] = self.line
            self.text += f"[[{name[0]}]]\n"
            self.pairs((name[1], row))
            inside = self.fresh()
            self.lines[(name[1], row, inside[1])] = self.line
            self.text += f"[{name[0]}.{inside[0]}]\n"
            self.pairs((name[1], row, inside[1]))

    def pairs(self, table: KeyPath) -> None:
        for _ in range(self.draw(st.integers(0, 3))):
            self.pair(table)


@pytest.mark.slow
@given(data=st.data(), crlf=st.booleans())
def test_every_key_of_a_toml_file_is_on_the_line_the_locator_says(data: st.DataObject, crlf: bool) -> None:
    writer = TomlWriter(data.draw)
    writer.pairs(())
    for _ in range(data.draw(st.integers(0, 3))):
        data.draw(st.sampled_from([writer.table, writer.rows]))()
    text = writer.text.replace("\n", "\r\n") if crlf else writer.text
    document = parse_toml(text, "x.toml", HERE)
    assert isinstance(document, SettingsDocument), document
    assert document.values == tomllib.loads(writer.text)
    assert document.lines == writer.lines
