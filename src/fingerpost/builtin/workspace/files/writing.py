"""Changing what is in files. Each writes a whole new file beside the old one and renames it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.changes import FileChange, format_report
from fingerpost.builtin.workspace.files.reading import read_bytes, read_for_edit
from fingerpost.builtin.workspace.ground import PathEntry
from fingerpost.builtin.workspace.ground.failing import EXISTS_TYPE
from fingerpost.builtin.workspace.ground.replacing import write_atomically
from fingerpost.builtin.workspace.switches import RunMode
from fingerpost.builtin.workspace.text.edits import TextEdit, insert_lines, replace_text
from fingerpost.builtin.workspace.text.encodings import FileText, decode_text
from fingerpost.builtin.workspace.workplace import WorkspaceContext
from fingerpost.frozen import frozen

MAX_EDITED_FILES: Final = 20  # of one multi_replace
MAX_EDITS: Final = 100


@frozen(kw_only=False)
class _PlannedChange:
    entry: PathEntry
    stat_before: os.stat_result | None
    change: FileChange


def create_file(workspace: WorkspaceContext, path: str, content: str, run_mode: RunMode) -> str:
    """A new file; one that exists is left alone."""
    with workspace.write_lock, workspace.root_folder.open_entry(path) as place:
        workspace.root_folder.check_creatable(place)
        if place.get_stat() is not None:
            message = f"{place.display_path} exists already."
            hint = "write_file replaces what is in it; replace_string changes a part."
            raise ToolRefused(message, hint=hint, error_type=EXISTS_TYPE, path=place.display_path)
        planned = _PlannedChange(place, None, FileChange(place.display_path, None, _encode_text(content)))
        return _apply_changes(workspace, [planned], run_mode)


def write_file(workspace: WorkspaceContext, path: str, content: str, run_mode: RunMode) -> str:
    """A file's whole content. One that exists keeps its encoding, mark, line ends and permissions."""
    with workspace.write_lock, workspace.root_folder.open_entry(path) as place:
        workspace.root_folder.check_writable(place)
        if place.get_stat() is None:
            workspace.root_folder.check_creatable(place)
            planned = _PlannedChange(place, None, FileChange(place.display_path, None, _encode_text(content)))
            return _apply_changes(workspace, [planned], run_mode)
        old = read_bytes(place, workspace.settings.read_bytes + 1)
        if not old.whole:
            message = (
                f"{place.display_path} has {old.file_stat.st_size} bytes, too many to be replaced unseen."
            )
            raise ToolRefused(message, hint="Delete it first, or raise builtin.workspace.read_bytes.")
        after = _encode_like_old(decode_text(old.data), content)
        return _apply_changes(
            workspace,
            [_PlannedChange(place, old.file_stat, FileChange(place.display_path, old.data, after))],
            run_mode,
        )


def _encode_like_old(old: FileText | None, content: str) -> bytes:
    if old is None or not old.certain:  # binary, or in an encoding nobody knows: UTF-8 from now on
        return _encode_text(content)
    return old.encode_changed(old.normalize_line_ends(content))


def append_file(workspace: WorkspaceContext, path: str, content: str, run_mode: RunMode) -> str:
    """More at the end of a file, on a line of its own; a file that is not there begins with it."""

    def change(text: FileText) -> str:
        plain = text.plain
        between = "" if not plain or plain.endswith("\n") else "\n"
        return plain + between + text.normalize_line_ends(content)

    return _change_text(workspace, path, change, run_mode, create=content)


def replace_string(workspace: WorkspaceContext, path: str, edit: TextEdit, run_mode: RunMode) -> str:
    """One text for another, found exactly once or everywhere."""
    return _change_text(workspace, path, lambda text: _apply_edits(text, (edit,), path), run_mode)


def insert_text(workspace: WorkspaceContext, path: str, line: int, content: str, run_mode: RunMode) -> str:
    """More text before a line."""
    return _change_text(
        workspace,
        path,
        lambda text: insert_lines(text.plain, line, text.normalize_line_ends(content), path),
        run_mode,
    )


def replace_strings(
    workspace: WorkspaceContext, path: str, edits: Sequence[Mapping[str, object]], run_mode: RunMode
) -> str:
    """Several replacements, in one file or several. All are checked before the first file is written."""
    by_path = _group_by_path(path, edits)
    with workspace.write_lock, ExitStack() as stack:
        planned: list[_PlannedChange] = []
        for each, wanted in by_path.items():
            place = stack.enter_context(workspace.root_folder.open_entry(each))
            if any(other.entry.names == place.names for other in planned):
                message = f"{place.display_path} is named in two ways."
                raise ToolRefused(message, hint="Use one path for all edits of a file.")
            planned.append(
                _plan_change(
                    workspace, place, lambda text, w=wanted, s=place.display_path: _apply_edits(text, w, s)
                )
            )
        return _apply_changes(workspace, planned, run_mode)


def _group_by_path(path: str, edits: Sequence[Mapping[str, object]]) -> dict[str, tuple[TextEdit, ...]]:
    if not 0 < len(edits) <= MAX_EDITS:
        message = f"multi_replace takes 1 to {MAX_EDITS} `edits`."
        raise ToolRefused(
            message, hint="Each has `old_string` and `new_string`, and `path` where they differ."
        )
    found: dict[str, tuple[TextEdit, ...]] = {}
    for number, edit in enumerate(edits, start=1):
        where = str(edit.get("path") or path)
        if not where:
            message = f"Edit {number} has no `path`, and there is none for all."
            raise ToolRefused(message, hint="Give `path` beside `edits`, or in each of them.")
        made = TextEdit(
            old=str(edit.get("old_string", "")),
            new=str(edit.get("new_string", "")),
            everywhere=edit.get("all") is True,
        )
        found[where] = (*found.get(where, ()), made)
    if len(found) > MAX_EDITED_FILES:
        message = f"The edits are in {len(found)} files; {MAX_EDITED_FILES} is the most."
        raise ToolRefused(message, hint="Make several calls of it.")
    return found


def _apply_edits(text: FileText, edits: Sequence[TextEdit], display_path: str) -> str:
    plain = text.plain
    for edit in edits:
        tidy = TextEdit(
            old=text.normalize_line_ends(edit.old),
            new=text.normalize_line_ends(edit.new),
            everywhere=edit.everywhere,
        )
        plain = replace_text(plain, tidy, display_path)
    return plain


def _change_text(
    workspace: WorkspaceContext,
    path: str,
    change: Callable[[FileText], str],
    run_mode: RunMode,
    *,
    create: str | None = None,
) -> str:
    with workspace.write_lock, workspace.root_folder.open_entry(path) as place:
        if create is not None and place.get_stat() is None:
            workspace.root_folder.check_creatable(place)
            planned = _PlannedChange(place, None, FileChange(place.display_path, None, _encode_text(create)))
        else:
            planned = _plan_change(workspace, place, change)
        return _apply_changes(workspace, [planned], run_mode)


def _plan_change(
    workspace: WorkspaceContext, entry: PathEntry, change: Callable[[FileText], str]
) -> _PlannedChange:
    workspace.root_folder.check_writable(entry)
    content, text = read_for_edit(entry, workspace.settings.read_bytes)
    after = text.encode_changed(change(text))
    return _PlannedChange(entry, content.file_stat, FileChange(entry.display_path, content.data, after))


def _apply_changes(workspace: WorkspaceContext, planned: Sequence[_PlannedChange], run_mode: RunMode) -> str:
    for number, plan in enumerate(planned):
        size = 0 if plan.change.after is None else len(plan.change.after)
        if size > workspace.settings.write_bytes:
            message = (
                f"{plan.change.display_path} would have {size} bytes; "
                f"{workspace.settings.write_bytes} is the most."
            )
            raise ToolRefused(message, hint="builtin.workspace.write_bytes sets that limit.")
        if not run_mode.is_dry_run:
            _write_change(workspace, plan, done=number)
    return format_report(run_mode, *(plan.change.describe(run_mode) for plan in planned))


def _write_change(workspace: WorkspaceContext, plan: _PlannedChange, *, done: int) -> None:
    try:
        with workspace.root_folder.create_parents(plan.entry) as place:
            write_atomically(place, plan.change.after or b"", plan.stat_before)
    except ToolRefused as refused:
        if not done:
            raise
        message = f"{refused} The {done} file(s) before it are written already."
        raise ToolRefused(message, hint=refused.hint) from refused


def _encode_text(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        message = "The content is not valid Unicode."
        raise ToolRefused(message, hint="Write it without half of a surrogate pair.") from None
