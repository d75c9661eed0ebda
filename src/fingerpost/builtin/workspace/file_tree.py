"""Operations on folders and whole files: list, find, rename, copy, delete. No existing file is replaced."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.context import RunMode, ToolArguments, WorkspaceContext
from fingerpost.builtin.workspace.file_content import format_report, move_entry, read_bytes, write_atomically
from fingerpost.builtin.workspace.folder_walk import (
    ANY_FOLDER_PATTERN,
    FolderWalk,
    IgnoreRules,
    WalkedEntry,
    load_parent_rules,
    translate_glob,
)
from fingerpost.builtin.workspace.paths import (
    EXISTS_TYPE,
    NOT_EMPTY_TYPE,
    SELF_NAME,
    PathEntry,
    format_name,
    translate_os_errors,
)
from fingerpost.builtin.workspace.text import render_diff

MAX_PATTERN_LENGTH: Final = 300


@contextmanager
def walk_folder(
    workspace: WorkspaceContext, path: str, walk: FolderWalk
) -> Generator[tuple[PathEntry, Generator[WalkedEntry]]]:
    """Yield everything below a folder. `.gitignore` files above apply, unless the folder is ignored."""
    with workspace.root_folder.open_entry(path) as entry:
        folder = entry.open_folder()
        try:
            above = _load_parent_rules(workspace, entry) if walk.gitignore and not entry.outside else None
            yield entry, walk.walk(folder, "/".join(entry.names), above)
        finally:
            os.close(folder)


def _load_parent_rules(workspace: WorkspaceContext, entry: PathEntry) -> IgnoreRules | None:
    held: list[tuple[int, str]] = []
    try:
        held.append((workspace.root_folder.open_root(), ""))
        for number, name in enumerate(entry.names[:-1], start=1):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=held[-1][0])
            held.append((below, "/".join(entry.names[:number]) + "/"))
        found = load_parent_rules(held) if entry.names else None
    except OSError:
        return None
    finally:
        for folder, _ in held:
            os.close(folder)
    above = ("/".join(entry.names[:end]) for end in range(1, len(entry.names) + 1))
    if found is None or any(found.is_ignored(path, folder=True) for path in above):
        return None
    return found


def list_folder(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """List the entries of a folder: folders with a slash, files with their size, down to `depth`."""
    include_ignored, limit = args.get_flag("include_ignored"), args.get_number("limit", 500)
    walk = workspace.build_walk(include_ignored=include_ignored, max_depth=args.get_number("depth", 1))
    lines: list[str] = []
    with walk_folder(workspace, args.get_text("path", "."), walk) as (folder_entry, found):
        start = len(folder_entry.names)
        lines.extend(_format_entry(entry, start) for entry in islice(found, limit + 1))
        shown = folder_entry.display_path
    more = _format_truncation(len(lines) > limit, limit, walk)
    if not lines:
        return f"{shown} is empty{'' if include_ignored else ', apart from what is ignored'}."
    return "\n".join((f"{shown}:", *lines[:limit])) + more


def _format_entry(entry: WalkedEntry, start: int) -> str:
    name = format_name("/".join(entry.path.split("/")[start:]))
    if entry.is_folder:
        return f"{name}/"
    try:
        if entry.is_file:
            return f"{name}  {entry.get_stat().st_size} bytes"
        target = format_name(os.readlink(entry.name, dir_fd=entry.folder))
    except OSError:
        return f"{name}  (not a file)"
    return f"{name} -> {target}"


def find_files(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """List files and folders whose path matches a pattern (`*.md`, `src/**/test_*.py`), in order."""
    pattern, limit = args.get_text("pattern"), args.get_number("limit", 200)
    fits = compile_path_pattern(pattern)
    walk = workspace.build_walk(include_ignored=args.get_flag("include_ignored"))
    found: list[str] = []
    with walk_folder(workspace, args.get_text("path", "."), walk) as (folder_entry, below):
        start = len("/".join(folder_entry.names)) + 1 if folder_entry.names else 0
        for entry in below:
            if fits.fullmatch(entry.path[start:]):
                found.append(format_name(entry.path) + ("/" if entry.is_folder else ""))
                if len(found) > limit:
                    break
        shown = folder_entry.display_path
    if not found:
        more = f" ({walk.stop_reason})" if walk.stop_reason else ""
        return f"Nothing in {shown} fits {pattern}{more}. {walk.count} entries were looked at."
    return "\n".join(found[:limit]) + _format_truncation(len(found) > limit, limit, walk)


def compile_path_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for paths. Without a slash, it matches the name in any folder."""
    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        message = f"The pattern must have 1 to {MAX_PATTERN_LENGTH} characters."
        raise ToolRefused(message, hint="Such as *.md, or src/**/test_*.py.")
    plain = pattern.removeprefix("./").removeprefix("/")
    branches = [translate_glob(each) for each in _expand_braces(plain)]
    prefix = "" if "/" in plain else ANY_FOLDER_PATTERN
    try:
        return re.compile(f"{prefix}(?:{'|'.join(branches)})", re.DOTALL)
    except re.error as error:
        message = f"The pattern {pattern} cannot be read: {error}."
        raise ToolRefused(message, hint="`*`, `**`, `?`, `[abc]` and `{md,txt}` have a meaning.") from error


def _expand_braces(pattern: str) -> list[str]:
    """Expand one pair of braces: `*.{md,txt}` is `*.md` and `*.txt`."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None or "," not in match[1]:
        return [pattern]
    return [pattern[: match.start()] + each + pattern[match.end() :] for each in match[1].split(",")]


def _format_truncation(cut: bool, limit: int, walk: FolderWalk) -> str:
    notes: list[str] = []
    if cut:
        notes.append(f"only the first {limit} are shown: narrow it down, or raise `limit`")
    if walk.stop_reason:
        notes.append(walk.stop_reason)
    return f"\n[{'; '.join(notes)}]" if notes else ""


MAX_COPIED: Final = 2000  # files of one folder
MAX_PATHS_SHOWN: Final = 50


def rename_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Rename a file or folder, possibly into another folder."""
    with (
        workspace.write_lock,
        workspace.root_folder.open_entry(args.get_text("path"), follow=False) as source,
        workspace.root_folder.open_entry(args.get_text("new_path"), follow=False) as target,
    ):
        found = source.require_stat()
        _check_outside_folder(source, target, found)
        workspace.root_folder.check_writable(source)
        _check_target(workspace, source, target)
        if stat.S_ISDIR(found.st_mode):
            _check_contents(workspace, source)
        if not run_mode.is_dry_run:
            with workspace.root_folder.create_parents(target) as entry:
                move_entry(source, entry)
        verb = "Would rename" if run_mode.is_dry_run else "Renamed"
        return format_report(run_mode, f"{verb} {source.display_path} to {target.display_path}.")


def copy_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Copy a file, or a folder with its content."""
    with (
        workspace.write_lock,
        workspace.root_folder.open_entry(args.get_text("path")) as source,
        workspace.root_folder.open_entry(args.get_text("new_path"), follow=False) as target,
    ):
        found = source.require_stat()
        _check_outside_folder(source, target, found)
        _check_target(workspace, source, target)
        if stat.S_ISDIR(found.st_mode):
            return _copy_folder(workspace, source, target, run_mode)
        content = read_bytes(source, workspace.settings.write_bytes + 1)
        _check_size(workspace, source.display_path, len(content.data))
        if not run_mode.is_dry_run:
            with workspace.root_folder.create_parents(target) as entry:
                write_atomically(entry, content.data, None)
                _keep_mode(entry, content.file_stat)
        verb, size = "Would copy" if run_mode.is_dry_run else "Copied", content.file_stat.st_size
        text = f"{verb} {source.display_path} to {target.display_path} ({size} bytes)."
        return format_report(run_mode, text)


def delete_path(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Delete a file or an empty folder, or with `recursive` a folder with its content."""
    path = args.get_text("path")
    with workspace.write_lock, workspace.root_folder.open_entry(path, follow=False) as entry:
        found = entry.require_stat()
        _check_outside_folder(entry, entry, found)
        workspace.root_folder.check_writable(entry)
        if stat.S_ISDIR(found.st_mode):
            return _delete_folder(workspace, entry, run_mode, recursive=args.get_flag("recursive"))
        lost = _describe_lost(entry, found)
        if not run_mode.is_dry_run:
            with translate_os_errors(entry.display_path):
                os.unlink(entry.name, dir_fd=entry.folder)
        verb = "Would delete" if run_mode.is_dry_run else "Deleted"
        return format_report(run_mode, f"{verb} {entry.display_path}.{lost}")


def _describe_lost(entry: PathEntry, file_stat: os.stat_result) -> str:
    """Describe what is deleted, so that a mistake can be noticed and corrected."""
    if not stat.S_ISREG(file_stat.st_mode):
        return ""
    content = read_bytes(entry, 64 * 1024)
    if not content.whole:
        return f" It has {file_stat.st_size} bytes."
    return f"\n\n{render_diff(entry.display_path, content.data, None, limit=60)}"


def _check_outside_folder(source: PathEntry, target: PathEntry, file_stat: os.stat_result) -> None:
    """Refuse to move, copy or delete a folder outside: who granted it has not seen its content."""
    if stat.S_ISDIR(file_stat.st_mode) and (source.outside or target.outside):
        message = "A folder is not moved, copied or deleted as a whole outside of the working directory."
        raise ToolRefused(message, hint="Take its files one by one.")


def _check_target(workspace: WorkspaceContext, source: PathEntry, target: PathEntry) -> None:
    if target.name == SELF_NAME or (found := target.get_stat()) is None:
        workspace.root_folder.check_creatable(target)
        if target.outside == source.outside and target.names[: len(source.names)] == source.names:
            message = f"{target.display_path} lies inside of {source.display_path}."
            raise ToolRefused(message, hint="Choose a target outside of it.")
        return
    message = f"{target.display_path} exists already, and is not replaced."
    name = source.names[-1] if source.names else ""
    inside = f" To put it into that folder, say new_path={target.display_path}/{format_name(name)}."
    hint = "Choose another name, or delete it first."
    hint += inside if stat.S_ISDIR(found.st_mode) else ""
    raise ToolRefused(message, hint=hint, error_type=EXISTS_TYPE, path=target.display_path)


def _list_contents(workspace: WorkspaceContext, folder_entry: PathEntry) -> list[str]:
    """List everything in a folder, relative to the root, ignored or not."""
    walk = FolderWalk(gitignore=False)
    folder = folder_entry.open_folder()
    try:
        found = [entry.path for entry in walk.walk(folder, folder_entry.display_path)]
    finally:
        os.close(folder)
    if walk.stop_reason:
        message = f"{folder_entry.display_path} holds too much ({walk.stop_reason})."
        raise ToolRefused(message, hint="Take its folders one by one.")
    return found


def _check_contents(workspace: WorkspaceContext, entry: PathEntry) -> list[str]:
    """Return the folder's content. Raises `ToolRefused` if it contains something protected."""
    found = _list_contents(workspace, entry)
    for path in found:
        names = tuple(path.split("/"))
        workspace.root_folder.check_writable(PathEntry(folder=entry.folder, name=names[-1], names=names))
    return found


def _delete_folder(
    workspace: WorkspaceContext, entry: PathEntry, run_mode: RunMode, *, recursive: bool
) -> str:
    found = _check_contents(workspace, entry)
    if found and not recursive:
        message = f"{entry.display_path} is a folder with {len(found)} entries in it."
        hint = "Say `recursive: true` to delete all of them."
        raise ToolRefused(message, hint=hint, error_type=NOT_EMPTY_TYPE, path=entry.display_path)
    if not run_mode.is_dry_run:
        with translate_os_errors(entry.display_path):
            # Uses descriptors only and follows no links.
            shutil.rmtree(entry.name, dir_fd=entry.folder)
    listed = [format_name(path) for path in found[:MAX_PATHS_SHOWN]]
    if len(found) > MAX_PATHS_SHOWN:
        listed.append(f"… and {len(found) - MAX_PATHS_SHOWN} more")
    verb = "Would delete" if run_mode.is_dry_run else "Deleted"
    heading = f"{verb} the folder {entry.display_path} with {len(found)} entries."
    return format_report(run_mode, "\n".join((heading, *listed)))


def _copy_folder(workspace: WorkspaceContext, source: PathEntry, target: PathEntry, run_mode: RunMode) -> str:
    found = _list_contents(workspace, source)
    if len(found) > MAX_COPIED:
        message = f"{source.display_path} holds {len(found)} entries; up to {MAX_COPIED} are copied at once."
        raise ToolRefused(message, hint="Copy its folders one by one.")
    count = size = 0
    for path in ("", *(each[len(source.display_path) + 1 :] for each in found)):
        copied = _copy_entry(workspace, source, target, path, run_mode)
        if copied is not None:
            count, size = count + 1, size + copied
            _check_size(workspace, source.display_path, size)
    verb, total = "Would copy" if run_mode.is_dry_run else "Copied", f"{count} files, {size} bytes"
    return format_report(run_mode, f"{verb} {source.display_path} to {target.display_path} ({total}).")


def _copy_entry(
    workspace: WorkspaceContext, source: PathEntry, target: PathEntry, path: str, run_mode: RunMode
) -> int | None:
    """Copy one entry of a folder. Each path is resolved again from the root. Links are not copied."""
    old = "/".join(filter(None, (*source.names, path)))
    new = "/".join(filter(None, (*target.names, path)))
    with (
        workspace.root_folder.open_entry(f"./{old}", follow=False) as entry,
        workspace.root_folder.open_entry(f"./{new}", follow=False) as copy,
    ):
        found = entry.require_stat()
        workspace.root_folder.check_creatable(copy)
        if stat.S_ISDIR(found.st_mode):
            if not run_mode.is_dry_run:
                with (
                    workspace.root_folder.create_parents(copy) as created,
                    translate_os_errors(copy.display_path),
                ):
                    os.mkdir(created.name, dir_fd=created.folder)
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        content = read_bytes(entry, workspace.settings.write_bytes + 1)
        _check_size(workspace, entry.display_path, len(content.data))
        if not run_mode.is_dry_run:
            with workspace.root_folder.create_parents(copy) as created:
                write_atomically(created, content.data, None)
                _keep_mode(created, content.file_stat)
        return len(content.data)


def _check_size(workspace: WorkspaceContext, display_path: str, size: int) -> None:
    if size > workspace.settings.write_bytes:
        message = f"{display_path} is larger than {workspace.settings.write_bytes} bytes."
        raise ToolRefused(message, hint="builtin.workspace.write_bytes sets what may be written at once.")


def _keep_mode(entry: PathEntry, file_stat: os.stat_result) -> None:
    """Copy the permissions of an executable file."""
    if not file_stat.st_mode & 0o111:
        return
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with translate_os_errors(entry.display_path):
        descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
        try:
            os.fchmod(descriptor, stat.S_IMODE(file_stat.st_mode) & 0o777)
        finally:
            os.close(descriptor)
