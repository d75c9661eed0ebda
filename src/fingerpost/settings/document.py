"""A parsed settings file (TOML, JSON with comments, `.env`): its values and their lines."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, cast

from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re
from fingerpost.settings.problems import KeyPath, Problem, ValueOrigin

# Deeper than any setting. Below it, the line of the enclosing key is used.
_MAX_NESTING = 16

_PIECE = prepare_re(
    r'"(?:[^"\\\r\n]|\\.)*"|//[^\r\n]*|/\*.*?\*/|[ \t\r\n]+|[{}\[\],:]|[^\s{}\[\],:"/]+|.', re.DOTALL
)
_NOT_NEWLINE = prepare_re(r"[^\r\n]")


def to_plain_json(text: str) -> str:
    """Return `text` with comments and trailing commas replaced by spaces. Offsets and lines do not change."""
    pieces = [match[0] for match in _PIECE.finditer(text)]
    comma: int | None = None  # a comma after a value, followed only by space and comments so far
    before = ""  # the last significant character
    for number, piece in enumerate(pieces):
        if piece.startswith("//") or (piece.startswith("/*") and len(piece) > len("/*")):
            pieces[number] = _NOT_NEWLINE.sub(" ", piece)
            continue
        if not piece.strip():
            continue
        if piece in "}]" and comma is not None:
            pieces[comma] = " "
        comma = number if piece == "," and before not in {"", ",", ":", "[", "{"} else None
        before = piece
    return "".join(pieces)


@frozen(kw_only=False)
class RepeatedKey:
    """A key that occurs twice in an object. The standard parser silently keeps the last one."""

    path: KeyPath
    line: int
    first: int


@dataclass(slots=True)
class _JsonFrame:
    """The current object or array, and the current member."""

    is_array: bool
    key: str | int | None
    seen: dict[str, int] = field(default_factory=dict[str, int])


def find_json_lines(text: str) -> tuple[dict[KeyPath, int], tuple[RepeatedKey, ...]]:
    """Return the line of every key and element of a valid plain JSON text, and the repeated keys."""
    found: dict[KeyPath, int] = {}
    repeated: list[RepeatedKey] = []
    frames: list[_JsonFrame] = []
    line = 1
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in ("}", "]"):
            frames.pop()
        elif piece == ",":
            frame = frames[-1]
            frame.key = frame.key + 1 if isinstance(frame.key, int) else None
        elif piece.strip() and piece != ":":
            if frames and frames[-1].key is None:
                twice = _enter_key(frames, json.loads(piece), line)
                repeated += [twice] if twice else []
                _note_line(found, frames, line)
                continue
            if frames and frames[-1].is_array:
                _note_line(found, frames, line)
            if piece in ("{", "["):
                frames.append(_JsonFrame(piece == "[", 0 if piece == "[" else None))
        line += piece.count("\n")
    return found, tuple(repeated)


def _enter_key(frames: list[_JsonFrame], key: str, line: int) -> RepeatedKey | None:
    frame = frames[-1]
    frame.key = key
    first = frame.seen.get(key)
    frame.seen.setdefault(key, line)
    return None if first is None else RepeatedKey(_get_path(frames), line, first)


def _note_line(found: dict[KeyPath, int], frames: list[_JsonFrame], line: int) -> None:
    if len(frames) <= _MAX_NESTING:
        found[_get_path(frames)] = line


def _get_path(frames: list[_JsonFrame]) -> KeyPath:
    return tuple(frame.key for frame in frames if frame.key is not None)


_BLANK = prepare_re(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = prepare_re(r"[ \t]*")
_STRING = prepare_re(
    r"""
      \"{3}(?:[^"\\]|\\.|"{1,2}(?!"))*\"{3,5}
    | '{3}(?:[^']|'{1,2}(?!'))*'{3,5}
    | "(?:[^"\\\n]|\\.)*"
    | '[^'\n]*'
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_KEY = prepare_re(r"[A-Za-z0-9_-]+")
_SCALAR = prepare_re(r"[^,\]}#\r\n]*")


def find_toml_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of every table, key and array element of a valid TOML text."""
    return _TomlScanner(text).find_lines()


class _TomlScanner:
    """One pass over the text: `at` is the position, `found` the result so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        self.rows: dict[KeyPath, int] = {}  # newest index of each array of tables
        self._counted = 0
        self._line = 1

    def find_lines(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip(_BLANK)
        return self.found

    def _read_header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`. Inside an array of tables the path continues in its newest row."""
        row = self.text.startswith("[[", self.at)
        line = self._get_line()
        self.at += 2 if row else 1
        names = self._read_key()
        self.at += 2 if row else 1
        path: KeyPath = ()
        for name in names[:-1]:
            path = self._get_newest_path((*path, name))
            self.found.setdefault(path, line)
        path = (*path, names[-1])
        if row:
            self.rows[path] = self.rows.get(path, -1) + 1
            self.found.setdefault(path, line)
            path = (*path, self.rows[path])
        self.found[path] = line
        return path

    def _get_newest_path(self, path: KeyPath) -> KeyPath:
        return (*path, self.rows[path]) if path in self.rows else path

    def _read_pair(self, table: KeyPath) -> None:
        """Read `a.b = value`."""
        line = self._get_line()
        path = table
        for name in self._read_key():
            path = (*path, name)
            self.found.setdefault(path, line)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._read_value(path)

    def _read_key(self) -> list[str]:
        """Read a dotted key and the space around it."""
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if quoted := _STRING.match(self.text, self.at):
                names.append(str(tomllib.loads(f"key = {quoted[0]}")["key"]))
                self.at = quoted.end()
            else:
                names.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _read_value(self, path: KeyPath) -> None:
        first = self.text[self.at : self.at + 1]
        if first == "[":
            self._read_array(path)
        elif first == "{":
            self._read_inline_table(path)
        elif string := _STRING.match(self.text, self.at):
            self.at = string.end()
        else:
            self._skip(_SCALAR)

    def _read_array(self, path: KeyPath) -> None:
        self.at += 1
        self._skip(_BLANK)
        index = 0
        while not self.text.startswith("]", self.at):
            self.found[(*path, index)] = self._get_line()
            self._read_value((*path, index))
            index += 1
            self._skip_separator()
        self.at += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        self.at += 1
        self._skip(_BLANK)
        while not self.text.startswith("}", self.at):
            self._read_pair(path)
            self._skip_separator()
        self.at += 1

    def _skip_separator(self) -> None:
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def _get_line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line


# A settings file is small. A huge file is a wrong path, and reading it would waste memory.
MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100

_TOML_PLACE = prepare_re(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


@frozen
class SettingsDocument:
    """The values of one file and their positions."""

    file: str  # as shown to the user
    folder: Path
    values: Mapping[str, object] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(repr=False)
    repeated: tuple[RepeatedKey, ...] = field(default=())

    def get_origin(self, path: KeyPath) -> ValueOrigin:
        """Return where `path`, or its nearest written parent, is written."""
        for length in range(len(path), 0, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return ValueOrigin(kind="file", file=self.file, line=line)
        return ValueOrigin(kind="file", file=self.file, line=1)


def as_table(value: object) -> Mapping[str, object] | None:
    """Return `value` if it is a table (TOML) or an object (JSON), else None."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object]:
    """Return `value` if it is a list, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def read_document(path: Path, shown_as: str, *, toml: bool | None = None) -> SettingsDocument | Problem:
    """Read a file: TOML if its name or `toml` says so, else JSON with comments."""
    text = read_text(path, shown_as)
    if isinstance(text, Problem):
        return text
    as_toml = path.suffix == ".toml" if toml is None else toml
    parse = parse_toml if as_toml else parse_json
    try:
        document = parse(text, shown_as, path.parent)
    except RecursionError:
        document = None
    if document is None or (isinstance(document, SettingsDocument) and _is_too_deep(document.values)):
        return _build_problem(shown_as, 1, "is nested too deeply", "use fewer levels")
    return document


def _is_too_deep(value: object) -> bool:
    """Return whether a value is nested deeper than later code supports."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in (*(as_table(node) or {}).values(), *as_list(node))]
        if not level:
            return False
    return True


def read_text(path: Path, shown_as: str) -> str | Problem:
    """Return the file's text without its byte order mark."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return _build_problem(shown_as, None, "does not exist", "check the path, or create the file")
    except IsADirectoryError:
        return _build_problem(shown_as, None, "is a folder", "name the file inside it")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _build_problem(
            shown_as, None, f"cannot be read: {reason}", "check the path and its permissions"
        )
    if len(data) > MAX_BYTES:
        limit = f"{MAX_BYTES // 1024 // 1024} MiB"
        return _build_problem(shown_as, None, f"is larger than {limit}", "check that it is a settings file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _build_problem(shown_as, line, "is not UTF-8 text", "save the file with the encoding UTF-8")


def parse_toml(text: str, shown_as: str, folder: Path) -> SettingsDocument | Problem:
    """Parse a TOML text."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:
        position = _TOML_PLACE.search(str(error))
        line = int(position["line"]) if position and position["line"] else text.rstrip().count("\n") + 1
        message = _TOML_PLACE.sub("", str(error))
        return _build_problem(
            shown_as, line, f"is not valid TOML: {_lower_first(message)}", _find_toml_fix(message, text, line)
        )
    lines = find_toml_lines(text.replace("\r\n", "\n"))
    return SettingsDocument(file=shown_as, folder=folder, values=values, lines=lines)


def parse_json(text: str, shown_as: str, folder: Path) -> SettingsDocument | Problem:
    """Parse a JSON text with comments and trailing commas. An empty text is an empty document."""
    plain = to_plain_json(text)
    if not plain.strip():
        return SettingsDocument(file=shown_as, folder=folder, values={}, lines={})
    try:
        values: object = json.loads(plain, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        fix = _JSON_FIXES.get(error.msg, "check the brackets, commas and quotes around this line")
        if error.msg == "Expecting ',' delimiter" and not plain[error.pos :].strip():
            fix = f"a {_find_open_bracket(plain)} is missing at the end"
        message = _lower_first(error.msg).replace("\\", "")
        return _build_problem(shown_as, error.lineno, f"is not valid JSON: {message}", fix)
    except ValueError as error:
        return _build_problem(shown_as, 1, f"is not valid JSON: {error}", "write a number that JSON allows")
    entries = as_table(values)
    if entries is None:
        fix = 'the file must start with { and contain "mcpServers"'
        return _build_problem(shown_as, 1, "does not contain a JSON object", fix)
    lines, repeated = find_json_lines(plain)
    return SettingsDocument(file=shown_as, folder=folder, values=entries, lines=lines, repeated=repeated)


_JSON_FIXES = {
    "Expecting ',' delimiter": "put a comma between this entry and the one before it",
    "Expecting ':' delimiter": "put a colon between the name and its value",
    "Expecting property name enclosed in double quotes": "write names in double quotes",
    "Expecting value": "a value is missing here: text in double quotes, a number, true, false, [ or {",
    "Extra data": "remove everything after the last }",
    "Unterminated string starting at": "close the text with a double quote",
    "Invalid control character at": "a text must end on the same line; write \\n for a line break",
    # Without a literal backslash: where control characters are escaped for terminals it would be doubled.
    "Invalid \\escape": "write every backslash twice, or / instead, as in C:/tools/x.cmd",
}


def _find_open_bracket(plain: str) -> str:
    """Return the bracket that would close the innermost open object or list."""
    missing: list[str] = []
    for part in _JSON_BRACKETS.findall(plain):
        if part in "{[":
            missing.append("}" if part == "{" else "]")
        elif part in "}]":
            missing.pop()
    return missing[-1]


_JSON_BRACKETS = prepare_re(r'"(?:\\.|[^"\\])*"|[{}\[\]]')


def _find_toml_fix(message: str, text: str, line: int) -> str:
    if message.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate")):
        return "each name may be given once; remove one of the two"
    if message.startswith("Unclosed array"):
        return "put a ] after the last entry of the list, and commas between entries"
    if message.startswith("Unclosed inline table"):
        return "put a } after the last entry, on the same line"
    if message.startswith(("Unescaped", "Invalid hex value")):
        return "write text with backslashes in single quotes, or / instead, as in 'C:/tools/x.cmd'"
    in_quotes = 'write text in quotes ("auto"), numbers and true/false without'
    if message.startswith("Invalid value"):
        return f"{in_quotes}, and close a list with ]" if _is_after_open_list(text, line) else in_quotes
    return 'write `name = value`, with text in quotes: mode = "auto"'


def _is_after_open_list(text: str, line: int) -> bool:
    """Return whether the line before looks like an unclosed list, which may be the actual error."""
    before = [row.partition("#")[0].strip() for row in text.splitlines()[: line - 1]]
    return next((row for row in reversed(before) if row), "").endswith((",", "["))


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _build_problem(file: str, line: int | None, message: str, fix: str) -> Problem:
    return Problem(message=message, fix=fix, origin=ValueOrigin(kind="file", file=file, line=line))


_DOTENV_LINE = prepare_re(
    r"""
    (?:export\s+)? (?P<name>[A-Za-z_][A-Za-z0-9_.-]*) \s*=\s*
    (?: "(?P<double>(?:[^"\\]|\\.)*)"\s*(?:\#.*)? | '(?P<single>[^']*)'\s*(?:\#.*)? | (?P<plain>.*) )
    """,
    re.VERBOSE | re.DOTALL,
)
_DOTENV_COMMENT = prepare_re(r"(?:^|\s)#")
_ESCAPE = prepare_re(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@frozen(kw_only=False)
class BadDotenvLine:
    """A line that is not `NAME=value`. Its text may be a secret and is not kept."""

    line: int


def read_dotenv(text: str) -> tuple[dict[str, str], tuple[BadDotenvLine, ...]]:
    """Return the variables of a `.env` text, and the invalid lines."""
    values: dict[str, str] = {}
    bad: list[BadDotenvLine] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _DOTENV_LINE.fullmatch(line)
        if match is None:
            bad.append(BadDotenvLine(number))
        else:
            values[match["name"]] = _parse_value(match)
    return values, tuple(bad)


def _parse_value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), match["double"])
    if match["single"] is not None:
        return match["single"]
    return _DOTENV_COMMENT.split(match["plain"], maxsplit=1)[0].strip()
