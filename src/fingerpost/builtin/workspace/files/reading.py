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
from fingerpost.builtin.workspace.ground import Place, shown_name
from fingerpost.builtin.workspace.ground.place import kind_of
from fingerpost.builtin.workspace.text.encodings import Text, is_binary, lines_of, read_text
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.frozen import frozen

HASHED_BYTES: Final = 256 * 1024 * 1024
SECONDS: Final = 20.0  # for getting to a line far down in a huge file
_CHUNK: Final = 1024 * 1024
_BEGIN: Final = 8192


@frozen(kw_only=False)
class Content:
    """A file that was read: all of it, or the beginning."""

    place: Place
    found: os.stat_result
    data: bytes

    @property
    def whole(self) -> bool:
        return len(self.data) >= self.found.st_size


def read_bytes(place: Place, most: int) -> Content:
    """At most so many bytes of the file."""
    descriptor, found = place.open_file()
    try:
        return Content(place, found, _some(descriptor, most))
    finally:
        os.close(descriptor)


def read_for_edit(place: Place, most: int) -> tuple[Content, Text]:
    """All of a text file. Raises `ToolRefused` when it is too large or no text."""
    content = read_bytes(place, most + 1)
    if len(content.data) > most:
        message = f"{place.shown} has {content.found.st_size} bytes; files up to {most} bytes can be edited."
        raise ToolRefused(message, hint="builtin.workspace.read_bytes sets that limit.")
    text = read_text(content.data)
    if text is None:
        message = f"{place.shown} is binary and cannot be edited as text."
        raise ToolRefused(message, hint="write_file replaces a file as a whole.")
    return content, text


def read_file(work: Workplace, path: str) -> str:
    """A file as text, up to the limit and to the end of a line."""
    with work.ground.at(path) as place:
        content = read_bytes(place, work.settings.read_bytes)
        text = read_text(content.data, whole=content.whole)
        if text is None:
            return _described(place)
    if content.whole:
        return f"{text.text}{_footnote(text, '')}" if text.text else f"[{place.shown} is empty]"
    lines = lines_of(text.text)
    if len(lines) > 1:
        lines.pop()  # cut somewhere in the middle
    more = (
        f"lines 1–{len(lines)}, {len(content.data)} of {content.found.st_size} bytes; "
        f"read_range with start_line={len(lines) + 1} reads on"
    )
    return "".join(lines) + _footnote(text, more)


def _footnote(text: Text, more: str) -> str:
    notes = [more] if more else []
    if not text.certain:
        notes.append("not UTF-8, read as Latin-1: letters beyond ASCII may be wrong")
    elif text.encoding != "utf-8":
        notes.append(f"written in {text.encoding}")
    return f"\n[{'; '.join(notes)}]" if notes else ""


def read_range(work: Workplace, path: str, start: int, end: int) -> str:
    """Lines `start` to `end` (from 1, both counted); a negative start counts from the end."""
    if start == 0 or (start > 0 and end and end < start):
        message = f"Lines {start} to {end} are no range."
        raise ToolRefused(
            message, hint="Lines count from 1, the end comes last; start_line=-50 is the last 50."
        )
    with work.ground.at(path) as place:
        descriptor, found = place.open_file()
        try:
            begin = os.pread(descriptor, _BEGIN, 0)
            if is_binary(begin):
                return _described(place)
            if _wide(begin):
                return _from_text(work, place, start, end)
            if start < 0:
                return _tail(work, place, descriptor, found, -start)
            return _lines(work, place, descriptor, start, end)
        finally:
            os.close(descriptor)


def _wide(begin: bytes) -> bool:
    """Whether a line end is more than one byte there."""
    text = read_text(begin, whole=False)
    return text is not None and text.encoding.startswith(("utf-16", "utf-32"))


def _from_text(work: Workplace, place: Place, start: int, end: int) -> str:
    _, text = read_for_edit(place, work.settings.read_bytes)
    lines = lines_of(text.text)
    first = max(1, len(lines) + start + 1) if start < 0 else start
    last = min(len(lines), end or len(lines))
    return _ranged(place, first, last, f" of {len(lines)}", "".join(lines[first - 1 : last]))


def _lines(work: Workplace, place: Place, descriptor: int, start: int, end: int) -> str:
    """Going through the file in chunks; what lies before the range is counted, not kept."""
    most = work.settings.read_bytes
    line, kept, size = start, list[bytes](), 0
    offset = _offset_of(descriptor, start, place)
    with os.fdopen(os.dup(descriptor), "rb", buffering=_CHUNK) as file:
        file.seek(offset)
        for read in file:
            if (end and line > end) or size >= most:
                break
            kept.append(read[: most - size])
            size += len(read)
            line += 1
        else:
            return _ranged(place, start, line - 1, f" of {line - 1}", _text(b"".join(kept)))
    more = "" if end and line > end else f"; start_line={line} reads on"
    return _ranged(place, start, line - 1, more, _text(b"".join(kept)))


def _offset_of(descriptor: int, wanted: int, place: Place) -> int:
    """Where a line begins. Raises `ToolRefused` when there is none of that number."""
    line, offset, until = 1, 0, time.monotonic() + SECONDS
    while line < wanted:
        chunk = os.pread(descriptor, _CHUNK, offset)
        count = chunk.count(b"\n")
        if not chunk:
            raise _no_line(place, wanted, line if _in_line(descriptor, offset) else line - 1)
        if time.monotonic() > until:
            message = f"Line {wanted} of {place.shown} is too far down to get there in {SECONDS:g} seconds."
            raise ToolRefused(message, hint="grep_search finds places by what they say.")
        if line + count < wanted:
            line, offset = line + count, offset + len(chunk)
            continue
        at = -1
        for _ in range(wanted - line):
            at = chunk.index(b"\n", at + 1)
        line, offset = wanted, offset + at + 1
    if wanted > 1 and not os.pread(descriptor, 1, offset):
        raise _no_line(place, wanted, wanted - 1)
    return offset


def _in_line(descriptor: int, offset: int) -> bool:
    """Whether the file ends there without a line end."""
    return offset > 0 and os.pread(descriptor, 1, offset - 1) != b"\n"


def _no_line(place: Place, wanted: int, count: int) -> ToolRefused:
    message = f"{place.shown} has {count} lines; there is no line {wanted}."
    return ToolRefused(message, hint="start_line=-50 reads the last 50.")


def _tail(work: Workplace, place: Place, descriptor: int, found: os.stat_result, count: int) -> str:
    most = work.settings.read_bytes
    offset = max(0, found.st_size - most)
    data = b"".join(_pieces(descriptor, offset, most))
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if offset:
        lines = lines[1:]
    last = lines[-count:]
    text = _text(b"\n".join(last))
    return f"[{place.shown}, the last {len(last)} lines]\n{text}"


def _pieces(descriptor: int, offset: int, most: int) -> list[bytes]:
    pieces: list[bytes] = []
    while most > 0 and (piece := os.pread(descriptor, min(most, _CHUNK), offset)):
        pieces.append(piece)
        offset, most = offset + len(piece), most - len(piece)
    return pieces


def _ranged(place: Place, first: int, last: int, more: str, text: str) -> str:
    return f"[{place.shown}, lines {first}–{last}{more}]\n{text}"


def _text(data: bytes) -> str:
    read = read_text(data, whole=False)
    return data.decode("utf-8", "backslashreplace") if read is None else read.text


def _some(descriptor: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(descriptor, min(most, 8 * _CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def file_info(work: Workplace, path: str) -> str:
    """What is known about one file or folder."""
    with work.ground.at(path, follow=False) as place:
        found = place.there()
        if S_ISLNK(found.st_mode):
            return _link_info(work, place, path)
        if S_ISREG(found.st_mode):
            return _described(place)
        return "\n".join((f"{place.shown}: {kind_of(found)}", *_figures(found)))


def _link_info(work: Workplace, place: Place, path: str) -> str:
    target = os.readlink(place.name, dir_fd=place.folder)
    try:
        with work.ground.at(path) as led:
            there = led.look()
            leads = f"leads to {led.shown}, {'where nothing is' if there is None else kind_of(there)}"
    except ToolRefused:
        leads = "leads out of the working directory and is not followed"
    return f"{place.shown}: a link to {shown_name(target)}; it {leads}"


def _described(place: Place) -> str:
    """A file by its figures: type, size, when it changed, its hash; and of a text how long it is."""
    descriptor, found = place.open_file()
    try:
        begin = os.pread(descriptor, _BEGIN, 0)
        digest = _digest(descriptor, found.st_size)
        lines = None if is_binary(begin) else _count_lines(descriptor, found.st_size)
    finally:
        os.close(descriptor)
    kind = mimetypes.guess_type(place.name)[0] or (
        "application/octet-stream" if lines is None else "text/plain"
    )
    text = read_text(begin, whole=False)
    about = "binary, not shown" if text is None else f"text, {text.encoding}, {lines} lines"
    return "\n".join(
        (f"{place.shown}: a file ({about})", f"type: {kind}", *_figures(found), f"sha256: {digest}")
    )


def _figures(found: os.stat_result) -> tuple[str, ...]:
    changed = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
    size = (f"size: {found.st_size} bytes",) if S_ISREG(found.st_mode) else ()
    return (*size, f"changed: {changed}", f"permissions: {filemode(found.st_mode)}")


def _digest(descriptor: int, size: int) -> str:
    if size > HASHED_BYTES:
        return "(too large)"
    hashed, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _CHUNK, offset):
        hashed.update(piece)
        offset += len(piece)
    return hashed.hexdigest()


def _count_lines(descriptor: int, size: int) -> str:
    if size > HASHED_BYTES:
        return "very many"
    count, offset, last = 0, 0, b"\n"
    while piece := os.pread(descriptor, _CHUNK, offset):
        count += piece.count(b"\n")
        offset, last = offset + len(piece), piece[-1:]
    return str(count + (last != b"\n"))
