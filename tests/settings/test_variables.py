"""Variables in the text of a server entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.settings.document import read_dotenv
from fingerpost.settings.variables import VariableScope, expand
from tests.kit.tables import table

SCOPE = VariableScope(
    environ={"SET": "value", "EMPTY": "", "OTHER": "more", "LOOP": "${LOOP}"},
    folder=Path("/work/project/.vscode"),
    home=Path("/home/me"),
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@table(
    ("text", "expected"),
    [
        ("no variables, $5 and {braces}", "no variables, $5 and {braces}"),
        ("${SET}", "value"),
        ("a ${SET}-${OTHER} b", "a value-more b"),
        ("${env:SET}", "value"),
        ("${SET:-x}", "value"),
        ("${GONE:-x}", "x"),
        ("${GONE:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${env:GONE:-x}", "x"),
        ("${GONE:-${OTHER}/y}", "more/y"),
        ("${GONE:-a:-b}", "a:-b"),
        ("$${SET}", "${SET}"),
        ("${LOOP}", "${LOOP}"),
        ("${workspaceFolder}/x", "/work/project/x"),
        ("${userHome}", "/home/me"),
        ("${a.b()} ${1}", "${a.b()} ${1}"),
        ("${unclosed", "${unclosed"),
    ],
)
def test_a_text_expands_to(text: str, expected: str) -> None:
    result = expand(text, SCOPE)
    assert (result.text, result.missing) == (expected, [])


@table("text", ["${GONE}", "${env:GONE}", "x${SET}${GONE}y", "${ALSO_GONE:-${GONE}}"])
def test_a_variable_that_is_not_set_is_named_and_left_as_written(text: str) -> None:
    result = expand(text, SCOPE)
    (missing,) = result.missing
    assert "GONE" in missing.message
    assert "GONE}" in result.text


def test_defaults_nested_without_end_are_left_as_written() -> None:
    text = "${GONE:-" * 3000 + "x" + "}" * 3000
    assert expand(text, SCOPE).text.startswith("${GONE:-${GONE:-")


@given(text=st.text().filter(lambda text: "${" not in text))
def test_a_text_without_variables_stays_as_it_is(text: str) -> None:
    assert expand(text, SCOPE).text == text


@given(environ=st.dictionaries(NAMES, st.text()), parts=st.lists(st.text(alphabet="ab c}:-/")))
def test_values_are_put_in_once_and_never_expanded_again(environ: dict[str, str], parts: list[str]) -> None:
    scope = VariableScope(environ=environ, folder=Path("/f"), home=Path("/h"))
    names = [name for name in environ if name not in {"userHome", "workspaceFolder", "pathSeparator"}]
    pieces = [(f"${{{name}}}", environ[name]) for name in names] + [(part, part) for part in parts]
    result = expand("".join(written for written, _ in pieces), scope)
    assert result.text == "".join(meant for _, meant in pieces)
    assert [taken.name for taken in result.taken] == names


@pytest.mark.slow
@given(
    values=st.dictionaries(
        NAMES, st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"))
    )
)
def test_an_env_file_gives_back_what_was_written_in_double_quotes(values: dict[str, str]) -> None:
    lines = [
        f'{name} = "{value.replace(chr(34), chr(92) + chr(34))}"  # note' for name, value in values.items()
    ]
    assert read_dotenv("\r\n".join(["# head", "", *lines])) == (values, ())


@given(text=st.text())
def test_any_text_is_an_env_file_or_has_bad_lines(text: str) -> None:
    values, bad = read_dotenv(text)
    written = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(values) + len(bad) <= len(written)
    assert bool(values or bad) == bool(written)
