"""Reads and writes files, whole or in part. A changed file is written beside the old one and renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mimetypes
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from stat import S_ISLNK, S_ISREG, filemode
from typing import Final

from fingerpost.builtin.toolkit import ToolRefused, detect_encoding
from fingerpost.builtin.workspace.context import RunMode, ToolArguments, WorkspaceContext
from fingerpost.builtin.workspace.paths import (
    EXISTS_TYPE,
    PathEntry,
    describe_kind,
    format_name,
    translate_os_errors,
)
from fingerpost.builtin.workspace.text import (
    MAX_DIFF_LINES,
    FileText,
    TextEdit,
    decode_text,
    insert_lines,
    render_diff,
    replace_text,
    split_lines,
)
from fingerpost.frozen import frozen

_MAX_LINES_WHEN_DONE: Final = 40  # diff lines after a real change: the caller knows what it wrote


def format_report(run_mode: RunMode, *parts: str) -> str:
    """Join the parts of a reply, with the heading of a dry run if it is one."""
    body = "\n\n".join(parts)
    return f"{run_mode.heading}\n\n{body}" if run_mode.is_dry_run else body


MAX_HASHED_BYTES: Final = 256 * 1024 * 1024
READ_TIMEOUT_S: Final = 20.0  # to reach a line far down in a huge file
_CHUNK_BYTES: Final = 1024 * 1024
_BEGINNING_BYTES: Final = 8192


@frozen(kw_only=False)
class FileContent:
    """The content of a file: all of it, or the beginning."""

    entry: PathEntry
    file_stat: os.stat_result
    data: bytes

    @property
    def whole(self) -> bool:
        return len(self.data) >= self.file_stat.st_size


@frozen(kw_only=False)
class FileChange:
    """One file before and after. Without `before` it does not exist."""

    entry: PathEntry
    after: bytes
    before: FileContent | None = None

    def describe(self, run_mode: RunMode) -> str:
        """Return the diff, and what was or would be done."""
        most = MAX_DIFF_LINES if run_mode.is_dry_run else _MAX_LINES_WHEN_DONE
        verb = "create" if self.before is None else "change"
        verb = f"Would {verb}" if run_mode.is_dry_run else f"{verb.capitalize()}d"
        old, shown = None if self.before is None else self.before.data, self.entry.display_path
        before = "" if old is None else f"{len(old)} → "
        diff = render_diff(shown, old, self.after, limit=most)
        return f"{verb} {shown} ({before}{len(self.after)} bytes).\n\n{diff}"


def read_bytes(entry: PathEntry, limit: int) -> FileContent:
    """Read at most `limit` bytes of the file."""
    descriptor, found = entry.open_file()
    try:
        return FileContent(entry, found, _read_pieces(descriptor, 0, limit))
    finally:
        os.close(descriptor)


def read_for_edit(entry: PathEntry, limit: int) -> tuple[FileContent, FileText]:
    """Read a whole text file. Raises `ToolRefused` if it is too large or no text."""
    content = read_bytes(entry, limit + 1)
    if len(content.data) > limit:
        size = f"{entry.display_path} has {content.file_stat.st_size} bytes"
        message = f"{size}; files up to {limit} bytes can be edited."
        raise ToolRefused(message, hint="builtin.workspace.read_bytes sets that limit.")
    text = decode_text(content.data)
    if text is None:
        message = f"{entry.display_path} is binary and cannot be edited as text."
        raise ToolRefused(message, hint="write_file replaces a file as a whole.")
    return content, text


def read_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Return a file as text, up to the limit and the end of a line."""
    with workspace.root_folder.open_entry(args.get_text("path")) as entry:
        content = read_bytes(entry, workspace.settings.read_bytes)
        text = decode_text(content.data, whole=content.whole)
        if text is None:
            return _describe_file(entry)
    if content.whole:
        return f"{text.text}{_format_footnote(text, '')}" if text.text else f"[{entry.display_path} is empty]"
    lines = split_lines(text.text)
    if len(lines) > 1:
        lines.pop()  # the last line is incomplete
    shown = f"lines 1–{len(lines)}, {len(content.data)} of {content.file_stat.st_size} bytes"
    more = f"{shown}; read_range with start_line={len(lines) + 1} reads on"
    return "".join(lines) + _format_footnote(text, more)


def _format_footnote(text: FileText, more: str) -> str:
    notes = [more] if more else []
    if not text.certain:
        notes.append("not UTF-8, read as Latin-1: letters beyond ASCII may be wrong")
    elif text.encoding != "utf-8":
        notes.append(f"written in {text.encoding}")
    return f"\n[{'; '.join(notes)}]" if notes else ""


def read_range(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Return lines `start` to `end` (from 1, inclusive). A negative start counts from the end."""
    start, end = args.get_number("start_line", 1), args.get_number("end_line", 0)
    if start == 0 or (start > 0 and end and end < start):
        hint = "Lines count from 1, the end comes last; start_line=-50 is the last 50."
        raise ToolRefused(f"Lines {start} to {end} are no range.", hint=hint)
    with workspace.root_folder.open_entry(args.get_text("path")) as entry:
        descriptor, found = entry.open_file()
        try:
            begin = os.pread(descriptor, _BEGINNING_BYTES, 0)
            text = decode_text(begin, whole=False)
            if text is None:
                return _describe_file(entry)
            if text.encoding.startswith(("utf-16", "utf-32")):  # a line end takes more than one byte
                return _read_text_range(workspace, entry, start, end)
            if start < 0:
                return _read_tail(workspace, entry, descriptor, found, -start)
            return _read_line_range(workspace, entry, descriptor, start, end)
        finally:
            os.close(descriptor)


def _read_text_range(workspace: WorkspaceContext, entry: PathEntry, start: int, end: int) -> str:
    _, text = read_for_edit(entry, workspace.settings.read_bytes)
    lines = split_lines(text.text)
    first = max(1, len(lines) + start + 1) if start < 0 else start
    last = min(len(lines), end or len(lines))
    return _format_range(entry, first, last, f" of {len(lines)}", "".join(lines[first - 1 : last]))


def _read_line_range(
    workspace: WorkspaceContext, entry: PathEntry, descriptor: int, start: int, end: int
) -> str:
    """Read the range in chunks. Lines before it are counted, not kept."""
    most = workspace.settings.read_bytes
    line, kept, size = start, list[bytes](), 0
    offset = _find_line_offset(descriptor, start, entry)
    with os.fdopen(os.dup(descriptor), "rb", buffering=_CHUNK_BYTES) as file:
        file.seek(offset)
        for read in file:
            if (end and line > end) or size >= most:
                break
            kept.append(read[: most - size])
            size += len(read)
            line += 1
        else:
            return _format_range(entry, start, line - 1, f" of {line - 1}", _decode_text(b"".join(kept)))
    more = "" if end and line > end else f"; start_line={line} reads on"
    return _format_range(entry, start, line - 1, more, _decode_text(b"".join(kept)))


def _find_line_offset(descriptor: int, wanted: int, entry: PathEntry) -> int:
    """Return the offset of a line. Raises `ToolRefused` if there is no such line."""
    line, offset, until = 1, 0, time.monotonic() + READ_TIMEOUT_S
    while line < wanted:
        chunk = os.pread(descriptor, _CHUNK_BYTES, offset)
        count = chunk.count(b"\n")
        if not chunk:
            ends_inside_line = offset > 0 and os.pread(descriptor, 1, offset - 1) != b"\n"
            raise _build_no_line_error(entry, wanted, line if ends_inside_line else line - 1)
        if time.monotonic() > until:
            line_name = f"Line {wanted} of {entry.display_path}"
            message = f"{line_name} is too far down to get there in {READ_TIMEOUT_S:g} seconds."
            raise ToolRefused(message, hint="grep_search finds lines by their text.")
        if line + count < wanted:
            line, offset = line + count, offset + len(chunk)
            continue
        at = -1
        for _ in range(wanted - line):
            at = chunk.index(b"\n", at + 1)
        line, offset = wanted, offset + at + 1
    if wanted > 1 and not os.pread(descriptor, 1, offset):
        raise _build_no_line_error(entry, wanted, wanted - 1)
    return offset


def _build_no_line_error(entry: PathEntry, wanted: int, count: int) -> ToolRefused:
    message = f"{entry.display_path} has {count} lines; there is no line {wanted}."
    return ToolRefused(message, hint="start_line=-50 reads the last 50.")


def _read_tail(
    workspace: WorkspaceContext, entry: PathEntry, descriptor: int, file_stat: os.stat_result, count: int
) -> str:
    most = workspace.settings.read_bytes
    offset = max(0, file_stat.st_size - most)
    lines = _read_pieces(descriptor, offset, most).split(b"\n")
    if not lines[-1]:
        lines.pop()
    last = lines[1 if offset else 0 :][-count:]
    text = _decode_text(b"\n".join(last))
    return f"[{entry.display_path}, the last {len(last)} lines]\n{text}"


def _read_pieces(descriptor: int, offset: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.pread(descriptor, min(limit, 8 * _CHUNK_BYTES), offset)):
        pieces.append(piece)
        offset, limit = offset + len(piece), limit - len(piece)
    return b"".join(pieces)


def _format_range(entry: PathEntry, first: int, last: int, more: str, text: str) -> str:
    return f"[{entry.display_path}, lines {first}–{last}{more}]\n{text}"


def _decode_text(data: bytes) -> str:
    read = decode_text(data, whole=False)
    return data.decode("utf-8", "backslashreplace") if read is None else read.text


def describe_path(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Describe one file or folder."""
    path = args.get_text("path")
    with workspace.root_folder.open_entry(path, follow=False) as entry:
        found = entry.require_stat()
        if S_ISLNK(found.st_mode):
            target = os.readlink(entry.name, dir_fd=entry.folder)
            try:
                with workspace.root_folder.open_entry(path) as there:
                    found = there.get_stat()
                    what = "where nothing is" if found is None else describe_kind(found)
                    leads = f"leads to {there.display_path}, {what}"
            except ToolRefused:
                leads = "leads out of the working directory and is not followed"
            return f"{entry.display_path}: a link to {format_name(target)}; it {leads}"
        if S_ISREG(found.st_mode):
            return _describe_file(entry)
        return "\n".join((f"{entry.display_path}: {describe_kind(found)}", *_format_stat(found)))


def _describe_file(entry: PathEntry) -> str:
    """Describe a file: type, size, modification time, hash, and the number of lines of a text."""
    descriptor, found = entry.open_file()
    try:
        begin = os.pread(descriptor, _BEGINNING_BYTES, 0)
        digest = _hash_file(descriptor, found.st_size)
        lines = None if detect_encoding(begin) is None else _count_lines(descriptor, found.st_size)
    finally:
        os.close(descriptor)
    unknown = "application/octet-stream" if lines is None else "text/plain"
    kind = mimetypes.guess_type(entry.name)[0] or unknown
    text = decode_text(begin, whole=False)
    about = "binary, not shown" if text is None else f"text, {text.encoding}, {lines} lines"
    heading = f"{entry.display_path}: a file ({about})"
    return "\n".join((heading, f"type: {kind}", *_format_stat(found), f"sha256: {digest}"))


def _format_stat(file_stat: os.stat_result) -> tuple[str, ...]:
    changed = datetime.fromtimestamp(file_stat.st_mtime, UTC).isoformat(timespec="seconds")
    size = (f"size: {file_stat.st_size} bytes",) if S_ISREG(file_stat.st_mode) else ()
    return (*size, f"changed: {changed}", f"permissions: {filemode(file_stat.st_mode)}")


def _hash_file(descriptor: int, size: int) -> str:
    if size > MAX_HASHED_BYTES:
        return "(too large)"
    hashed, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _CHUNK_BYTES, offset):
        hashed.update(piece)
        offset += len(piece)
    return hashed.hexdigest()


def _count_lines(descriptor: int, size: int) -> str:
    if size > MAX_HASHED_BYTES:
        return "very many"
    count, offset, last = 0, 0, b"\n"
    while piece := os.pread(descriptor, _CHUNK_BYTES, offset):
        count += piece.count(b"\n")
        offset, last = offset + len(piece), piece[-1:]
    return str(count + (last != b"\n"))


_NEW_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINK_ERRNOS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)


def write_atomically(entry: PathEntry, data: bytes, before: os.stat_result | None) -> None:
    """Replace the file's content. `before` is the stat when this was decided; None if it did not exist.

    The old file is never opened for writing, so hard links outside the root keep their content. Permissions
    are kept.
    """
    if before is not None and not before.st_mode & 0o222:
        hint = "Change its permissions first, if it is meant to change."
        raise ToolRefused(f"{entry.display_path} is read-only.", hint=hint)
    with translate_os_errors(entry.display_path):
        temporary = _write_temporary(entry, data, None if before is None else stat.S_IMODE(before.st_mode))
        try:
            if before is None:
                _link_into_place(entry, temporary)
            else:
                _replace_file(entry, temporary, before)
            os.fsync(entry.folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=entry.folder)


def move_entry(source: PathEntry, target: PathEntry) -> None:
    """Rename an entry. An existing target is never replaced."""
    with translate_os_errors(source.display_path):
        if stat.S_ISDIR(source.require_stat().st_mode):
            # The system itself refuses to replace a file or a non-empty folder with a folder.
            if target.get_stat() is not None:
                raise FileExistsError(errno.EEXIST, "exists")
            _rename_entry(source, target)
            return
        try:
            os.link(
                source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder,
                follow_symlinks=False,
            )  # fmt: skip
        except OSError as error:
            if error.errno not in _NO_LINK_ERRNOS:
                raise
            _rename_entry(source, target)
        else:
            os.unlink(source.name, dir_fd=source.folder)


def _rename_entry(source: PathEntry, target: PathEntry) -> None:
    if target.get_stat() is not None:
        raise FileExistsError(errno.EEXIST, "exists")
    os.rename(source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder)


def _write_temporary(entry: PathEntry, data: bytes, mode: int | None) -> str:
    name = f".{secrets.token_hex(8)}.fingerpost-tmp"
    descriptor = os.open(name, _NEW_FILE_FLAGS, 0o666, dir_fd=entry.folder)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=entry.folder)
        raise
    finally:
        os.close(descriptor)
    return name


def _link_into_place(entry: PathEntry, temporary: str) -> None:
    """Link the temporary file to a free name. A rename would replace a file created meanwhile."""
    try:
        os.link(
            temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder, follow_symlinks=False
        )
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
            raise
        # No hard links on this disk: reserve the name.
        os.close(os.open(entry.name, _NEW_FILE_FLAGS, 0o666, dir_fd=entry.folder))
        os.replace(temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder)


def _replace_file(entry: PathEntry, temporary: str, before: os.stat_result) -> None:
    now = entry.require_stat()
    if _build_version_mark(now) != _build_version_mark(before):
        message = f"{entry.display_path} was changed by another process meanwhile; it was not written."
        raise ToolRefused(message, hint="Read it again, then repeat the edit.")
    os.replace(temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder)


def _build_version_mark(file_stat: os.stat_result) -> tuple[int, int, int, int]:
    return (file_stat.st_ino, file_stat.st_dev, file_stat.st_size, file_stat.st_mtime_ns)


MAX_EDITED_FILES: Final = 20  # per multi_replace
MAX_EDITS: Final = 100


def create_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Create a new file. An existing one is not changed."""
    with workspace.write_lock, workspace.root_folder.open_entry(args.get_text("path")) as entry:
        workspace.root_folder.check_creatable(entry)
        if entry.get_stat() is not None:
            message = f"{entry.display_path} exists already."
            hint = "write_file replaces what is in it; replace_string changes a part."
            raise ToolRefused(message, hint=hint, error_type=EXISTS_TYPE, path=entry.display_path)
        created = FileChange(entry, _encode_text(args.get_text("content")))
        return _apply_changes(workspace, [created], run_mode)


def write_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Write a file's whole content. An existing file keeps its encoding, BOM, line ends and permissions."""
    content = args.get_text("content")
    with workspace.write_lock, workspace.root_folder.open_entry(args.get_text("path")) as entry:
        workspace.root_folder.check_writable(entry)
        if entry.get_stat() is None:
            workspace.root_folder.check_creatable(entry)
            return _apply_changes(workspace, [FileChange(entry, _encode_text(content))], run_mode)
        old = read_bytes(entry, workspace.settings.read_bytes + 1)
        if not old.whole:
            size = f"{old.file_stat.st_size} bytes"
            message = f"{entry.display_path} has {size}, too many to be replaced unseen."
            raise ToolRefused(message, hint="Delete it first, or raise builtin.workspace.read_bytes.")
        text = decode_text(old.data)
        if text is None or not text.certain:  # binary, or in an unknown encoding: UTF-8 from now on
            after = _encode_text(content)
        else:
            after = text.encode_changed(text.normalize_line_ends(content))
        return _apply_changes(workspace, [FileChange(entry, after, old)], run_mode)


def append_file(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Append content on a new line at the end of a file. The file is created if it does not exist."""
    content = args.get_text("content")

    def change(text: FileText) -> str:
        plain = text.plain
        between = "" if not plain or plain.endswith("\n") else "\n"
        return plain + between + text.normalize_line_ends(content)

    return _change_text(workspace, args, change, run_mode, create=content)


def replace_string(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Replace a text that occurs exactly once, or all its occurrences."""
    change = partial(_apply_edits, edits=[_build_edit(args.arguments)], display_path=args.get_text("path"))
    return _change_text(workspace, args, change, run_mode)


def insert_text(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Insert text before a line."""

    def change(text: FileText) -> str:
        added = text.normalize_line_ends(args.get_text("content"))
        return insert_lines(text.plain, args.get_number("line", 0), added, args.get_text("path"))

    return _change_text(workspace, args, change, run_mode)


def replace_strings(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Apply several replacements in one or more files. All are checked before the first file is written."""
    by_path = _group_by_path(args.get_text("path"), args.get_records("edits"))
    with workspace.write_lock, ExitStack() as stack:
        planned: list[FileChange] = []
        for each, wanted in by_path.items():
            entry = stack.enter_context(workspace.root_folder.open_entry(each))
            if any(other.entry.names == entry.names for other in planned):
                message = f"{entry.display_path} is named in two ways."
                raise ToolRefused(message, hint="Use one path for all edits of a file.")
            change = partial(_apply_edits, edits=wanted, display_path=entry.display_path)
            planned.append(_plan_change(workspace, entry, change))
        return _apply_changes(workspace, planned, run_mode)


def _build_edit(fields: Mapping[str, object]) -> TextEdit:
    old, new = str(fields.get("old_string", "")), str(fields.get("new_string", ""))
    return TextEdit(old=old, new=new, everywhere=fields.get("all") is True)


def _group_by_path(path: str, edits: Sequence[Mapping[str, object]]) -> dict[str, tuple[TextEdit, ...]]:
    if not 0 < len(edits) <= MAX_EDITS:
        hint = "Each has `old_string` and `new_string`, and `path` where they differ."
        raise ToolRefused(f"multi_replace takes 1 to {MAX_EDITS} `edits`.", hint=hint)
    found: dict[str, tuple[TextEdit, ...]] = {}
    for number, edit in enumerate(edits, start=1):
        where = str(edit.get("path") or path)
        if not where:
            message = f"Edit {number} has no `path`, and there is none for all."
            raise ToolRefused(message, hint="Give `path` beside `edits`, or in each of them.")
        found[where] = (*found.get(where, ()), _build_edit(edit))
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
    args: ToolArguments,
    change: Callable[[FileText], str],
    run_mode: RunMode,
    *,
    create: str | None = None,
) -> str:
    with workspace.write_lock, workspace.root_folder.open_entry(args.get_text("path")) as entry:
        if create is not None and entry.get_stat() is None:
            workspace.root_folder.check_creatable(entry)
            planned = FileChange(entry, _encode_text(create))
        else:
            planned = _plan_change(workspace, entry, change)
        return _apply_changes(workspace, [planned], run_mode)


def _plan_change(
    workspace: WorkspaceContext, entry: PathEntry, change: Callable[[FileText], str]
) -> FileChange:
    workspace.root_folder.check_writable(entry)
    content, text = read_for_edit(entry, workspace.settings.read_bytes)
    return FileChange(entry, text.encode_changed(change(text)), content)


def _apply_changes(workspace: WorkspaceContext, planned: Sequence[FileChange], run_mode: RunMode) -> str:
    for number, plan in enumerate(planned):
        size = len(plan.after)
        if size > workspace.settings.write_bytes:
            limit = f"{workspace.settings.write_bytes} is the most"
            message = f"{plan.entry.display_path} would have {size} bytes; {limit}."
            raise ToolRefused(message, hint="builtin.workspace.write_bytes sets that limit.")
        if not run_mode.is_dry_run:
            _write_change(workspace, plan, done=number)
    return format_report(run_mode, *(plan.describe(run_mode) for plan in planned))


def _write_change(workspace: WorkspaceContext, plan: FileChange, *, done: int) -> None:
    try:
        with workspace.root_folder.create_parents(plan.entry) as entry:
            write_atomically(entry, plan.after, None if plan.before is None else plan.before.file_stat)
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
