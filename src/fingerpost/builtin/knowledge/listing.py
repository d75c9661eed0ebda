"""What stands in the folder, for people and models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.knowledge.base import KnowledgeBase, NoteLibrary
from fingerpost.builtin.knowledge.folder import FolderEntry
from fingerpost.builtin.knowledge.showing import format_day

MAX_LISTED_LINES: Final = 300
_KILO: Final = 1024


def list_folder(base: KnowledgeBase, path: str, depth: int) -> str:
    """A folder of the knowledge base, down to `depth`. Raises `ToolRefused` where it is not there."""
    base.refresh()
    parts = base.folder.split_path(path)
    if parts == (base.folder.root.name,) and not _is_folder(base, parts):
        parts = ()  # named as it is seen from outside
    if not _is_folder(base, parts):
        message = f"There is no folder {'/'.join(parts)[:200]!r} in the knowledge base."
        raise ToolRefused(message, hint="list_kb_directory without a path shows what there is.")
    lines: list[str] = []
    more = 0
    for line in _list_lines(base, parts, depth):
        if len(lines) < MAX_LISTED_LINES:
            lines.append(line)
        else:
            more += 1
    notes = sum(1 for each in base.library.notes if not parts or each.startswith("/".join(parts) + "/"))
    head = f"{'/'.join(parts) or 'The knowledge base'}: {notes:,} notes"
    tail = [f"… and {more:,} more: list a folder of it."] if more else []
    return "\n".join((head, *(lines or ["(empty)"]), *tail))


def _is_folder(base: KnowledgeBase, parts: tuple[str, ...]) -> bool:
    try:
        with base.folder.open_path(parts, folder=True):
            return True
    except OSError:
        return False


def _list_lines(base: KnowledgeBase, parts: tuple[str, ...], depth: int, indent: str = "") -> Iterator[str]:
    try:
        entries = base.folder.list_entries(parts)
    except OSError as error:
        yield f"{indent}(cannot be looked into: {error.strerror or error})"
        return
    library = base.library
    for entry in entries:
        path = "/".join((*parts, entry.name))
        if entry.is_folder:
            inside = sum(1 for each in library.notes if each.startswith(f"{path}/"))
            yield f"{indent}{entry.name}/ ({inside:,} notes)"
            if depth > 1:
                yield from _list_lines(base, (*parts, entry.name), depth - 1, f"{indent}  ")
        else:
            yield indent + _format_file(library, path, entry)


def _format_file(library: NoteLibrary, path: str, entry: FolderEntry) -> str:
    note = library.notes.get(path)
    size = f"{entry.stamp.size / _KILO:,.1f} kB, {format_day(entry.stamp.modified_ns)}"
    if note is None:
        return f"{entry.name} ({size}; not searched)"
    title = f" · {note.title}" if note.title != note.stem else ""
    tags = f" #{' #'.join(note.tags[:5])}" if note.tags else ""
    return f"{entry.name}{title} ({size}){tags}" + (f" — {note.problem}" if note.problem else "")
