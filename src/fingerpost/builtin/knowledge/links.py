"""Where links between notes lead: by path, by file name, by title or by alias."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from fingerpost.builtin.knowledge.folder import iterate_parents
from fingerpost.builtin.knowledge.records import KnowledgeNote
from fingerpost.frozen import frozen


@frozen(kw_only=False)
class LinkGraph:
    """All links between the notes of one moment, in both directions, by path."""

    outgoing: Mapping[str, tuple[str, ...]]
    incoming: Mapping[str, tuple[str, ...]]
    broken: Mapping[str, tuple[str, ...]]  # what a note links to and is not there


class NoteNames:
    """Notes by everything they are called."""

    def __init__(self, notes: Iterable[KnowledgeNote]) -> None:
        self._paths: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        for note in notes:
            self._paths[note.path.casefold()] = note.path
            for name in (note.stem, note.title, *note.front.aliases):
                self._names.setdefault(name.casefold(), []).append(note.path)

    def resolve(self, target: str, start: str = "", *, by_name: bool = True) -> str | None:
        """The note that is meant, seen from the folder `start`; the nearest where several have the name."""
        target = target.strip().replace("\\", "/")
        for base in dict.fromkeys((start, "")):
            path = posixpath.normpath(posixpath.join(base, target.lstrip("/"))).casefold()
            for candidate in (path, f"{path}.md", f"{path}.markdown", f"{path}.txt"):
                if candidate in self._paths:
                    return self._paths[candidate]
        if not by_name:
            return None
        folder, _, name = target.rpartition("/")
        found = dict.fromkeys(self._names.get(name.casefold(), ()))
        if folder:
            found = [path for path in found if f"/{path}".casefold().find(f"/{folder}/".casefold()) >= 0]
        return min(found, key=lambda path: (_count_steps(start, path), path), default=None)


def _count_steps(start: str, path: str) -> int:
    """How many steps it is from a folder to a file."""
    above = [start, *iterate_parents(start)] if start else [""]
    ups = {folder: steps for steps, folder in enumerate(above)}
    for downs, folder in enumerate(iterate_parents(path)):
        if folder in ups:
            return downs + ups[folder]
    return len(path)


def build_graph(notes: Mapping[str, KnowledgeNote], names: NoteNames) -> LinkGraph:
    """The links of all notes."""
    outgoing: dict[str, tuple[str, ...]] = {}
    broken: dict[str, tuple[str, ...]] = {}
    incoming: dict[str, list[str]] = {}
    for path, note in notes.items():
        led = {
            each.target: names.resolve(each.target, note.folder, by_name=each.by_name)
            for each in note.references
        }
        reached = tuple(dict.fromkeys(to for to in led.values() if to is not None and to != path))
        if reached:
            outgoing[path] = reached
        if lost := tuple(target for target, to in led.items() if to is None):
            broken[path] = lost
        for to in reached:
            incoming.setdefault(to, []).append(path)
    return LinkGraph(outgoing, {path: tuple(sorted(found)) for path, found in incoming.items()}, broken)
