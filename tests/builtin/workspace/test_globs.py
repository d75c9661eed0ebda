"""Path patterns: what they fit, and that none takes long to say so."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from fingerpost.builtin.workspace.folder_walk import ANY_FOLDER_PATTERN, translate_glob
from tests.kit.tables import table

PIECES = ["a", "b", "ab", "*", "**", "**/", "/", "?", "[ab]", "[!a]", "[a"]


def fits(glob: str, path: str, *, anywhere: bool = False) -> bool:
    prefix = ANY_FOLDER_PATTERN if anywhere else ""
    return re.compile(prefix + translate_glob(glob), re.DOTALL).fullmatch(path) is not None


def fits_by_trying(glob: str, path: str, *, before: str = "") -> bool:
    """The same by its definition, one piece at a time; `before` is what stood in front of the glob."""
    if not glob:
        return not path
    if (folders := re.match(r"\*{2,}/", glob)) and before in "/":
        rest = glob[folders.end() :]
        ends = [0, *(place + 1 for place, char in enumerate(path) if char == "/")]
        return any(fits_by_trying(rest, path[end:], before="/") for end in ends)
    if stars := re.match(r"\*+", glob):
        if stars.end() == len(glob) > 1 and before in "/":
            return bool(path or not before)  # `x/**` is what lies below x, and not x/ itself
        longest = path.find("/") if "/" in path else len(path)
        rest = glob[stars.end() :]
        return any(fits_by_trying(rest, path[end:], before="*") for end in range(longest + 1))
    if not path:
        return False
    choice = re.match(r"\[(!?)([ab]+)\]", glob)
    if choice:
        good = path[0] != "/" and (path[0] in choice[2]) is not bool(choice[1])
        return good and fits_by_trying(glob[choice.end() :], path[1:], before="]")
    good = path[0] != "/" if glob[0] == "?" else path[0] == glob[0]
    return good and fits_by_trying(glob[1:], path[1:], before=glob[0])


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join), st.text("ab/", max_size=8))
def test_a_pattern_fits_what_its_definition_says(glob: str, path: str) -> None:
    assume(not re.search(r"\[a[^\]]*\[", glob))  # a later `]` would close the first bracket
    assert fits(glob, path) is fits_by_trying(glob, path)


@table(
    ("glob", "path"),
    [
        ("*a" * 40 + "*b", "a" * 255),
        ("?*" * 60 + "b", "a" * 255),
        ("**/a/" * 20 + "b", "a/" * 1500),
        ("**/*a*/" * 20 + "b", "aaa/" * 700),
        ("*a*" * 20 + "/" + "*a*" * 20 + "/b", "a" * 250 + "/" + "a" * 250 + "/c"),
    ],
)
def test_no_pattern_takes_for_ever(glob: str, path: str) -> None:
    assert not fits(glob, path)
    assert not fits(glob, path, anywhere=True)
