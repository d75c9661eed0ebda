"""Which texts in a call's arguments are paths, or may be taken for one.

A schema rarely says. So it is judged from the parameter's name (`path`,
`outputDir`, `file_name`) and from the value (`/etc`, `~/notes`, `..\\x`,
`file:///…`). Such a text *is* a path. Any other text *may* be one: a tool that
opens `target` follows a link of that name as readily. Only what is plainly prose
(`content`, `newText`) is passed over, and what is a program (`command`, `patch`)
is marked, because nobody can say where a program goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from fingerpost.call.spellings import list_readings
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject

_PATH: Final = frozenset(
    {"path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir", "dirs"}
    | {"directory", "directories", "folder", "folders", "cwd", "workdir"}
)
_NAMED: Final = frozenset({"name", "names"})  # after one of the words above: `file_name`
_PROSE: Final = frozenset(
    {"content", "contents", "text", "texts", "body", "message", "description", "comment", "prompt", "data"}
    | {"summary", "title", "str", "string", "markdown", "html", "note", "notes", "replacement"}
)
_PROGRAM: Final = frozenset(
    {"command", "commands", "cmd", "script", "shell", "sql", "patch", "diff", "code", "program", "eval"}
    | {"expression"}
)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")

_SHAPE: Final = re.compile(r"\s*(?:[/\\~]|\.{1,2}(?:[/\\]|\s*$)|[A-Za-z]:[/\\]|file:)", re.IGNORECASE)
# Another path inside the text: `--file=/etc/passwd`, `-I../x`, `cat ~/.ssh/id_rsa`; no web address is one.
_EMBEDDED: Final = re.compile(r"(?:[\s=@,;'\"(\[{<>|&`]|:(?!//)|^-\w)(?:[/~]|\.\.[/\\]|\\\\|[A-Za-z]:[/\\])")
_GLOB: Final = re.compile(r"[*?\[]")
_SPACE: Final = re.compile(r"\s")


@frozen
class PathMention:
    """A text that is a path, or may be taken for one."""

    text: str
    named: bool = False  # the parameter's name says path
    shaped: bool = False  # the value looks like one
    embeds: bool = False  # it holds another path somewhere inside, or stands for several
    program: bool = False  # it is run, or changes files by what stands in it

    @property
    def is_path(self) -> bool:
        return self.named or self.shaped


def find_mentions(arguments: JsonObject) -> Iterator[PathMention]:
    """Every text worth looking at, however deep. An empty text names nothing and is left out."""
    waiting: list[tuple[str, object]] = [("", arguments)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, str):
            if node:
                yield from _classify_text(name, node)
        elif isinstance(node, Mapping):
            for key, value in cast("Mapping[str, object]", node).items():
                yield from _classify_key(name, key)
                waiting.append((key, value))
        elif isinstance(node, Sequence):
            waiting.extend((name, item) for item in cast("Sequence[object]", node))


def _classify_text(name: str, text: str) -> Iterator[PathMention]:
    last = _split_words(name)[-1:]
    shaped = any(_SHAPE.match(reading) for reading in list_readings(text))
    if last and last[0] in _PROSE:
        # Prose that is one rooted word may be a path after all; it never makes the call one about paths.
        if shaped and not _SPACE.search(text.strip()):
            yield PathMention(text=text)
        return
    named = is_path_parameter(name)
    embeds = any(_EMBEDDED.search(reading) for reading in list_readings(text))
    yield PathMention(
        text=text,
        named=named,
        shaped=shaped,
        embeds=embeds or ((named or shaped) and _GLOB.search(text) is not None),
        program=bool(last) and last[0] in _PROGRAM,
    )


def _classify_key(parent: str, key: str) -> Iterator[PathMention]:
    """Some tools take files as a mapping from path to content."""
    if is_path_parameter(parent) or any(sign in key for sign in "/\\%~"):
        yield PathMention(text=key, shaped=any(_SHAPE.match(reading) for reading in list_readings(key)))


def is_path_parameter(name: str) -> bool:
    """Whether a parameter of this name holds paths: `path`, `inputFile`, `dir2`, `file_name`."""
    words = _split_words(name)
    if not words:
        return False
    return words[-1] in _PATH or (words[-1] in _NAMED and len(words) > 1 and words[-2] in _PATH)


def _split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]
