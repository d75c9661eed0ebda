"""A settings file as read: its values, and the line of each.

Reading never raises for what a file may hold. It answers with a `SettingsDocument`, or
with the `ApiProblem` that says why there is none.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import NoReturn, cast

from fingerpost.frozen import frozen
from fingerpost.settings.jsonc import RepeatedKey, find_json_lines, to_plain_json
from fingerpost.settings.problems import KeyPath, Problem, ValueOrigin
from fingerpost.settings.toml_lines import find_toml_lines

# A settings file is a page or two; a huge one is a wrong path, and reading it would only cost memory.
MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100

_TOML_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


@frozen
class SettingsDocument:
    """The values of one file, and where each stands."""

    file: str  # as shown to the person
    folder: Path
    values: Mapping[str, object] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(repr=False)
    repeated: tuple[RepeatedKey, ...] = field(default=())

    def get_origin(self, path: KeyPath) -> ValueOrigin:
        """Where `path` is written, or the nearest thing around it that is."""
        for length in range(len(path), 0, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return ValueOrigin(kind="file", file=self.file, line=line)
        return ValueOrigin(kind="file", file=self.file, line=1)


def as_table(value: object) -> Mapping[str, object] | None:
    """`value` if it is a table (TOML) or an object (JSON)."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object]:
    """`value` if it is a list, else no items."""
    return cast("list[object]", value) if isinstance(value, list) else []


def read_document(path: Path, shown_as: str, *, toml: bool | None = None) -> SettingsDocument | Problem:
    """The file's values: TOML when it is named so (or known to be), JSON with comments otherwise."""
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
        return _build_problem(shown_as, 1, "is nested too deeply", "a settings file has a handful of levels")
    return document


def _is_too_deep(value: object) -> bool:
    """Whether a value is nested deeper than anything that walks it later is prepared for."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in (*(as_table(node) or {}).values(), *as_list(node))]
        if not level:
            return False
    return True


def read_text(path: Path, shown_as: str) -> str | Problem:
    """The file's text without its byte-order mark."""
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
        return _build_problem(shown_as, None, f"is larger than {limit}", "this is not a settings file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _build_problem(shown_as, line, "is not UTF-8 text", "save the file with the encoding UTF-8")


def parse_toml(text: str, shown_as: str, folder: Path) -> SettingsDocument | Problem:
    """A TOML text as a document."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place["line"]) if place and place["line"] else text.rstrip().count("\n") + 1
        message = _TOML_PLACE.sub("", str(error))
        return _build_problem(
            shown_as, line, f"is not valid TOML: {_lower_first(message)}", _find_toml_fix(message, text, line)
        )
    lines = find_toml_lines(text.replace("\r\n", "\n"))
    return SettingsDocument(file=shown_as, folder=folder, values=values, lines=lines)


def parse_json(text: str, shown_as: str, folder: Path) -> SettingsDocument | Problem:
    """A JSON text, comments and trailing commas allowed, as a document. An empty one holds nothing."""
    plain = to_plain_json(text)
    if not plain.strip():
        return SettingsDocument(file=shown_as, folder=folder, values={}, lines={})
    try:
        values: object = json.loads(plain, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        fix = _JSON_FIXES.get(error.msg, "check the brackets, commas and quotes around this line")
        message = _lower_first(error.msg).replace("\\", "")
        return _build_problem(shown_as, error.lineno, f"is not valid JSON: {message}", fix)
    except ValueError as error:
        return _build_problem(shown_as, 1, f"is not valid JSON: {error}", "write numbers that JSON knows")
    entries = as_table(values)
    if entries is None:
        fix = 'the file starts with { and holds "mcpServers"'
        return _build_problem(shown_as, 1, "does not hold a JSON object", fix)
    lines, repeated = find_json_lines(plain)
    return SettingsDocument(file=shown_as, folder=folder, values=entries, lines=lines, repeated=repeated)


_JSON_FIXES = {
    "Expecting ',' delimiter": "put a comma between this entry and the one before it",
    "Expecting ':' delimiter": "put a colon between the name and its value",
    "Expecting property name enclosed in double quotes": "write names in double quotes",
    "Expecting value": "a value is missing here: text in double quotes, a number, true, false, [ or {",
    "Extra data": "remove what stands after the last }",
    "Unterminated string starting at": "close the text with a double quote",
    "Invalid control character at": "a text ends on the line it starts on; write \\n for a line break",
    # Without showing a backslash: where terminals are protected from control characters it would be doubled.
    "Invalid \\escape": "write every backslash twice, or / instead, as in C:/tools/x.cmd",
}


def _find_toml_fix(message: str, text: str, line: int) -> str:
    if message.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate")):
        return "each name may be given once; remove one of the two"
    if message.startswith("Unclosed array"):
        return "put a ] behind the last entry of the list, and commas between them"
    if message.startswith("Unclosed inline table"):
        return "put a } behind the last entry, on the same line"
    if message.startswith(("Unescaped", "Invalid hex value")):
        return "write text with backslashes in single quotes, or / instead, as in 'C:/tools/x.cmd'"
    in_quotes = 'write text in quotes ("auto"), numbers and true/false without'
    if message.startswith("Invalid value"):
        return f"{in_quotes}, and close a list with ]" if _is_after_open_list(text, line) else in_quotes
    return 'write `name = value`, with text in quotes: mode = "auto"'


def _is_after_open_list(text: str, line: int) -> bool:
    """Whether the line before looks as if a list went on: what is wrong may be that it was not closed."""
    before = [row.partition("#")[0].strip() for row in text.splitlines()[: line - 1]]
    return next((row for row in reversed(before) if row), "").endswith((",", "["))


def _refuse_constant(constant: str) -> NoReturn:
    message = f"{constant} is not a number JSON knows"
    raise ValueError(message)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _build_problem(file: str, line: int | None, message: str, fix: str) -> Problem:
    return Problem(message=message, fix=fix, origin=ValueOrigin(kind="file", file=file, line=line))
