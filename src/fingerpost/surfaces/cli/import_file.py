"""Writing the merged file of `fingerpost import`: shown first, backed up, replaced in one step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from fingerpost.errors import ConfigError
from fingerpost.settings.client_files import find_entries, read_drafts
from fingerpost.settings.discover import Found
from fingerpost.settings.document import Document, items, read_document, table
from fingerpost.settings.merge import Merged, masked
from fingerpost.settings.problems import Problem
from fingerpost.settings.secrets import remember_literals
from fingerpost.surfaces.cli.replacing import PRIVATE, replace_whole


def refuse(target: Path) -> str | None:
    """Why this file cannot be written, or None."""
    if target.suffix == ".toml":
        return 'servers are written as JSON; name a .json file and set servers_file = "…" in fingerpost.toml'
    return None if target.absolute().parent.is_dir() else f"the folder {target.parent} does not exist"


def existing(target: Path | None) -> tuple[Found, ...]:
    """The servers the target holds already; they come first and keep their names."""
    document = _read(target)
    if target is None or document is None:
        return ()
    drafts, _ = read_drafts(document)
    for draft in drafts:
        remember_literals(draft.values)
    return (Found(client="here", file=target, shown=str(target), drafts=drafts),)


def _read(target: Path | None) -> Document | None:
    if target is None or not target.exists():
        return None
    document = read_document(target, str(target), toml=False)
    if isinstance(document, Problem):
        raise ConfigError(str(document), hint=document.fix, problems=(document,))
    return document


def content_of(target: Path, merged: Merged) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """The file's content before and after. Keys of other programs stay; known servers stay as written."""
    document = _read(target)
    if document is None:
        return {}, merged.document()
    old = dict(document.values)
    added = merged.document()
    place = _place(document)
    servers = {**(table(added["mcpServers"]) or {}), **(table(old.get(place)) or {})}
    new = {**old, place: servers}
    if inputs := _new_inputs(items(old.get("inputs")), items(added.get("inputs"))):
        new["inputs"] = [*items(old.get("inputs")), *inputs]
    return old, new


def _place(document: Document) -> str:
    """Where the file keeps its servers already: VS Code's files say `servers`."""
    for entries in find_entries(document):
        if len(entries.path) == 1:
            return str(entries.path[0])
    return "mcpServers"


def _new_inputs(old: list[object], added: list[object]) -> list[object]:
    known = {(table(entry) or {}).get("id") for entry in old}
    return [entry for entry in added if (table(entry) or {}).get("id") not in known]


def difference(
    old: Mapping[str, object], new: Mapping[str, object], secrets: Sequence[str], name: str
) -> list[str]:
    """What would change, secrets masked, as lines of a unified diff."""
    before, after = (_text(masked(content, secrets)).splitlines() for content in (old, new))
    if not old:
        before = []
    return list(unified_diff(before, after, f"{name} (now)", f"{name} (then)", lineterm=""))


def replace_file(target: Path, content: Mapping[str, object]) -> Path | None:
    """Write `content`; a crash leaves the old file or the new one. Answers with the backup, if any."""
    target = target.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE
    backup = _back_up(target, mode) if target.exists() else None
    replace_whole(target, _text(content).encode(), mode)
    return backup


def _back_up(target: Path, mode: int) -> Path:
    number, backup = 1, target.with_name(f"{target.name}.bak")
    while backup.exists():
        number += 1
        backup = target.with_name(f"{target.name}.bak{number}")
    replace_whole(backup, target.read_bytes(), mode)
    return backup


def _text(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
