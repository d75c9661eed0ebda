"""Changing what is in files. Each writes a whole new file beside the old one and renames it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.changes import Change, reported
from fingerpost.builtin.workspace.files.reading import read_bytes, read_for_edit
from fingerpost.builtin.workspace.ground import Place
from fingerpost.builtin.workspace.ground.failing import EXISTS
from fingerpost.builtin.workspace.ground.replacing import put
from fingerpost.builtin.workspace.switches import Act
from fingerpost.builtin.workspace.text.edits import Edit, inserted, replaced
from fingerpost.builtin.workspace.text.encodings import Text, read_text
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.frozen import frozen

MOST_FILES: Final = 20  # of one multi_replace
MOST_EDITS: Final = 100


@frozen(kw_only=False)
class _Planned:
    place: Place
    before: os.stat_result | None
    change: Change


def create_file(work: Workplace, path: str, content: str, act: Act) -> str:
    """A new file; one that exists is left alone."""
    with work.writing, work.ground.at(path) as place:
        work.ground.check_new(place)
        if place.look() is not None:
            message = f"{place.shown} exists already."
            hint = "write_file replaces what is in it; replace_string changes a part."
            raise ToolRefused(message, hint=hint, error_type=EXISTS, path=place.shown)
        planned = _Planned(place, None, Change(place.shown, None, _encoded(content)))
        return _carried_out(work, [planned], act)


def write_file(work: Workplace, path: str, content: str, act: Act) -> str:
    """A file's whole content. One that exists keeps its encoding, mark, line ends and permissions."""
    with work.writing, work.ground.at(path) as place:
        work.ground.check_write(place)
        if place.look() is None:
            work.ground.check_new(place)
            planned = _Planned(place, None, Change(place.shown, None, _encoded(content)))
            return _carried_out(work, [planned], act)
        old = read_bytes(place, work.settings.read_bytes + 1)
        if not old.whole:
            message = f"{place.shown} has {old.found.st_size} bytes, too many to be replaced unseen."
            raise ToolRefused(message, hint="Delete it first, or raise builtin.workspace.read_bytes.")
        after = _rewritten(read_text(old.data), content)
        return _carried_out(work, [_Planned(place, old.found, Change(place.shown, old.data, after))], act)


def _rewritten(old: Text | None, content: str) -> bytes:
    if old is None or not old.certain:  # binary, or in an encoding nobody knows: UTF-8 from now on
        return _encoded(content)
    return old.changed_to(old.tidied(content))


def append_file(work: Workplace, path: str, content: str, act: Act) -> str:
    """More at the end of a file, on a line of its own; a file that is not there begins with it."""

    def change(text: Text) -> str:
        plain = text.plain
        between = "" if not plain or plain.endswith("\n") else "\n"
        return plain + between + text.tidied(content)

    return _edit(work, path, change, act, create=content)


def replace_string(work: Workplace, path: str, edit: Edit, act: Act) -> str:
    """One text for another, found exactly once or everywhere."""
    return _edit(work, path, lambda text: _replaced(text, (edit,), path), act)


def insert_text(work: Workplace, path: str, line: int, content: str, act: Act) -> str:
    """More text before a line."""
    return _edit(work, path, lambda text: inserted(text.plain, line, text.tidied(content), path), act)


def multi_replace(work: Workplace, path: str, edits: Sequence[Mapping[str, object]], act: Act) -> str:
    """Several replacements, in one file or several. All are checked before the first file is written."""
    by_path = _by_path(path, edits)
    with work.writing, ExitStack() as stack:
        planned: list[_Planned] = []
        for each, wanted in by_path.items():
            place = stack.enter_context(work.ground.at(each))
            if any(other.place.names == place.names for other in planned):
                message = f"{place.shown} is named in two ways."
                raise ToolRefused(message, hint="Use one path for all edits of a file.")
            planned.append(_plan(work, place, lambda text, w=wanted, s=place.shown: _replaced(text, w, s)))
        return _carried_out(work, planned, act)


def _by_path(path: str, edits: Sequence[Mapping[str, object]]) -> dict[str, tuple[Edit, ...]]:
    if not 0 < len(edits) <= MOST_EDITS:
        message = f"multi_replace takes 1 to {MOST_EDITS} `edits`."
        raise ToolRefused(
            message, hint="Each has `old_string` and `new_string`, and `path` where they differ."
        )
    found: dict[str, tuple[Edit, ...]] = {}
    for number, edit in enumerate(edits, start=1):
        where = str(edit.get("path") or path)
        if not where:
            message = f"Edit {number} has no `path`, and there is none for all."
            raise ToolRefused(message, hint="Give `path` beside `edits`, or in each of them.")
        made = Edit(
            old=str(edit.get("old_string", "")),
            new=str(edit.get("new_string", "")),
            everywhere=edit.get("all") is True,
        )
        found[where] = (*found.get(where, ()), made)
    if len(found) > MOST_FILES:
        message = f"The edits are in {len(found)} files; {MOST_FILES} is the most."
        raise ToolRefused(message, hint="Make several calls of it.")
    return found


def _replaced(text: Text, edits: Sequence[Edit], shown: str) -> str:
    plain = text.plain
    for edit in edits:
        tidy = Edit(old=text.tidied(edit.old), new=text.tidied(edit.new), everywhere=edit.everywhere)
        plain = replaced(plain, tidy, shown)
    return plain


def _edit(
    work: Workplace, path: str, change: Callable[[Text], str], act: Act, *, create: str | None = None
) -> str:
    with work.writing, work.ground.at(path) as place:
        if create is not None and place.look() is None:
            work.ground.check_new(place)
            planned = _Planned(place, None, Change(place.shown, None, _encoded(create)))
        else:
            planned = _plan(work, place, change)
        return _carried_out(work, [planned], act)


def _plan(work: Workplace, place: Place, change: Callable[[Text], str]) -> _Planned:
    work.ground.check_write(place)
    content, text = read_for_edit(place, work.settings.read_bytes)
    after = text.changed_to(change(text))
    return _Planned(place, content.found, Change(place.shown, content.data, after))


def _carried_out(work: Workplace, planned: Sequence[_Planned], act: Act) -> str:
    for number, plan in enumerate(planned):
        size = 0 if plan.change.after is None else len(plan.change.after)
        if size > work.settings.write_bytes:
            message = f"{plan.change.shown} would have {size} bytes; {work.settings.write_bytes} is the most."
            raise ToolRefused(message, hint="builtin.workspace.write_bytes sets that limit.")
        if not act.dry:
            _write(work, plan, done=number)
    return reported(act, *(plan.change.told(act) for plan in planned))


def _write(work: Workplace, plan: _Planned, *, done: int) -> None:
    try:
        with work.ground.with_folders(plan.place) as place:
            put(place, plan.change.after or b"", plan.before)
    except ToolRefused as refused:
        if not done:
            raise
        message = f"{refused} The {done} file(s) before it are written already."
        raise ToolRefused(message, hint=refused.hint) from refused


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        message = "The content is not valid Unicode."
        raise ToolRefused(message, hint="Write it without half of a surrogate pair.") from None
