"""The servers file, and changes of one entry of a JSON or TOML file as text.

Comments, order and spacing of the rest are kept. JSON comments and trailing commas are replaced by spaces
before parsing, so that offsets in the parsed text are offsets in the file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import MASK
from fingerpost.settings.client_files import FIELD_NAMES, find_server_tables, mask_secrets
from fingerpost.settings.document import (
    SettingsDocument,
    as_list,
    as_table,
    parse_json,
    read_text,
    to_plain_json,
)
from fingerpost.settings.problems import KeyPath, Problem, ValueOrigin, format_path, to_error
from fingerpost.settings.variables import find_written_secrets, register_literal_secrets

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT_OR_COMMA = re.compile(r"//[^\r\n]*|/\*.*?\*/|,", re.DOTALL)
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DECODER: Final = json.JSONDecoder()


class NotEditable(Exception):
    """The text cannot be edited safely; the message says why."""


@frozen(kw_only=False)
class _MemberSpan:
    key: str
    start: int  # of the key's quote
    value: int
    end: int


@frozen(kw_only=False)
class _ObjectSpan:
    start: int  # of {
    end: int  # of }
    members: tuple[_MemberSpan, ...]

    def find_last(self, key: str) -> _MemberSpan | None:
        """Return the last member of this name, which is the one a parser keeps."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def put_json(text: str, path: Sequence[str], name: str, value: object) -> str:
    """Return the text with `value` under `name` in the object at `path`. Missing objects are created."""
    plain = to_plain_json(text)
    if not plain.strip():
        whole = json.dumps(_nest([*path, name], value), indent=2, ensure_ascii=False)
        return f"{text.rstrip()}\n{whole}\n" if text.strip() else f"{whole}\n"
    found = _parse_object(plain, _skip_space(plain, 0))
    for depth, key in enumerate(path):
        member = found.find_last(key)
        if member is None:
            return _insert(text, found, key, _nest([*path[depth + 1 :], name], value))
        if plain[member.value] != "{":
            message = f'"{key}" is not an object'
            raise NotEditable(message)
        found = _parse_object(plain, member.value)
    present = found.find_last(name)
    if present is None:
        return _insert(text, found, name, value)
    indent = _get_indent(text, present.start)
    written = _render(
        value, indent, _find_indent_unit(text), _find_newline(text), inline=_is_on_one_line(text, found)
    )
    return text[: present.value] + written + text[present.end :]


def drop_json(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without `name` in the object at `path`, or the same text if it is missing."""
    plain = to_plain_json(text)
    if not plain.strip():
        return text
    found = _parse_object(plain, _skip_space(plain, 0))
    for key in path:
        member = found.find_last(key)
        if member is None or plain[member.value] != "{":
            return text
        found = _parse_object(plain, member.value)
    while (member := found.find_last(name)) is not None:
        text = _remove_member(text, found, member)
        found = _parse_object(to_plain_json(text), found.start)
    return text


def _nest(path: Sequence[str], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _parse_object(plain: str, start: int) -> _ObjectSpan:
    """Parse the object that begins at `start` of a valid JSON text."""
    members: list[_MemberSpan] = []
    at = _skip_space(plain, start + 1)
    while plain[at] != "}":
        key, after = _DECODER.raw_decode(plain, at)
        value = _skip_space(plain, _skip_space(plain, after) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        members.append(_MemberSpan(key, at, value, end))
        at = _skip_space(plain, end)
        if plain[at] == ",":
            at = _skip_space(plain, at + 1)
    return _ObjectSpan(start, at, tuple(members))


def _skip_space(plain: str, at: int) -> int:
    match = _SPACE.match(plain, at)
    return match.end() if match else at


def _insert(text: str, into: _ObjectSpan, key: str, value: object) -> str:
    """Insert a member after the last one, with the same indentation."""
    newline, unit = _find_newline(text), _find_indent_unit(text)
    inline = bool(into.members) and _is_on_one_line(text, into)
    outer = _get_indent(text, into.start)
    indent = _get_indent(text, into.members[-1].start) if into.members else outer + unit
    member = f"{json.dumps(key, ensure_ascii=False)}: {_render(value, indent, unit, newline, inline=inline)}"
    if not into.members:
        kept = text[into.start + 1 : into.end].rstrip()  # may contain comments
        return f"{text[: into.start + 1]}{kept}{newline}{indent}{member}{newline}{outer}{text[into.end :]}"
    last = into.members[-1]
    comma = _find_comma(text, last.end, into.end)
    tail = text[last.end : into.end]
    rest = tail.rstrip()  # comments after the last member stay with it
    before = text[: last.end] + ("" if comma is not None else ",") + rest
    gap = " " if inline else newline + indent
    after_ours = "," if comma is not None else ""
    return f"{before}{gap}{member}{after_ours}{tail[len(rest) :]}{text[into.end :]}"


def _remove_member(text: str, inside: _ObjectSpan, member: _MemberSpan) -> str:
    index = inside.members.index(member)
    before = text[: member.start].rstrip()
    if to_plain_json(text)[len(before) - 1].isspace():  # a comment is there, and its line must end
        before = text[: member.start].rstrip(" \t")
    following = inside.members[index + 1].start if index + 1 < len(inside.members) else inside.end
    comma = _find_comma(text, member.end, following)
    after = text[member.end :] if comma is None else text[member.end : comma] + text[comma + 1 :]
    rest = after.lstrip(" \t")
    if before.endswith("\n") and rest.startswith(("\n", "\r\n")):  # leave no empty line
        after = rest.removeprefix("\r").removeprefix("\n")
    if comma is None and index > 0:  # it was the last member: remove the comma before it
        previous = inside.members[index - 1]
        at = _find_comma(text, previous.end, member.start)
        if at is not None:
            before = before[:at] + before[at + 1 :]
    left = before + after
    inner = left[inside.start + 1 : len(left) - (len(text) - inside.end)]
    return left if inner.strip() else f"{left[: inside.start]}{{}}{text[inside.end + 1 :]}"


def _find_comma(text: str, start: int, end: int) -> int | None:
    """Return the offset of the comma between two members, ignoring comments."""
    return next((m.start() for m in _COMMENT_OR_COMMA.finditer(text, start, end) if m[0] == ","), None)


def _render(value: object, indent: str, unit: str, newline: str, *, inline: bool) -> str:
    if inline:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _get_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_on_one_line(text: str, found: _ObjectSpan) -> bool:
    return "\n" not in text[found.start : found.end]


def _find_indent_unit(text: str) -> str:
    """Return the indentation of one level: the smallest step between lines."""
    indents = [match[1] for match in _INDENT.finditer(text)]
    if not indents:
        return "  "
    if indents[0].startswith("\t"):
        return "\t"
    widths = [0, *(len(indent) for indent in indents)]
    steps = [second - first for first, second in pairwise(widths) if second > first]
    return " " * min(steps, default=2)


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


_BARE_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]+")


def put_toml(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """Return the text with the table `[path.name]` set to `entry`, in its place or at the end."""
    newline = _find_newline(text)
    block = newline.join(_format_table((*path, name), entry))
    lines = text.splitlines(keepends=True)
    span = _find_span(lines, (*path, name))
    if span is not None:
        start, end = span
        return "".join(lines[:start]) + block + newline + "".join(lines[end:])
    if not text.strip():
        return f"{text}{block}{newline}"
    gap = newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{block}{newline}"


def drop_toml(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without the table `[path.name]` and its subtables."""
    lines = text.splitlines(keepends=True)
    span = _find_span(lines, (*path, name))
    if span is None:
        return text
    start, end = span
    kept = lines[:start]
    if kept and not kept[-1].strip() and (end == len(lines) or not lines[end].strip()):
        kept.pop()  # the empty line before our table
    return "".join(kept) + "".join(lines[end:])


def _format_table(path: Sequence[str], entry: Mapping[str, object]) -> list[str]:
    lines = [f"[{'.'.join(_format_key(part) for part in path)}]"]
    inner: list[str] = []
    for key, value in entry.items():
        if isinstance(value, Mapping):
            inner += ["", *_format_table((*path, key), value)]  # pyright: ignore[reportUnknownArgumentType] - of strings
        else:
            # Strings, lists of strings and booleans have the same form in TOML and JSON.
            lines.append(f"{_format_key(key)} = {json.dumps(value, ensure_ascii=False)}")
    return lines + inner


def _format_key(name: str) -> str:
    return name if _BARE_KEY_PATTERN.fullmatch(name) else json.dumps(name)


def _find_span(lines: Sequence[str], path: Sequence[str]) -> tuple[int, int] | None:
    """Return the range of lines of a table and its subtables, or None."""
    start = next((number for number, line in enumerate(lines) if _parse_header(line) == tuple(path)), None)
    if start is None:
        return None
    end = start + 1
    while end < len(lines) and not _is_other(_parse_header(lines[end]), path):
        end += 1
    while end > start + 1 and end < len(lines) and _belongs_to_next(lines[end - 1]):
        end -= 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return start, end


def _is_other(header: tuple[str, ...] | None, path: Sequence[str]) -> bool:
    return header is not None and header[: len(path)] != tuple(path)


def _belongs_to_next(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _parse_header(line: str) -> tuple[str, ...] | None:
    """Return the path in a table header, or None for other lines."""
    match = re.fullmatch(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?", line)
    if match is None:
        return None
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+', match[1])
    return tuple(part.strip("\"'") for part in parts)


# Entries of servers may contain secrets: only the owner may read new files.
PRIVATE_MODE: Final = 0o600


def write_atomically(target: Path, data: bytes, mode: int) -> None:
    """Write a temporary file, flush it to disk and rename it to `target`."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


Entry = Mapping[str, object]  # of one server, as written in a file

_ENTRY_FIELDS: Final = tuple(name for name, ours in FIELD_NAMES.items() if ours in ("command", "url"))
_DEFAULT_TABLE: Final[KeyPath] = ("mcpServers",)
# Our field names that standard files spell otherwise.
_WRITTEN_NAMES: Final = {"env_file": "envFile", "transport": "type", "connect_timeout": "connectTimeout"}


@frozen
class WrittenEntry:
    """One entry of a servers file, and where it is."""

    name: str
    values: Entry
    table: KeyPath
    origin: ValueOrigin


@frozen
class ServersFile:
    """A JSON file with servers, whose entries can be changed. All else in it stays as it is."""

    path: Path
    shown: str  # as the user would write it
    private: bool = False  # whether the file is ours: only its owner may read it

    def read_entries(self) -> dict[str, WrittenEntry]:
        """Return all entries by name. A missing file has none. Raises `ConfigError`."""
        document = self._parse(self._read_text())
        found: dict[str, WrittenEntry] = {}
        for table in find_server_tables(document):
            for name, values in table.servers.items():
                origin = document.get_origin((*table.path, name))
                entry = as_table(values) or {}
                register_literal_secrets(entry)
                written = WrittenEntry(name=name, values=entry, table=table.path, origin=origin)
                found.setdefault(name, written)
        return found

    def put_entry(self, name: str, entry: Entry) -> None:
        """Write an entry. Of one that is there, only what differs is changed. Raises `ConfigError`."""
        text = self._read_text()
        there = self.read_entries().get(name)
        if there is None:
            tables = find_server_tables(self._parse(text))
            table = tables[0].path if tables else _DEFAULT_TABLE
            self._write(text, put_json(text, _to_names(table), name, dict(entry)))
            return
        path = (*_to_names(there.table), name)
        new = text
        for key in there.values.keys() - entry.keys():
            new = drop_json(new, path, key)
        for key, value in entry.items():
            if key not in there.values or there.values[key] != value:
                new = put_json(new, path, key, value)
        self._write(text, new)

    def remove_entry(self, name: str) -> bool:
        """Remove an entry. Return False if there was none. Raises `ConfigError`."""
        text = self._read_text()
        there = self.read_entries().get(name)
        if there is None:
            return False
        self._write(text, drop_json(text, _to_names(there.table), name))
        return True

    def _read_text(self) -> str:
        if self.path.suffix == ".toml":
            message = f"{self.shown} is a TOML file; servers can be added to JSON files only"
            raise ConfigError(message, hint="change it with an editor, or name a JSON file with --servers")
        if not self.path.exists():
            return ""
        text = read_text(self.path, self.shown)
        if isinstance(text, Problem):
            raise to_error((text,))
        return text

    def _parse(self, text: str) -> SettingsDocument:
        document = parse_json(text, self.shown, self.path.parent)
        if isinstance(document, Problem):
            raise to_error((document,))
        return document

    def _write(self, old: str, new: str) -> None:
        self._parse(new)  # never write what could not be read again
        if old == new:
            return
        target = self.path.resolve()
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() and not self.private else PRIVATE_MODE
            write_atomically(target, new.encode(), mode)
        except OSError as error:
            message = f"{self.shown} cannot be written: {error.strerror}"
            raise ConfigError(message, hint="check the folder and its permissions") from None


def _to_names(table: KeyPath) -> tuple[str, ...]:
    return tuple(map(str, table))


def parse_pasted(pasted: str | Entry) -> dict[str, Entry]:
    """Return the entries in what a person pasted: one entry (without a name: ""), a whole file, or the lines
    of one. Raises `ConfigError`.
    """
    if not isinstance(pasted, str):
        return _find_pasted(SettingsDocument(file="", folder=Path(), values=pasted, lines={}))
    document = parse_json(pasted, "the pasted text", Path())
    if isinstance(document, Problem):  # READMEs often show `"name": {…}` only
        inner = parse_json(f"{{{pasted.strip().rstrip(',')}}}", "the pasted text", Path())
        if isinstance(inner, Problem):
            raise to_error((document,))
        document = inner
    return _find_pasted(document)


def _find_pasted(document: SettingsDocument) -> dict[str, Entry]:
    if any(name in document.values and as_table(document.values[name]) is None for name in _ENTRY_FIELDS):
        return {"": document.values}
    found: dict[str, Entry] = {}
    for table in find_server_tables(document):
        found |= {name: values for name, entry in table.servers.items() if (values := as_table(entry))}
    if not found:
        message = "this is not a server entry"
        raise ConfigError(message, hint='paste {"command": "…", "args": ["…"]} or {"url": "https://…"}')
    return found


def change_entry(entry: Entry, changes: Mapping[str, object]) -> dict[str, object]:
    """Return the entry with changed fields, in the entry's spelling; None removes a field."""
    changed = dict(entry)
    for ours, value in changes.items():
        spellings = [theirs for theirs, name in FIELD_NAMES.items() if name == ours and theirs in changed]
        if ours == "enabled":
            changed.pop("disabled", None)
        for spelling in spellings[1:] if value is not None else spellings:
            del changed[spelling]
        if value is not None:
            changed[spellings[0] if spellings else _WRITTEN_NAMES.get(ours, ours)] = value
    return changed


def mask_entry(entry: Entry) -> dict[str, object]:
    """Return the entry with the secrets that are written in it masked."""
    secrets = [format_path(("entry", *path)) for path in find_written_secrets(entry)]
    masked = as_table(mask_secrets({"entry": dict(entry)}, secrets, ("mcpServers",))) or {}
    return dict(as_table(masked.get("entry")) or {})


def restore_secrets(entry: Entry, stored: Entry) -> dict[str, object]:
    """Return the entry with masked values replaced by those stored. Raises `ConfigError` if one is not."""
    restored = _restore(dict(entry), dict(stored), mask_entry(stored), ())
    return dict(as_table(restored) or {})


def _restore(value: object, stored: object, masked: object, path: KeyPath) -> object:
    if (entries := as_table(value)) is not None:
        old, hidden = as_table(stored) or {}, as_table(masked) or {}
        return {
            key: _restore(item, old.get(key), hidden.get(key), (*path, key)) for key, item in entries.items()
        }
    if listed := as_list(value):
        old_items, hidden_items = as_list(stored), as_list(masked)
        return [
            _restore(item, *_get_both(old_items, hidden_items, index), (*path, index))
            for index, item in enumerate(listed)
        ]
    if value == masked and stored is not None:
        return stored
    if isinstance(value, str) and MASK in value:
        message = f"{format_path(path)} is masked, and there is no stored value for it"
        raise ConfigError(message, hint="write the value, or ${VARIABLE} to take it from the environment")
    return value


def _get_both(stored: list[object], masked: list[object], index: int) -> tuple[object, object]:
    return (stored[index], masked[index]) if index < min(len(stored), len(masked)) else (None, None)
