"""One change to a client's file: worked out, checked, shown, backed up, made in one step.

Whatever the editing of text came to, its outcome is parsed again: it must hold
exactly what the file held before, with our entry and nothing else changed.
Otherwise nothing is written and the person gets the entry to paste.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, cast

from fingerpost.catalog import visible
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import scrub
from fingerpost.settings.client_files import read_drafts
from fingerpost.settings.document import Document, parse_json, parse_toml, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.secrets import remember_literals
from fingerpost.surfaces.cli import install_json, install_toml
from fingerpost.surfaces.cli.install_clients import OURS, Client, Entry
from fingerpost.surfaces.cli.replacing import PRIVATE, replace_whole

_BOM: Final = b"\xef\xbb\xbf"
_BACKUPS: Final = ".backup-"


@frozen(kw_only=False)
class Change:
    """What a file holds now and what it would hold. None: there is no such file."""

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)

    @property
    def needed(self) -> bool:
        return self.before != self.after


def installing(client: Client, file: Path, name: str, entry: Entry) -> Change:
    """The change that makes `entry` the client's server `name`. Raises `ConfigError` if it cannot."""
    data = _bytes(file)
    document = _read(client, file) if data is not None else None
    values = _plain(document)
    present = _at(values, client.place).get(name)
    entry = _with_kept(present, entry)
    if present == entry:
        return Change(file, data, data)
    expected = copy.deepcopy(values)
    node = expected
    for key in client.place:
        inner: Any = node.setdefault(key, {})
        if not isinstance(inner, dict):
            raise _paste(client, file, name, entry, f'"{key}" is not a table of servers')
        node = cast("dict[str, Any]", inner)
    node[name] = entry
    return _checked(client, file, data, lambda text: _put(client, text, name, entry), expected, (name, entry))


def removing(client: Client, file: Path, name: str) -> Change:
    """The change that takes the server `name` out again: back to the backup if that is all there is."""
    data = _bytes(file)
    values = _plain(_read(client, file)) if data is not None else {}
    present = _at(values, client.place).get(name)
    if data is None or present is None:
        return Change(file, data, data)
    entry = cast("Entry", present)
    original = _original(client, file, data, name, entry)
    if original is not None:
        return Change(file, data, original[0])
    expected = copy.deepcopy(values)
    del _at(expected, client.place)[name]
    return _checked(client, file, data, lambda text: _drop(client, text, name), expected, None)


def difference(change: Change, shown: str, client: Client) -> list[str]:
    """What would change, as lines of a unified diff, secrets masked."""
    _remember_secrets(change, client)
    before, after = (_text(data or b"").splitlines() for data in (change.before, change.after))
    lines = unified_diff(before, after, f"{shown} (now)", f"{shown} (then)", lineterm="")
    return [visible(scrub(line), keep="\t\\") for line in lines]


def make(change: Change, now: datetime) -> Path | None:
    """Write it. A crash leaves the old file or the new one. Answers with the backup, if there was a file."""
    target = change.file.resolve()  # a link stays a link
    if _bytes(target) != change.before:
        message = f"{change.file} was changed by somebody else meanwhile"
        raise ConfigError(message, hint="run the command again")
    try:
        mode = target.stat().st_mode & 0o777 if change.before is not None else PRIVATE
        backup = None
        if change.before is not None:
            backup = _free(target, now)
            replace_whole(backup, change.before, mode)
        if change.after is None:
            target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(target, change.after, mode)
    except OSError as error:
        message = f"{change.file} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="check the permissions of the file and its folder") from error
    return backup


def is_switched_off(client: Client, change: Change, name: str) -> bool:
    """Whether the client will not start the server `name`: a switch in an older entry is kept."""
    entry = _at(_values(client, _text(change.after or b"")), client.place).get(name)
    switches = cast("Entry", entry) if isinstance(entry, dict) else {}
    return switches.get("disabled") is True or switches.get("enabled") is False


def snippet(client: Client, name: str, entry: Entry) -> str:
    """The entry as a person would paste it into an empty file."""
    return _put(client, "", name, entry).rstrip()


def _with_kept(present: object, entry: Entry) -> Entry:
    """Our entry, with what a person or the client added to an older one: switches, permissions."""
    older = cast("Entry", present) if isinstance(present, dict) else {}
    return {**{key: value for key, value in older.items() if key not in OURS}, **entry}


def _checked(
    client: Client,
    file: Path,
    data: bytes | None,
    edit: Callable[[str], str],
    expected: Mapping[str, Any],
    pasted: tuple[str, Entry] | None,
) -> Change:
    mark = _BOM if data is not None and data.startswith(_BOM) else b""
    try:
        text = edit(_text(data or b""))
        sound = _values(client, text) == expected
    except (install_json.NotEditable, ValueError, TypeError, IndexError):
        text, sound = "", False
    if not sound:
        if pasted is not None:
            raise _paste(client, file, *pasted, "its way of writing is not one we can change safely")
        message = f"the entry cannot be taken out of {file} safely"
        raise ConfigError(message, hint="remove it by hand; nothing was changed")
    return Change(file, data, mark + text.encode())


def _paste(client: Client, file: Path, name: str, entry: Entry, reason: str) -> ConfigError:
    message = f"{file} was left as it is: {reason}"
    return ConfigError(message, hint=f"add this to it by hand:\n{snippet(client, name, entry)}")


def _original(client: Client, file: Path, data: bytes, name: str, entry: Entry) -> tuple[bytes | None] | None:
    """What the file was before we came, if all that happened to it since is our entry."""
    candidates: list[bytes | None] = [None]
    for backup in sorted(file.resolve().parent.glob(f"{file.resolve().name}{_BACKUPS}*"), reverse=True):
        candidates.insert(-1, _bytes(backup))
    for held in candidates:
        try:
            text = _put(client, _text(held or b""), name, entry)
            without = name not in _at(_values(client, _text(held or b"")), client.place)
        except (install_json.NotEditable, ValueError, TypeError, IndexError):
            continue
        mark = _BOM if held is not None and held.startswith(_BOM) else b""
        if without and mark + text.encode() == data:
            return (held,)
    return None


def _put(client: Client, text: str, name: str, entry: Entry) -> str:
    edit = install_toml.put if client.is_toml else install_json.put
    return edit(text, client.place, name, entry)


def _drop(client: Client, text: str, name: str) -> str:
    edit = install_toml.drop if client.is_toml else install_json.drop
    return edit(text, client.place, name)


def _read(client: Client, file: Path) -> Document:
    document = read_document(file, str(file), toml=client.is_toml)
    if isinstance(document, Problem):
        raise ConfigError(str(document), hint=document.fix, problems=(document,))
    return document


def _values(client: Client, text: str) -> dict[str, Any]:
    if client.is_toml:
        return tomllib.loads(text)
    document = parse_json(text, "file", Path())
    if isinstance(document, Problem):
        raise ValueError(str(document))
    return _plain(document)


def _plain(document: Document | None) -> dict[str, Any]:
    return dict(document.values) if document is not None else {}


def _at(values: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    node: Any = values
    for key in place:
        node = cast("Any", node).get(key) if isinstance(node, dict) else None
    return cast("dict[str, Any]", node) if isinstance(node, dict) else {}


def _remember_secrets(change: Change, client: Client) -> None:
    """Secrets of the servers around ours must not be shown with them."""
    for data in (change.before, change.after):
        parse = parse_toml if client.is_toml else parse_json
        document = parse(_text(data or b""), "file", Path())
        if isinstance(document, Document):
            drafts, _ = read_drafts(document)
            for draft in drafts:
                remember_literals(draft.values)


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        raise ConfigError(message, hint="check the path and its permissions") from error


def _text(data: bytes) -> str:
    return data.removeprefix(_BOM).decode("utf-8", "strict")


def _free(target: Path, now: datetime) -> Path:
    name = f"{target.name}{_BACKUPS}{now:%Y%m%d-%H%M%S}"
    backup, number = target.with_name(name), 1
    while backup.exists():
        number += 1
        backup = target.with_name(f"{name}-{number}")
    return backup
