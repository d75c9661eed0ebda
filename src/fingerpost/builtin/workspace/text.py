"""Text of files: encodings, line ends, edits and diffs. There is no file access here."""

from __future__ import annotations

import codecs
import difflib
import re
from itertools import islice
from typing import Final

from fingerpost.builtin.toolkit import ToolRefused, detect_encoding
from fingerpost.frozen import frozen

_LINE_END_PATTERN: Final = re.compile(r"\r?\n")
_LINE_PATTERN: Final = re.compile(r"[^\n]*\n|[^\n]+")


@frozen
class FileText:
    """The text of a file and its encoding."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""  # the byte order mark
    certain: bool = True  # False: not UTF-8, and the encoding is a guess

    @property
    def line_end(self) -> str | None:
        """The only kind of line end, or None if there are none or several."""
        kinds = set(_LINE_END_PATTERN.findall(self.text))
        if not kinds and "\r" in self.text:
            return "\r"  # `\r` ends lines only if there is no other line end
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def plain(self) -> str:
        r"""The text with `\n` line ends, if it has only one kind."""
        return self.normalize_line_ends(self.text)

    def normalize_line_ends(self, addition: str) -> str:
        """Return text to find or insert, with the same line ends as `plain`."""
        end = self.line_end
        if end is None:
            return addition
        tidy = addition.replace("\r\n", "\n")
        return tidy.replace("\r", "\n") if end == "\r" else tidy

    def encode_changed(self, plain: str) -> bytes:
        """Return the file's bytes with another text in place of `plain`: same encoding, BOM and line ends."""
        end = self.line_end
        return self.encode(plain if end in (None, "\n") else plain.replace("\n", end))

    def encode(self, changed: str) -> bytes:
        """Encode another text with the same encoding and BOM. Raises `ToolRefused`."""
        try:
            return self.mark + changed.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = changed[error.start]
            message = f"The file is not UTF-8 but {self.encoding}, which has no {char!r}."
            raise ToolRefused(message, hint="Leave that character out, or write the file anew.") from None


def decode_text(data: bytes, *, whole: bool = True) -> FileText | None:
    """Return the text, or None if it is binary. `whole`: the data is not cut."""
    found = detect_encoding(data)
    if found is None:
        return None
    mark, encoding = found
    try:
        read = codecs.getincrementaldecoder(encoding)().decode(data[len(mark) :], final=whole)
    except UnicodeDecodeError:
        # Every byte is a Latin-1 character, so nothing is lost when it is encoded again.
        return None if mark else FileText(text=data.decode("latin-1"), encoding="latin-1", certain=False)
    return FileText(text=read, encoding=encoding, mark=mark)


def split_lines(text: str) -> list[str]:
    r"""Split into lines with their line ends. Only `\n` counts; `str.splitlines` accepts more."""
    return _LINE_PATTERN.findall(text)


MAX_PLACES_LISTED: Final = 8
_MAX_HINT_LINES: Final = 5000  # lines searched for a similar one


@frozen
class TextEdit:
    """A replacement of one text by another."""

    old: str
    new: str
    everywhere: bool = False


def replace_text(text: str, edit: TextEdit, display_path: str) -> str:
    """Return the text after the edit. Raises `ToolRefused` if the old text is missing or not unique."""
    if not edit.old:
        hint = "insert_text adds text where there was none; write_file writes it all."
        raise ToolRefused("`old_string` is empty.", hint=hint)
    if edit.old == edit.new:
        raise ToolRefused("`old_string` and `new_string` are the same.", hint="Nothing would change.")
    count = text.count(edit.old)
    if count == 0:
        raise _build_not_found_error(text, edit.old, display_path)
    if count > 1 and not edit.everywhere:
        raise _build_ambiguous_error(text, edit.old, count, display_path)
    return text.replace(edit.old, edit.new)


def insert_lines(text: str, line: int, addition: str, display_path: str) -> str:
    """Return the text with `addition` before a line. 0, or one past the last line, means the end."""
    lines = split_lines(text)
    if line > len(lines) + 1:
        message = f"{display_path} has {len(lines)} lines, so there is no line {line} to insert before."
        raise ToolRefused(message, hint=f"Use 1 to {len(lines) + 1}, or 0 for the end.")
    at = len(lines) if line == 0 else line - 1
    if at == len(lines) and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not addition.endswith("\n"):
        addition += "\n"
    return "".join((*lines[:at], addition, *lines[at:]))


def _build_not_found_error(text: str, old: str, display_path: str) -> ToolRefused:
    message = f"{display_path} does not contain that text, so nothing was replaced."
    first = next((line for line in split_lines(old) if line.strip()), old).strip()
    lines = [line.rstrip("\r\n") for line in split_lines(text)[:_MAX_HINT_LINES]]
    same = [number for number, line in enumerate(lines, start=1) if first and first in line][:3]
    if same:
        place = f"Its first line stands in line {_format_numbers(same)}"
        return ToolRefused(message, hint=f"{place}, but not the rest: compare spaces and indents.")
    near = difflib.get_close_matches(first, [line.strip() for line in lines if line.strip()], n=1, cutoff=0.6)
    if near:
        number = next(number for number, line in enumerate(lines, start=1) if line.strip() == near[0])
        return ToolRefused(message, hint=f"Line {number} is near: {near[0][:200]}")
    return ToolRefused(message, hint="Read the file and copy the text exactly, spaces included.")


def _build_ambiguous_error(text: str, old: str, count: int, display_path: str) -> ToolRefused:
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) < MAX_PLACES_LISTED:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    where = f"{display_path} contains that text {count} times (line {_format_numbers(places)})"
    hint = "Add more of the lines around it, or say `all: true`."
    return ToolRefused(f"{where}, so nothing was replaced.", hint=hint)


def _format_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


MAX_DIFF_LINES: Final = 300  # shown
MAX_COMPARED_LINES: Final = 20_000  # lines; the time to compare is quadratic in the differences
MAX_LINE_LENGTH: Final = 500


def render_diff(
    display_path: str, before: bytes | None, after: bytes | None, *, limit: int = MAX_DIFF_LINES
) -> str:
    """Return the unified diff. None means that the file does not exist."""
    if before == after:
        return "(no difference)"
    old, new = _split_diff_lines(before), _split_diff_lines(after)
    if old is None or new is None:
        return f"(binary: {_describe_size(before)} before, {_describe_size(after)} after)"
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return f"({len(old)} lines before, {len(new)} after: too long to show the difference)"
    old_name = "/dev/null" if before is None else f"a/{display_path}"
    new_name = "/dev/null" if after is None else f"b/{display_path}"
    made = difflib.unified_diff(old, new, old_name, new_name, lineterm="")
    lines = [_shorten_line(line) for line in islice(made, limit + 1)]
    if len(lines) > limit:
        lines[limit:] = [f"… (the first {limit} lines of the difference)"]
    return "\n".join(lines) or _describe_invisible(before, after)


def _split_diff_lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    text = decode_text(data)
    if text is None:
        return None
    lines = text.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    elif lines:
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _describe_invisible(before: bytes | None, after: bytes | None) -> str:
    """Describe a change in bytes that does not change any line."""
    if before is None or after is None:
        return "(empty)"
    sizes = f"{_describe_size(before)} before, {_describe_size(after)} after"
    return f"(only line ends or the encoding differ: {sizes})"


def _shorten_line(line: str) -> str:
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"


def _describe_size(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes"
