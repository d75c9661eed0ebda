"""Reading files: whole, in parts without reading the whole, and what they are when they are no text."""

from __future__ import annotations

import hashlib
import mimetypes
import os
import time
from datetime import UTC, datetime
from stat import S_ISLNK, S_ISREG, filemode
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground import PathEntry, format_name
from fingerpost.builtin.workspace.ground.place import describe_kind
from fingerpost.builtin.workspace.text.encodings import FileText, decode_text, is_binary, split_lines
from fingerpost.builtin.workspace.workplace import WorkspaceContext
from fingerpost.frozen import frozen

MAX_HASHED_BYTES: Final = 256 * 1024 * 1024
READ_TIMEOUT_S: Final = 20.0  # for getting to a line far down in a huge file
_CHUNK_BYTES: Final = 1024 * 1024
_BEGINNING_BYTES: Final = 8192


@frozen(kw_only=False)
class FileContent:
    """A file that was read: all of it, or the beginning."""

    entry: PathEntry
    file_stat: os.stat_result
    data: bytes

    @property
    def whole(self) -> bool:
        return len(self.data) >= self.file_stat.st_size


def read_bytes(entry: PathEntry, limit: int) -> FileContent:
    """At most so many bytes of the file."""
    descriptor, found = entry.open_file()
    try:
        return FileContent(entry, found, _read_some(descriptor, limit))
    finally:
        os.close(descriptor)


def read_for_edit(entry: PathEntry, limit: int) -> tuple[FileContent, FileText]:
    """All of a text file. Raises `ToolRefused` when it is too large or no text."""
    content = read_bytes(entry, limit + 1)
    if len(content.data) > limit:
        message = (
            f"{entry.display_path} has {content.file_stat.st_size} bytes; "
            f"files up to {limit} bytes can be edited."
        )
        raise ToolRefused(message, hint="builtin.workspace.read_bytes sets that limit.")
    text = decode_text(content.data)
    if text is None:
        message = f"{entry.display_path} is binary and cannot be edited as text."
        raise ToolRefused(message, hint="write_file replaces a file as a whole.")
    return content, text


def read_file(workspace: WorkspaceContext, path: str) -> str:
    """A file as text, up to the limit and to the end of a line."""
    with workspace.root_folder.open_entry(path) as place:
        content = read_bytes(place, workspace.settings.read_bytes)
        text = decode_text(content.data, whole=content.whole)
        if text is None:
            return _describe_file(place)
    if content.whole:
        return f"{text.text}{_format_footnote(text, '')}" if text.text else f"[{place.display_path} is empty]"
    lines = split_lines(text.text)
    if len(lines) > 1:
        lines.pop()  # cut somewhere in the middle
    more = (
        f"lines 1–{len(lines)}, {len(content.data)} of {content.file_stat.st_size} bytes; "
        f"read_range with start_line={len(lines) + 1} reads on"
    )
    return "".join(lines) + _format_footnote(text, more)


def _format_footnote(text: FileText, more: str) -> str:
    notes = [more] if more else []
    if not text.certain:
        notes.append("not UTF-8, read as Latin-1: letters beyond ASCII may be wrong")
    elif text.encoding != "utf-8":
        notes.append(f"written in {text.encoding}")
    return f"\n[{'; '.join(notes)}]" if notes else ""


def read_range(workspace: WorkspaceContext, path: str, start: int, end: int) -> str:
    """Lines `start` to `end` (from 1, both counted); a negative start counts from the end."""
    if start == 0 or (start > 0 and end and end < start):
        message = f"Lines {start} to {end} are no range."
        raise ToolRefused(
            message, hint="Lines count from 1, the end comes last; start_line=-50 is the last 50."
        )
    with workspace.root_folder.open_entry(path) as place:
        descriptor, found = place.open_file()
        try:
            begin = os.pread(descriptor, _BEGINNING_BYTES, 0)
            if is_binary(begin):
                return _describe_file(place)
            if _is_wide_encoding(begin):
                return _read_text_range(workspace, place, start, end)
            if start < 0:
                return _read_tail(workspace, place, descriptor, found, -start)
            return _read_line_range(workspace, place, descriptor, start, end)
        finally:
            os.close(descriptor)


def _is_wide_encoding(begin: bytes) -> bool:
    """Whether a line end is more than one byte there."""
    text = decode_text(begin, whole=False)
    return text is not None and text.encoding.startswith(("utf-16", "utf-32"))


def _read_text_range(workspace: WorkspaceContext, entry: PathEntry, start: int, end: int) -> str:
    _, text = read_for_edit(entry, workspace.settings.read_bytes)
    lines = split_lines(text.text)
    first = max(1, len(lines) + start + 1) if start < 0 else start
    last = min(len(lines), end or len(lines))
    return _format_range(entry, first, last, f" of {len(lines)}", "".join(lines[first - 1 : last]))


def _read_line_range(
    workspace: WorkspaceContext, entry: PathEntry, descriptor: int, start: int, end: int
) -> str:
    """Going through the file in chunks; what lies before the range is counted, not kept."""
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
    """Where a line begins. Raises `ToolRefused` when there is none of that number."""
    line, offset, until = 1, 0, time.monotonic() + READ_TIMEOUT_S
    while line < wanted:
        chunk = os.pread(descriptor, _CHUNK_BYTES, offset)
        count = chunk.count(b"\n")
        if not chunk:
            raise _build_no_line_error(
                entry, wanted, line if _ends_inside_line(descriptor, offset) else line - 1
            )
        if time.monotonic() > until:
            message = (
                f"Line {wanted} of {entry.display_path} is too far down to "
                f"get there in {READ_TIMEOUT_S:g} seconds."
            )
            raise ToolRefused(message, hint="grep_search finds places by what they say.")
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


def _ends_inside_line(descriptor: int, offset: int) -> bool:
    """Whether the file ends there without a line end."""
    return offset > 0 and os.pread(descriptor, 1, offset - 1) != b"\n"


def _build_no_line_error(entry: PathEntry, wanted: int, count: int) -> ToolRefused:
    message = f"{entry.display_path} has {count} lines; there is no line {wanted}."
    return ToolRefused(message, hint="start_line=-50 reads the last 50.")


def _read_tail(
    workspace: WorkspaceContext, entry: PathEntry, descriptor: int, file_stat: os.stat_result, count: int
) -> str:
    most = workspace.settings.read_bytes
    offset = max(0, file_stat.st_size - most)
    data = b"".join(_read_pieces(descriptor, offset, most))
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if offset:
        lines = lines[1:]
    last = lines[-count:]
    text = _decode_text(b"\n".join(last))
    return f"[{entry.display_path}, the last {len(last)} lines]\n{text}"


def _read_pieces(descriptor: int, offset: int, limit: int) -> list[bytes]:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.pread(descriptor, min(limit, _CHUNK_BYTES), offset)):
        pieces.append(piece)
        offset, limit = offset + len(piece), limit - len(piece)
    return pieces


def _format_range(entry: PathEntry, first: int, last: int, more: str, text: str) -> str:
    return f"[{entry.display_path}, lines {first}–{last}{more}]\n{text}"


def _decode_text(data: bytes) -> str:
    read = decode_text(data, whole=False)
    return data.decode("utf-8", "backslashreplace") if read is None else read.text


def _read_some(descriptor: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(descriptor, min(limit, 8 * _CHUNK_BYTES))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def describe_path(workspace: WorkspaceContext, path: str) -> str:
    """What is known about one file or folder."""
    with workspace.root_folder.open_entry(path, follow=False) as place:
        found = place.require_stat()
        if S_ISLNK(found.st_mode):
            return _describe_link(workspace, place, path)
        if S_ISREG(found.st_mode):
            return _describe_file(place)
        return "\n".join((f"{place.display_path}: {describe_kind(found)}", *_format_stat(found)))


def _describe_link(workspace: WorkspaceContext, entry: PathEntry, path: str) -> str:
    target = os.readlink(entry.name, dir_fd=entry.folder)
    try:
        with workspace.root_folder.open_entry(path) as led:
            there = led.get_stat()
            leads = (
                f"leads to {led.display_path}, "
                f"{'where nothing is' if there is None else describe_kind(there)}"
            )
    except ToolRefused:
        leads = "leads out of the working directory and is not followed"
    return f"{entry.display_path}: a link to {format_name(target)}; it {leads}"


def _describe_file(entry: PathEntry) -> str:
    """A file by its figures: type, size, when it changed, its hash; and of a text how long it is."""
    descriptor, found = entry.open_file()
    try:
        begin = os.pread(descriptor, _BEGINNING_BYTES, 0)
        digest = _hash_file(descriptor, found.st_size)
        lines = None if is_binary(begin) else _count_lines(descriptor, found.st_size)
    finally:
        os.close(descriptor)
    kind = mimetypes.guess_type(entry.name)[0] or (
        "application/octet-stream" if lines is None else "text/plain"
    )
    text = decode_text(begin, whole=False)
    about = "binary, not shown" if text is None else f"text, {text.encoding}, {lines} lines"
    return "\n".join(
        (
            f"{entry.display_path}: a file ({about})",
            f"type: {kind}",
            *_format_stat(found),
            f"sha256: {digest}",
        )
    )


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
