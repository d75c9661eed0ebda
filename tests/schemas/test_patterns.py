"""Patterns of strangers: none takes long, and a text is refused only when it surely does not match."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.arguments import prepare_arguments
from fingerpost.records import ParameterFault
from fingerpost.schemas.patterns import MAX_PATTERN_LENGTH, MAX_TEXT_LENGTH, compile_pattern
from tests.kit.argument_tools import TEXT, takes, with_schema
from tests.kit.tables import table
from tests.requirements import proves

# Each keeps Python's engine busy for years, with the text below.
BOMBS = [
    "(a+)+$",
    "^(a|aa)+$",
    "([a-z]+)*!!",
    r"(\w+\s?)*$",
    "(a*)*b",
    "(.*a){20}$",
    "(?:a{1,99}b?){9,}$",
    "^(([a-z])+.)+$!",
    "^" + "a?" * 30 + "a" * 30 + "$",
    "^((((a{1,8}){1,8}){1,8}){1,8}){1,8}$",
    "^" + "(a|a){8}" * 4 + "$",
    "^" + "(a|aa)?" * 30 + "$",
    "(?x)^(a+#(\n)+$",
    "^(a+(?#()x{0})+$",
    r"(a)\1+$",
    "^a*a*a*a*b$",
]
FUSE = "a" * 60 + "?"


@proves("C4")
@table("pattern", BOMBS)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Whether it is run or left to the server; the time limit of the test is the assertion."""
    text = {"type": "string", "pattern": pattern}
    prepare_arguments(takes({"it": text}), {"it": FUSE})
    prepare_arguments(takes({"it": text}), {"it": "a" * 50_000 + "?"})
    prepare_arguments(takes({"it": {**text, "default": FUSE}}), {})
    prepare_arguments(takes({}, patternProperties={pattern: TEXT}, additionalProperties=False), {FUSE: "x"})
    prepare_arguments(takes({}, propertyNames={"pattern": pattern}), {FUSE: "x"})


@table("draft", ["draft-03", "draft-04", "draft-06", "draft-07", "2019-09", "2020-12"])
def test_a_draft_named_inside_the_schema_brings_no_other_engine(draft: str) -> None:
    host = "https://json-schema.org/draft" if draft.startswith("20") else "http://json-schema.org"
    for name in (f"{host}/{draft}/schema", f"{host}/{draft}/schema#"):
        inner = {"$schema": name, "type": "string", "pattern": "^(a+)+$"}
        prepare_arguments(takes({"it": {"anyOf": [inner, inner]}}), {"it": FUSE})
        prepare_arguments(
            with_schema({"$schema": name, "properties": {"it": inner}, "allOf": [inner]}), {"it": FUSE}
        )


@pytest.mark.parametrize("name", ["2019-09", "2020-12"])
def test_what_nothing_describes_is_found_without_another_engine(name: str) -> None:
    card = with_schema(
        {
            "$schema": f"https://json-schema.org/draft/{name}/schema",
            "type": "object",
            "allOf": [{"properties": {"id": TEXT}}, {"patternProperties": {"^(a+)+$": TEXT}}],
            "unevaluatedProperties": False,
        }
    )
    assert prepare_arguments(card, {"id": "x", "aaa": "y"}).ok
    assert not prepare_arguments(card, {"id": "x", FUSE: "y"}).ok


@table(
    ("pattern", "fits", "refused"),
    [
        (r"^[\w.+-]+@[\w-]+\.[\w.]+$", "me@example.org", "!"),
        (r"^\d{4}-\d{2}-\d{2}$", "2024-01-02", "היום"),
        ("^(asc|desc)$", "asc", "ASC"),
        ("^[a-z]+$", "abc", "abc\n"),
        (r"^https?:\/\/", "http://x", "ftp://x"),
        (r"^[\u05d0-\u05ea]+$", "שלום", "hello"),
        (r"^\ud83d\ude00$", "😀", "😁"),
        (r"^\u{1f600}$", "😀", "x"),
        (r"^\p{Lu}", "É", "é"),
        (r"^(?<year>[0-9]{4})$", "2024", "24"),
        (r"^[^\s/]+/[^\s/]+$", "owner/name", "owner name"),
        ("^{[a-z]}$", "{a}", "a"),
        (r"^[\w-]{1,100}$", "שלום", "a b"),
        ("^.{1,255}$", "x" * 255, "x" * 256),
        (r"\bcat\b", "a cat", "concat"),
        (r"^a[\t]b\0$", "a\tb\0", "a b"),
        ("(?i)^get$", "GET", "put"),
    ],
)
def test_an_ordinary_pattern_is_checked(pattern: str, fits: str, refused: str) -> None:
    card = takes({"it": {"type": "string", "pattern": pattern}})
    assert prepare_arguments(card, {"it": fits}).ok
    assert [error.fault for error in prepare_arguments(card, {"it": refused}).errors] == [
        ParameterFault.BAD_VALUE
    ]


@table(
    "pattern",
    [
        "^(?!x)b",
        "(?<=a)b",
        r"(b)\1",
        "(?>b)",
        r"\Ab\Z",
        "[[:alpha:]]b",
        "[]b]",
        "b**",
        "b{,3}c",
        "b" * (MAX_PATTERN_LENGTH + 1),
        "(((b{1,100}){1,100}){1,100})",
        "b{2000}",
        "(?x) b",
        r"[^\W]\u05d0\ud800",
        "(",
    ],
)
def test_what_not_everybody_reads_alike_is_left_to_the_server(pattern: str) -> None:
    assert compile_pattern(pattern) is None
    prepared = prepare_arguments(takes({"it": {"type": "string", "pattern": pattern}}), {"it": "?"})
    assert prepared.ok
    assert pattern[:60] in prepared.notes[0]


def test_letters_beyond_ascii_are_refused_only_where_every_dialect_refuses_them() -> None:
    words = takes({"it": {"type": "string", "pattern": r"^\w+$"}})
    assert prepare_arguments(words, {"it": "שלום"}).ok
    assert not prepare_arguments(words, {"it": "שלום!"}).ok
    others = takes({}, patternProperties={r"^\w+$": {"type": "integer"}}, additionalProperties=False)
    assert not prepare_arguments(others, {"size": "many"}).ok
    assert prepare_arguments(others, {"גודל": "הרבה"}).ok  # whether the pattern takes this key is not certain


def test_a_long_text_is_matched_up_to_a_bound() -> None:
    card = takes({"it": {"type": "string", "pattern": "^[a-z]+$"}})
    assert not prepare_arguments(card, {"it": "A" * MAX_TEXT_LENGTH}).ok
    assert prepare_arguments(card, {"it": "A" * (MAX_TEXT_LENGTH + 1)}).ok
    large = takes({"it": {"type": "string", "pattern": "^.{900}b"}})
    assert not prepare_arguments(large, {"it": "a" * 1_000}).ok
    assert prepare_arguments(large, {"it": "a" * 90_000}).ok


@pytest.mark.slow
@settings(max_examples=50)
@given(
    pattern=st.text(max_size=40) | st.text("ab()[]{}|*+?^$.\\dwsuxp-,:<=!#019", max_size=30), text=st.text()
)
def test_any_pattern_on_any_text_comes_to_an_end(pattern: str, text: str) -> None:
    found = compile_pattern(pattern)
    assert found is None or not (found.is_mismatch(text) and found.is_match(text))


letters = st.sampled_from(["a", "b", "1", "_", "-", " ", ",", "א"])
classes = st.sampled_from(
    ["[ab]", "[^a]", "[a-z_]", r"[\w-]", r"[^\d]", r"[^\s,]", r"[\s\S]", "[א-ת]", r"[\W]", r"[.\]]"]
)
escapes = st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\.", r"\x61", r"\u05d0", r"\n", "."])
times = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "{0,2}?"])
repeated = st.tuples(letters | classes | escapes, times).map("".join)


def group_patterns(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    chosen = st.lists(inner, min_size=1, max_size=2).map("|".join)
    group = st.tuples(st.sampled_from(["(", "(?:"]), chosen, st.just(")"), times).map("".join)
    return st.lists(inner | group, max_size=3).map("".join)


bodies = st.recursive(repeated, group_patterns, max_leaves=6)
patterns = st.tuples(st.sampled_from(["", "^"]), bodies, st.sampled_from(["", "$"])).map("".join)


@pytest.mark.slow
@settings(max_examples=60)
@given(pattern=patterns, text=st.text("ab1_- ,.א²\r\t", max_size=6))
def test_what_is_refused_or_matched_for_certain_is_so_for_python_too(pattern: str, text: str) -> None:
    """Short texts, and patterns that Python can run on them."""
    found = compile_pattern(pattern)
    assert found is not None or "^\\" in pattern  # a class that can be said in one dialect only
    if found is not None:
        matches = re.compile(pattern).search(text) is not None
        assert not (found.is_mismatch(text) and matches)
        assert not (found.is_match(text) and not matches)
        assert not text.isascii() or not text.isprintable() or found.is_mismatch(text) is not matches


@pytest.mark.process
@proves("P9")
def test_the_engine_is_loaded_for_the_first_pattern() -> None:
    program = """
import sys
from fingerpost.call.arguments import prepare_arguments
from tests.kit.argument_tools import takes
for schema in ({"type": "string"}, {"type": "string", "pattern": "^a$"}):
    assert prepare_arguments(takes({"it": schema}), {"it": "a"}).ok
    print("re2" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
