"""Whether a call stays inside the working directory, tried on a real one full of links."""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import Callable
from itertools import product
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.policy.paths import PathPlacement, locate_paths, resolve_path
from fingerpost.records import Json
from tests.kit.tables import table
from tests.requirements import proves


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with links that stay, links that leave, and a neighbour with a similar name."""
    tmp_path = tmp_path_factory.mktemp("paths")
    inside = tmp_path / "work"
    (inside / "sub" / "deep").mkdir(parents=True)
    (inside / "a.txt").touch()
    (tmp_path / "work-not").mkdir()
    outside = tmp_path / "outside"
    (outside / "dir").mkdir(parents=True)
    (outside / "secret").touch()
    for name, target in {
        "in": "sub",
        "far": "sub/deep",
        "in-abs": str(inside / "sub"),
        "out": "../outside",
        "out-abs": str(outside),
        "out-dir": "../outside/dir",
        "out-file": "../outside/secret",
        "out-new": "../outside/not-yet",
        "up": "..",
        "root": "/",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "twice": "out/dir",
        "self": "/proc/self/cwd",
        "sub/deep/back": "../../..",
        "sub/deep/home": "../../sub",
    }.items():
        (inside / name).symlink_to(target)
    return inside


# What a tool might do with a text before it opens the file. Each takes the folder and the text.
def _as_it_is(folder: Path, text: str) -> str:
    return text if text.startswith("/") else f"{folder}/{text}"


def _tidied_first(folder: Path, text: str) -> str:
    return os.path.normpath(_as_it_is(folder, text))


def _decode(folder: Path, text: str) -> str:
    return _as_it_is(folder, unquote(text))


def _decoded_twice(folder: Path, text: str) -> str:
    return _as_it_is(folder, unquote(unquote(text)))


def _with_windows_separators(folder: Path, text: str) -> str:
    return _as_it_is(folder, text.replace("\\", "/"))


def _trim(folder: Path, text: str) -> str:
    return _as_it_is(folder, text.strip())


def _normalise(folder: Path, text: str) -> str:
    return _as_it_is(folder, unicodedata.normalize("NFKC", text))


def _home_expanded(folder: Path, text: str) -> str:
    return _as_it_is(folder, os.path.expanduser(text))  # noqa: PTH111 - as a tool would


def _address_opened(folder: Path, text: str) -> str:
    if not text.lower().startswith("file://"):
        return _as_it_is(folder, text)
    return unquote(text[7:].partition("?")[0])


def _cut_at_zero(folder: Path, text: str) -> str:
    return _as_it_is(folder, text.partition("\0")[0])


TOOLS: list[Callable[[Path, str], str]] = [
    _as_it_is,
    _tidied_first,
    _decode,
    _decoded_twice,
    _with_windows_separators,
    _trim,
    _normalise,
    _home_expanded,
    _address_opened,
    _cut_at_zero,
]


def escapes(folder: Path, text: str) -> bool:
    """Whether some tool, given the text, would reach a file outside. Independent of the code under test."""
    for target in {tool(folder, text) for tool in TOOLS}:
        if "\0" in target:
            continue
        reached = os.path.realpath(target)
        if reached != str(folder) and not reached.startswith(f"{folder}/"):
            return True
    return False


SEGMENTS = [
    "..", ".", "", "a.txt", "sub", "deep", "in", "in-abs", "far", "out", "out-dir", "out-file", "out-new",
    "up", "root", "loop", "twice", "back", "home", "new", "work", "work-not", "...", " ..", "etc",
]  # fmt: skip
ENCODINGS: list[Callable[[str], str]] = [
    str,
    lambda text: quote(text, safe=""),
    lambda text: text.replace(".", "%2e"),
    lambda text: text.replace("/", "%2F"),
    lambda text: text.replace("/", "%252f"),
    lambda text: text.replace("/", "\\"),
    lambda text: text.replace("/", "／"),
    lambda text: text.replace(".", "．"),
    lambda text: text.replace("..", "‥"),
    lambda text: f" {text}\n",
    lambda text: f"{text}\0.txt",
    lambda text: text.upper(),
]


@pytest.fixture(scope="module")
def texts(folder: Path) -> list[str]:
    """Thousands of texts: beginnings, three segments, and ways to encode them."""
    beginnings = [
        "",
        "/",
        "./",
        "~/",
        "sub/deep/",
        f"{folder}/",
        f"file://{folder}/",
        f"{folder.parent}/work",
    ]
    made = (start + "/".join(parts) for start, *parts in product(beginnings, SEGMENTS, SEGMENTS, SEGMENTS))
    chosen = random.Random(7).sample(list(made), 500)
    made = [encode(text) for number, text in enumerate(chosen) for encode in ENCODINGS[number % 2 :: 2]]
    return list(dict.fromkeys(made))


@pytest.fixture(scope="module")
def leading_out(folder: Path, texts: list[str]) -> list[str]:
    return [text for text in texts if escapes(folder, text)]


@pytest.mark.slow
@proves("C6")
def test_of_thousands_of_tries_to_escape_none_is_judged_inside(
    folder: Path, texts: list[str], leading_out: list[str]
) -> None:
    assert len(texts) > 2000
    judged = {text: locate_paths({"path": text}, str(folder)) for text in texts}
    inside = {text for text, placement in judged.items() if placement is PathPlacement.INSIDE}
    assert inside.isdisjoint(leading_out)
    # The judge is not simply afraid of everything, nor are the tries harmless.
    assert len(leading_out) > 600  # about 850, by the name of the folder
    assert len(inside) > 40
    # What leads out is never taken for a call about nothing, in any parameter.
    assert not [text for text in leading_out if judged[text] is PathPlacement.NONE]


@pytest.mark.slow
@proves("C6")
def test_a_try_in_a_parameter_without_a_telling_name_is_not_judged_inside_either(
    folder: Path, leading_out: list[str]
) -> None:
    for text in leading_out[::6]:
        for hidden in ({"target": text}, {"deep": [{"x": [text]}]}, {"files": {text: "content"}}):
            assert locate_paths({"path": "a.txt", **hidden}, str(folder)) is not PathPlacement.INSIDE, (
                text,
                hidden,
            )


@given(st.text(max_size=30), st.sampled_from(["path", "x"]))
def test_no_text_makes_the_judge_fail(text: str, name: str) -> None:
    assert locate_paths({name: text}, "/tmp") in PathPlacement


@table(
    "text",
    ["a.txt", "./a.txt", "new/file.txt", ".", "sub/../a.txt", "in/deep", "in-abs/x", "sub/deep/home/x",
     "sub/deep/../../a.txt", "résumé.txt", "two words.txt", "a..b", ".hidden", "100%.txt"],
)  # fmt: skip
def test_an_ordinary_path_inside_is_judged_inside(folder: Path, text: str) -> None:
    for spelt in (text, f"{folder}/{text}", f"file://{folder}/{quote(text)}"):
        assert locate_paths({"path": spelt}, str(folder)) is PathPlacement.INSIDE, spelt


@table(
    "text",
    ["../x", "/etc/passwd", "out/secret", "out-file", "out-new", "root/etc", "up/outside", "twice",
     "sub/deep/back/outside", "sub/../../x", "~/x", "C:\\x", "file:///etc/passwd", "FILE://localhost/etc",
     "file://server/share", "\\\\server\\share", "//server/share", "https://example.org/x", "s3://bucket/x"],
)  # fmt: skip
def test_a_plain_path_outside_is_judged_outside(folder: Path, text: str) -> None:
    assert locate_paths({"path": text}, str(folder)) in (PathPlacement.OUTSIDE, PathPlacement.UNCLEAR)
    if "\\" not in text:
        assert locate_paths({"path": text}, str(folder)) is PathPlacement.OUTSIDE


@table(
    "text",
    ["far/../out-file", "loop", "ping/x",
      "self/x", "/proc/self/cwd/a.txt", "/dev/fd/3", "a\0b", "~nobody-by-this-name/x",
     "$HOME/x", "${TMPDIR}", "%APPDATA%\\x", "*/secret", "a.txt,../x", "a.txt\nout-file", "--file=/etc/x",
     "..%2f..%2fetc", "a" * 40_000, "\udcff\ud800"],
)  # fmt: skip
def test_a_path_that_cannot_be_resolved_is_unclear(folder: Path, text: str) -> None:
    assert locate_paths({"path": text}, str(folder)) is PathPlacement.UNCLEAR


@table(
    ("arguments", "placement"),
    [
        ({"city": "Oslo", "count": 3}, PathPlacement.NONE),
        ({"path": ""}, PathPlacement.NONE),
        ({"path": None}, PathPlacement.NONE),
        ({"repo": "owner/name", "url": "https://example.org/a/b"}, PathPlacement.NONE),
        ({"outputDir": "sub"}, PathPlacement.INSIDE),
        ({"file_name": "a.txt"}, PathPlacement.INSIDE),
        ({"file2": "a.txt"}, PathPlacement.INSIDE),
        ({"file_type": "pdf"}, PathPlacement.NONE),
        ({"source": "./a.txt", "destination": "sub/b.txt"}, PathPlacement.INSIDE),
        ({"source": "./a.txt", "destination": "/tmp/b.txt"}, PathPlacement.OUTSIDE),
        ({"paths": ["a.txt", "sub/b"]}, PathPlacement.INSIDE),
        ({"paths": ["a.txt", "../b"]}, PathPlacement.OUTSIDE),
        ({"options": {"root": "/srv"}}, PathPlacement.OUTSIDE),
        ({"path": "a.txt", "name": "out-file"}, PathPlacement.UNCLEAR),
        ({"path": "a.txt", "content": "See /etc/passwd and ../x\n// done"}, PathPlacement.INSIDE),
        ({"path": "a.txt", "content": "/etc/passwd"}, PathPlacement.UNCLEAR),
        ({"path": "a.py", "edits": [{"oldText": "// a", "newText": "/* b */"}]}, PathPlacement.INSIDE),
        ({"content": "./a.txt"}, PathPlacement.NONE),
        ({"cwd": "sub", "command": "rm -rf *"}, PathPlacement.UNCLEAR),
        ({"command": "cat /etc/passwd"}, PathPlacement.UNCLEAR),
        ({"command": "ls"}, PathPlacement.NONE),
        ({"files": {"a.txt": "x", "../b": "y"}}, PathPlacement.OUTSIDE),
        ({"files": {"out-file": "y"}, "path": "a.txt"}, PathPlacement.UNCLEAR),
        ({"path": "a.txt", "many": ["x"] * 3000}, PathPlacement.UNCLEAR),
    ],
)
def test_which_arguments_are_paths_is_judged_by_name_and_value(
    folder: Path, arguments: dict[str, Json], placement: PathPlacement
) -> None:
    assert locate_paths(arguments, str(folder)) is placement


def test_without_a_working_directory_no_path_is_anywhere(folder: Path) -> None:
    for nowhere in (None, "", "relative/dir"):
        assert locate_paths({"path": "a.txt"}, nowhere) is PathPlacement.NOWHERE
        assert locate_paths({"x": "/etc"}, nowhere) is PathPlacement.NOWHERE
        assert locate_paths({"city": "Oslo"}, nowhere) is PathPlacement.NONE


def test_a_working_directory_that_is_itself_a_link_is_where_it_leads(folder: Path) -> None:
    link = folder.parent / "via"
    link.symlink_to(folder)
    for path in ("a.txt", f"{link}/a.txt", f"{folder}/a.txt"):
        assert locate_paths({"path": path}, str(link)) is PathPlacement.INSIDE
    assert locate_paths({"path": f"{link}-not/a"}, str(link)) is PathPlacement.OUTSIDE
    assert locate_paths({"path": "/etc"}, "/") is PathPlacement.INSIDE


@given(st.lists(st.sampled_from([*SEGMENTS, "x"]), max_size=8))
def test_where_links_can_be_followed_the_system_agrees(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    assert resolve_path(path) in (None, os.path.realpath(path).replace("//", "/"))
