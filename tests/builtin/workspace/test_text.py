"""What is in a file: read, changed and written back without losing what was not meant."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.search import find_required_text
from fingerpost.builtin.workspace.text import (
    TextEdit,
    decode_text,
    insert_lines,
    render_diff,
    replace_text,
    split_lines,
)
from tests.requirements import proves

texts = st.text(st.one_of(st.sampled_from("ab \r\n\n\t"), st.characters(codec="utf-8")), max_size=60)
files = st.one_of(
    st.binary(max_size=60),
    texts.map(str.encode),
    texts.map(lambda text: b"\xef\xbb\xbf" + text.encode()),
    texts.map(lambda text: text.encode("utf-16")),
    texts.map(lambda text: text.replace("\n", "\r\n").encode()),
)


@proves("U2")
@given(files)
def test_a_text_that_is_not_changed_is_written_back_as_it_was(data: bytes) -> None:
    text = decode_text(data)
    assume(text is not None)
    assert text is not None
    assert text.encode_changed(text.plain) == data


printable = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), max_size=20)


def with_an_a(before: str, after: str, line_end: str, encoding: str) -> bytes:
    text = f"{before}{line_end}a{line_end}{after}"
    if encoding == "latin-1":
        return text.encode("latin-1", "replace") + b"\xe9"
    return text.encode(encoding)


editable = st.builds(
    with_an_a,
    printable,
    printable,
    st.sampled_from(["", "\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)


@proves("U2")
@given(editable, st.text(st.sampled_from("ab\n"), min_size=1, max_size=8))
def test_an_edit_changes_its_place_and_nothing_else(data: bytes, new: str) -> None:
    text = decode_text(data)
    assert text is not None
    after = text.encode_changed(text.plain.replace("a", text.normalize_line_ends(new), 1))
    assert after.startswith(text.mark)
    again = decode_text(after)
    assert again is not None and again.encoding == text.encoding
    if text.line_end is not None:
        assert again.line_end == text.line_end
        assert again.plain == text.plain.replace("a", new, 1)


@proves("U2")
@given(texts, st.text(st.sampled_from("ab\n"), max_size=3), texts, st.booleans())
def test_a_replacement_is_made_exactly_once_or_everywhere(
    text: str, old: str, new: str, everywhere: bool
) -> None:
    edit = TextEdit(old=old, new=new, everywhere=everywhere)
    try:
        after = replace_text(text, edit, "a.txt")
    except ToolRefused as refused:
        count = text.count(old) if old else 0
        assert count == 0 or old == new or (count > 1 and not everywhere)
        assert refused.hint
        return
    assert after == text.replace(old, new)
    assert everywhere or text.count(old) == 1


@proves("U2")
@given(texts, st.integers(0, 8), texts)
def test_an_insertion_keeps_every_line_that_was_there(text: str, line: int, addition: str) -> None:
    before = split_lines(text)
    try:
        after = split_lines(insert_lines(text, line, addition, "a.txt"))
    except ToolRefused:
        assert line > len(before) + 1
        return
    at = len(before) if line == 0 else line - 1
    assert [each.rstrip("\n") for each in after[:at]] == [each.rstrip("\n") for each in before[:at]]
    assert after[len(after) - (len(before) - at) :] == before[at:] or at == len(before)
    assert len(after) == len(before) + len(
        split_lines(addition if addition.endswith("\n") else addition + "\n")
    )


@proves("U5")
@given(files, files)
def test_a_difference_is_shown_for_whatever_two_files_hold(before: bytes, after: bytes) -> None:
    shown = render_diff("a.txt", before, after)
    assert (shown == "(no difference)") == (before == after)
    assert shown.count("\n") <= 302 * 3


@given(
    st.lists(
        st.sampled_from(
            ["abc", "x", "a*", "b?", "c+", "d{0,2}", "[xyz]", "[^]a]", ".", "\\d", "\\.", "^", "$", "q{2}"]
        ),
        max_size=6,
    ).map("".join),
    st.text(st.sampled_from("abcdqxyz 12."), max_size=30),
)  # fmt: skip
def test_what_fits_a_pattern_contains_its_certain_text(pattern: str, line: str) -> None:
    if re.search(pattern, line):
        assert find_required_text(pattern) in line
