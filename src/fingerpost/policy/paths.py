"""Patterns of rules, and paths in arguments: what matches, and what stays in the working directory."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final, cast
from urllib.parse import unquote

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.regex import prepare_re

# Decoding `%252e` takes two rounds; more than three are never accidental.
_MAX_DECODINGS: Final = 3

# Characters that look like separators. Full-width ones are folded anyway.
_SLASHES: Final = str.maketrans(dict.fromkeys("⁄∕⧸╱", "/") | dict.fromkeys("∖⧵⧹╲", "\\"))
_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf"})
_PARENT_SEGMENT: Final = prepare_re(r"[. ]*\.[. ]*\.[. ]*")


def list_readings(text: str) -> tuple[str, ...]:
    """Return `text` unchanged, decoded, and simplified, without duplicates."""
    found = [text]
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(found[-1])
        if decoded == found[-1]:
            break
        found.append(decoded)
    return tuple(dict.fromkeys([*found, *(_simplify(each) for each in found)]))


def _simplify(text: str) -> str:
    """Fold compatibility forms, replace look-alike separators, and remove invisible characters."""
    if text.isascii() and text.isprintable():
        return text.strip()
    mapped = unicodedata.normalize("NFKC", text).translate(_SLASHES)
    return "".join(char for char in mapped if unicodedata.category(char) not in _INVISIBLE_CATEGORIES).strip()


def normalize_windows_path(path: str) -> str:
    """Return the path as Windows reads it: with `/` for backslashes, no dots and spaces at ends of names."""
    return "/".join(_normalize_windows_segment(segment) for segment in path.replace("\\", "/").split("/"))


def _normalize_windows_segment(segment: str) -> str:
    if _PARENT_SEGMENT.fullmatch(segment):
        return ".."
    return segment if segment in (".", "..") else segment.strip(" ").rstrip(". ")


def normalize_path(text: str) -> str:
    """Resolve `.`, `..` and doubled separators, if the text has separators."""
    if "/" not in text and "\\" not in text:
        return text
    plain = posixpath.normpath(normalize_windows_path(text))
    return plain[1:] if plain.startswith("//") else plain  # `normpath` keeps two leading slashes


def has_parent_step(text: str) -> bool:
    """Return whether a reading of `text` contains `..`."""
    return any(".." in normalize_windows_path(reading).split("/") for reading in list_readings(text))


MAX_TEXT_LENGTH: Final = 65_536  # characters; longer text would block the event loop


class PatternFit(IntEnum):
    """The result of a match. Of several conditions, the weakest result decides."""

    NO = 0
    MAYBE = 1
    YES = 2


def match_exactly(pattern: str, text: str) -> PatternFit:
    """Match for rules that allow: every reading must match, with `..` only if the pattern has it."""
    if len(text) > MAX_TEXT_LENGTH or (".." not in pattern and has_parent_step(text)):
        return PatternFit.NO
    matches = all(fnmatchcase(reading, pattern) for reading in list_readings(text))
    return PatternFit.YES if matches else PatternFit.NO


def match_loosely(pattern: str, text: str, folder: str | None = None) -> PatternFit:
    """Match for rules that ask or deny: one reading must match. Paths are relative to `folder`."""
    if len(text) > MAX_TEXT_LENGTH:
        return PatternFit.MAYBE
    patterns = _list_pattern_forms(pattern)
    forms = {_casefold(form) for form in _list_forms(text, folder)}
    matches = any(fnmatchcase(form, each) for form in forms for each in patterns)
    return PatternFit.YES if matches else PatternFit.NO


def _list_pattern_forms(pattern: str) -> set[str]:
    return {_casefold(pattern), _casefold(normalize_path(pattern))}


def _casefold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _list_forms(text: str, folder: str | None) -> Iterator[str]:
    for reading in list_readings(text):
        yield reading
        yield reading.rstrip(". ")
        path = normalize_path(reading)
        yield path
        if path.casefold().startswith("file:"):
            path = posixpath.normpath("/" + path[5:].lstrip("/").removeprefix("localhost/"))
            yield path
        if not path.startswith("/"):
            if folder is not None:
                yield posixpath.normpath(f"{folder}/{path}")
            if path.startswith("../"):
                yield posixpath.normpath(f"/{path}")  # enough `..` lead to the root from any directory


@frozen
class UnknownText:
    """A text of which only the start is known, and a character that it does not contain."""

    start: str = ""
    excluded: str = ""

    def match(self, pattern: str, *, exactly: bool) -> PatternFit:
        """Return YES if every such text matches (as `match_exactly` or `match_loosely`), NO if none does."""
        if self.excluded and self.excluded in pattern:
            return PatternFit.NO
        # A pattern that ends in `*` and matches the start also matches what follows. Texts with odd readings
        # never match exactly.
        if not exactly and pattern.endswith("*") and fnmatchcase(_casefold(self.start), _casefold(pattern)):
            return PatternFit.YES
        return PatternFit.MAYBE if self._can_match(pattern, exactly=exactly) else PatternFit.NO

    def _can_match(self, pattern: str, *, exactly: bool) -> bool:
        match = match_exactly if exactly else match_loosely
        return not self.start or any(
            match(pattern[:end], self.start) is PatternFit.YES for end in range(1, len(pattern) + 1)
        )


def is_literal(pattern: str) -> bool:
    """Return whether the pattern has no wildcards."""
    return not _GLOB.search(pattern)


def is_covered(narrow: str, wide: str) -> bool:
    """Return whether every text that matches `narrow` also matches `wide` loosely. False if unclear."""
    return all(
        any(_covers(outer, inner) for outer in _list_pattern_forms(wide))
        for inner in _list_pattern_forms(narrow)
    )


def _covers(wide: str, narrow: str) -> bool:
    stem = wide.rstrip("*")
    if re.search(r"[?\[]", wide):
        return False
    return wide == narrow or (stem != wide and "*" not in stem and narrow.startswith(stem))


def match_argument(
    arguments: JsonObject, name: str, pattern: str, *, allowing: bool, folder: str | None
) -> PatternFit:
    """Match the argument `name` (dotted for nested ones). A missing argument does not match."""
    found = list(_find_values(arguments, name.split("."), exactly=allowing))
    if allowing:
        texts = [text for node in found for text in _iterate_leaves(node)]
        if not texts or None in texts:
            return PatternFit.NO
        return min(PatternFit.NO if text is None else match_exactly(pattern, text) for text in texts)
    forms = [form for node in found for form in _iterate_texts(node)]
    return max((match_loosely(pattern, form, folder) for form in forms), default=PatternFit.NO)


class _MissingArgument:
    """A placeholder for a missing argument."""


def _find_values(node: object, name: Sequence[str], *, exactly: bool) -> Iterator[object]:
    """Yield every value under the dotted name, including each item of a list."""
    if not name:
        yield node
    elif isinstance(node, Mapping):
        entries = cast("Mapping[str, object]", node)
        found = [
            (value, name[length:])
            for length in range(1, len(name) + 1)
            for key, value in entries.items()
            if _is_same_name(key, ".".join(name[:length]), exactly=exactly)
        ]
        for value, rest in found:
            yield from _find_values(value, rest, exactly=exactly)
        if not found:
            yield _MissingArgument()
    elif isinstance(node, list | tuple) and node:
        for item in cast("Sequence[object]", node):
            yield from _find_values(item, name, exactly=exactly)
    else:
        yield _MissingArgument()


def _is_same_name(key: str, name: str, *, exactly: bool) -> bool:
    return key == name if exactly else key == name or _normalize_name(key) == _normalize_name(name)


def _normalize_name(name: str) -> str:
    return "".join(char for char in _casefold(name) if char.isalnum())


def _iterate_leaves(node: object) -> Iterator[str | None]:
    """Yield every scalar below `node` as text, and None for missing, null or empty values."""
    if isinstance(node, Mapping):
        below: Sequence[object] = list(cast("Mapping[str, object]", node).values())
    elif isinstance(node, list | tuple):
        below = cast("Sequence[object]", node)
    else:
        yield _to_text(node)
        return
    if not below:
        yield None
    for item in below:
        yield from _iterate_leaves(item)


def _iterate_texts(node: object) -> Iterator[str]:
    """Yield every scalar below `node`, and a list also as one line: `["rm", "-rf", "/"]` is `rm -rf /`."""
    texts = ["null" if text is None else text for text in _iterate_leaves(node)]
    if isinstance(node, _MissingArgument):
        return
    yield from texts
    if len(texts) > 1:
        yield " ".join(texts)
    yield from (text.removesuffix(".0") for text in texts if text.endswith(".0"))


def _to_text(value: object) -> str | None:
    if value is None or isinstance(value, _MissingArgument):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_PATH_WORDS: Final = frozenset(
    {"path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir", "dirs"}
    | {"directory", "directories", "folder", "folders", "cwd", "workdir"}
)
_NAME_WORDS: Final = frozenset({"name", "names"})  # after one of the words above: `file_name`
_PROSE_WORDS: Final = frozenset(
    {"content", "contents", "text", "texts", "body", "message", "description", "comment", "prompt", "data"}
    | {"summary", "title", "str", "string", "markdown", "html", "note", "notes", "replacement"}
)
_PROGRAM_WORDS: Final = frozenset(
    {"command", "commands", "cmd", "script", "shell", "sql", "patch", "diff", "code", "program", "eval"}
    | {"expression"}
)
_WORDS: Final = prepare_re(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")

_PATH_START: Final = prepare_re(r"\s*(?:[/\\~]|\.{1,2}(?:[/\\]|\s*$)|[A-Za-z]:[/\\]|file:)", re.IGNORECASE)
# A path inside the text: `--file=/etc/passwd`, `-I../x`, `cat ~/.ssh/id_rsa`, but no web address.
_EMBEDDED_PATH: Final = prepare_re(
    r"(?:[\s=@,;'\"(\[{<>|&`]|:(?!//)|^-\w)(?:[/~]|\.\.[/\\]|\\\\|[A-Za-z]:[/\\])"
)
_GLOB: Final = prepare_re(r"[*?\[]")
_SPACE: Final = prepare_re(r"\s")


@frozen
class PathMention:
    """A text that is or may be a path."""

    text: str
    named: bool = False  # the parameter's name indicates a path
    shaped: bool = False  # the value looks like a path
    embeds: bool = False  # it contains another path, or stands for several
    program: bool = False  # it is executed, or its content changes files

    @property
    def is_path(self) -> bool:
        return self.named or self.shaped


def find_mentions(arguments: JsonObject) -> Iterator[PathMention]:
    """Yield every text that may contain a path, at any depth. Empty texts are skipped."""
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
    shaped = any(_PATH_START.match(reading) for reading in list_readings(text))
    if last and last[0] in _PROSE_WORDS:
        # A single rooted word may be a path, but does not by itself make the call one about paths.
        if shaped and not _SPACE.search(text.strip()):
            yield PathMention(text=text)
        return
    named = is_path_parameter(name)
    embeds = any(_EMBEDDED_PATH.search(reading) for reading in list_readings(text))
    yield PathMention(
        text=text,
        named=named,
        shaped=shaped,
        embeds=embeds or ((named or shaped) and _GLOB.search(text) is not None),
        program=bool(last) and last[0] in _PROGRAM_WORDS,
    )


def _classify_key(parent: str, key: str) -> Iterator[PathMention]:
    """Yield mapping keys that are paths: some tools take files as a mapping from path to content."""
    if is_path_parameter(parent) or any(sign in key for sign in "/\\%~"):
        yield PathMention(text=key, shaped=any(_PATH_START.match(reading) for reading in list_readings(key)))


def is_path_parameter(name: str) -> bool:
    """Return whether a parameter of this name holds paths: `path`, `inputFile`, `dir2`, `file_name`."""
    words = _split_words(name)
    if not words:
        return False
    return words[-1] in _PATH_WORDS or (
        words[-1] in _NAME_WORDS and len(words) > 1 and words[-2] in _PATH_WORDS
    )


def _split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


_MAX_LINKS: Final = 40  # the kernel's limit
_MAX_NAME_LENGTH: Final = 255  # bytes; the maximum of file systems
_NO_LINK_ERRNOS: Final = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})
# Their meaning depends on the process that reads them.
_RELATIVE_TO_PROCESS: Final = frozenset({"/proc", "/dev/fd"})

_DRIVE: Final = prepare_re(r"[A-Za-z]:")
_VARIABLE: Final = prepare_re(r"(?:^|[/\\])(?:\$[A-Za-z_{(]|%[A-Za-z_]\w*%)")
_FILE_SCHEME: Final = prepare_re(r"\s*file:", re.IGNORECASE)
_ITEM_SEPARATORS: Final = prepare_re(r"[\n\r,;|]+")
_LOCAL_HOSTS: Final = frozenset({"", "localhost"})


class PathLocation(StrEnum):
    """A location relative to the working directory."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    UNCLEAR = "unclear"


def locate_text(text: str, folder: str) -> PathLocation:
    """Return where `text` leads from `folder` (resolved), in every reading that a tool might use.

    If readings disagree, the location is unclear.
    """
    found = {_locate_path(reading, folder) for reading in dict.fromkeys(_list_candidates(text))}
    return found.pop() if len(found) == 1 else PathLocation.UNCLEAR


def resolve_path(path: str) -> str | None:
    """Return the absolute path with all links resolved as far as it exists, or None if impossible."""
    ahead = path.split("/")[::-1]
    here, links = "", 0
    while ahead:
        step = ahead.pop()
        if step in ("", "."):
            continue
        if step == "..":
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{step}"
        try:
            target = _read_link(there, step)
        except (OSError, ValueError):  # not readable, too long, or an invalid name
            return None
        if target is None:
            here = there
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        here = "" if target.startswith("/") else here
        ahead.extend(reversed(target.split("/")))
    return here or "/"


def _read_link(path: str, name: str) -> str | None:
    """Return the target of the link at `path`, or None if it is no link."""
    if path in _RELATIVE_TO_PROCESS:
        message = "depends on who looks"
        raise ValueError(message)
    if len(os.fsencode(name)) > _MAX_NAME_LENGTH:
        return None
    try:
        return os.readlink(path)  # noqa: PTH115 - `Path` would normalise the text
    except OSError as error:
        if error.errno in _NO_LINK_ERRNOS:
            return None
        raise


def _list_candidates(text: str) -> Iterator[str]:
    """Yield readings: decoded or not, with either separator, with `..` resolved before or after links."""
    for reading in _list_items(text):
        for bare in _strip_file_scheme(reading):
            for path in (bare, bare.replace("\\", "/"), normalize_windows_path(bare)):
                yield path
                yield posixpath.normpath(path)


def _list_items(text: str) -> Iterator[str]:
    """Yield the readings, and those of each item if the text may be a list: `a.txt,b.txt`."""
    yield from list_readings(text)
    items = _ITEM_SEPARATORS.split(text)
    if len(items) > 1:
        for item in items:
            yield from list_readings(item)


def _strip_file_scheme(text: str) -> Iterator[str]:
    """Yield the path of a `file:` URL, with and without query and fragment."""
    scheme = _FILE_SCHEME.match(text)
    if scheme is None:
        yield text
        return
    rest = text[scheme.end() :]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        rest = f"/{path}" if host.lower() in _LOCAL_HOSTS else f"//{host}/{path}"
    yield rest
    yield re.split(r"[?#]", rest, maxsplit=1)[0]


def _locate_path(path: str, folder: str) -> PathLocation:
    if _VARIABLE.search(path):
        return PathLocation.UNCLEAR
    if _DRIVE.match(path):
        return PathLocation.OUTSIDE
    if path.startswith("~"):
        path = os.path.expanduser(path)  # noqa: PTH111 - `Path` would drop `.` and doubled separators
        if path.startswith("~"):
            return PathLocation.UNCLEAR
    target = resolve_path(path if path.startswith("/") else f"{folder}/{path}")
    if target is None:
        return PathLocation.UNCLEAR
    within = folder == "/" or target == folder or target.startswith(f"{folder}/")
    return PathLocation.INSIDE if within else PathLocation.OUTSIDE


MAX_MENTIONS: Final = 2000
MAX_PATH_LENGTH: Final = 32_768

# A URL such as `https://…` in a path parameter is outside.
_REMOTE_URL: Final = prepare_re(r"\s*(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)


class PathPlacement(StrEnum):
    """Where the paths of a call are."""

    NONE = "none"  # there are no paths
    INSIDE = "inside"  # all are certainly in the working directory
    OUTSIDE = "outside"  # at least one is outside
    UNCLEAR = "unclear"  # at least one is unclear
    NOWHERE = "nowhere"  # there are paths but no working directory


def locate_paths(arguments: JsonObject, working_directory: str | None) -> PathPlacement:
    """Return where the paths in `arguments` are, relative to the (absolute) working directory."""
    found = list(islice(find_mentions(arguments), MAX_MENTIONS + 1))
    if working_directory is None or not working_directory.startswith("/"):
        named = any(mention.is_path or mention.embeds for mention in found)
        return PathPlacement.NOWHERE if named else PathPlacement.NONE
    folder = resolve_path(working_directory)
    if folder is None or len(found) > MAX_MENTIONS:
        return PathPlacement.UNCLEAR
    locations = {_locate_mention(mention, folder) for mention in found}
    if PathLocation.OUTSIDE in locations:
        return PathPlacement.OUTSIDE
    if PathLocation.UNCLEAR in locations:
        return PathPlacement.UNCLEAR
    if not any(mention.is_path for mention in found):
        return PathPlacement.NONE
    # A program started inside can still access any path.
    return PathPlacement.UNCLEAR if any(mention.program for mention in found) else PathPlacement.INSIDE


def _locate_mention(mention: PathMention, folder: str) -> PathLocation:
    if len(mention.text) > MAX_PATH_LENGTH:
        return PathLocation.UNCLEAR
    if mention.named and _REMOTE_URL.match(mention.text):
        return PathLocation.OUTSIDE
    where = locate_text(mention.text, folder)
    if where is PathLocation.OUTSIDE and not mention.is_path:
        return PathLocation.UNCLEAR  # it would be outside, but may not be a path
    return PathLocation.UNCLEAR if where is PathLocation.INSIDE and mention.embeds else where
