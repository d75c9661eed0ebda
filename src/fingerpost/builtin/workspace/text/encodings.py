"""Bytes as text and back, so that what was not meant to change does not: encoding, mark and line ends."""

from __future__ import annotations

import codecs
import re
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.frozen import frozen

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES: Final = 8192
_CONTROL_CHARACTERS: Final = bytes({*range(0x20), 0x7F} - {*b"\t\n\r\f\b\x1b"})
_CONTROL_SHARE: Final = 0.1
_LINE_END_PATTERN: Final = re.compile(r"\r?\n")
_LINE_PATTERN: Final = re.compile(r"[^\n]*\n|[^\n]+")


@frozen
class FileText:
    """The text of a file and how it was written down."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""  # the byte order mark it began with
    certain: bool = True  # False: it is not UTF-8 and says not what it is

    @property
    def line_end(self) -> str | None:
        """The one line end it uses; None: none at all, or several."""
        kinds = set(_LINE_END_PATTERN.findall(self.text))
        if not kinds and "\r" in self.text:
            return "\r"  # alone it ends lines only where nothing else does
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def plain(self) -> str:
        """The text with plain line ends, where it has one kind."""
        return self.normalize_line_ends(self.text)

    def normalize_line_ends(self, addition: str) -> str:
        """What somebody wants to find or put there, with the line ends that `plain` has."""
        end = self.line_end
        if end is None:
            return addition
        tidy = addition.replace("\r\n", "\n")
        return tidy.replace("\r", "\n") if end == "\r" else tidy

    def encode_changed(self, plain: str) -> bytes:
        """The file with another text in place of `plain`: same encoding, mark and line ends."""
        end = self.line_end
        return self.encode(plain if end in (None, "\n") else plain.replace("\n", end))

    def encode(self, changed: str) -> bytes:
        """Another text in the same encoding, with the same mark. Raises `ToolRefused`."""
        try:
            return self.mark + changed.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = changed[error.start]
            message = f"The file is not UTF-8 but {self.encoding}, which has no {char!r}."
            raise ToolRefused(message, hint="Leave that character out, or write the file anew.") from None


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is no text in any way we could read."""
    if any(data.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS):
        return False
    begin = data[:_SAMPLE_BYTES]
    if b"\0" in begin:
        return True
    return len(begin) - len(begin.translate(None, _CONTROL_CHARACTERS)) > _CONTROL_SHARE * len(begin)


def decode_text(data: bytes, *, whole: bool = True) -> FileText | None:
    """The text, None when it is binary. `whole`: nothing was cut off behind it."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            read = _decode_bytes(data[len(mark) :], encoding, whole=whole)
            return None if read is None else FileText(text=read, encoding=encoding, mark=mark)
    if is_binary(data):
        return None
    read = _decode_bytes(data, "utf-8", whole=whole)
    if read is not None:
        return FileText(text=read)
    # Every byte is a character of Latin-1, so nothing is lost on the way there and back.
    return FileText(text=data.decode("latin-1"), encoding="latin-1", certain=False)


def _decode_bytes(data: bytes, encoding: str, *, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        return None


def split_lines(text: str) -> list[str]:
    """Its lines, each with its line end. Only those of `\\n` count: `str.splitlines` knows many more."""
    return _LINE_PATTERN.findall(text)
