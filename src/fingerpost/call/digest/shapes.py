"""What kind of text a tool sent: looked at, not asked, because few tools say so truthfully."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Final, NoReturn, cast

from fingerpost.records import Json
from fingerpost.records.json import LARGE_SIZE, parse_in_steps

# Longer JSON is cut as text: parsing it would take many times its size in memory.
MAX_PARSED_LENGTH: Final = 16_000_000
_MAX_SAMPLE: Final = 6_000
MIN_TABLE_ROWS: Final = 4  # lines, below which nothing is a table or a log

_PAGE = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_TAGS = re.compile(
    r"</?(?:div|p|span|a|li|ul|table|tr|td|h[1-6]|br|img|section)\b[^<>]{0,500}>", re.IGNORECASE
)
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*")
_LOG_LINE = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b)"
)
_GAP = re.compile(r"\t| {2,}")


class TextShape(StrEnum):
    """The ways of cutting there are."""

    JSON = "json"
    PAGE = "html"
    TABLE = "table"
    LOG = "log"
    TEXT = "text"


def detect_shape(text: str) -> TextShape:
    """What the beginning of a text that is not JSON looks like."""
    beginning = text[:_MAX_SAMPLE]
    if _PAGE.match(beginning) or (beginning.lstrip()[:1] == "<" and len(_TAGS.findall(beginning)) >= 5):
        return TextShape.PAGE
    lines = [line for line in beginning.splitlines()[:30] if line.strip()]
    if len(lines) >= MIN_TABLE_ROWS:
        if count_header_rows(lines):
            return TextShape.TABLE
        if sum(_LOG_LINE.match(line) is not None for line in lines) >= 0.6 * len(lines):
            return TextShape.LOG
    return TextShape.TEXT


def count_header_rows(lines: list[str]) -> int:
    """How many lines are the header of a table; 0 when the lines are no table."""
    if len(lines) < MIN_TABLE_ROWS:
        return 0
    if "|" in lines[0] and "|" in lines[1] and _RULE.fullmatch(lines[1][:1_000]):
        return 2
    if set(lines[1].strip()) <= {"-", " ", "+", "="} and len(lines[1].split()) >= 2:
        return 2
    for separator in ("\t", ",", ";", "|"):
        counts = [_count_unquoted(line, separator) for line in lines[:10]]
        if (
            counts[0] >= 1
            and counts.count(counts[0]) >= 0.9 * len(counts)
            and _has_short_cells(lines[0], separator)
        ):
            return 1
    columns = [len(_GAP.split(line.strip())) for line in lines[:10]]
    return 1 if columns[0] >= 3 and columns.count(columns[0]) >= 0.7 * len(columns) else 0


def _count_unquoted(line: str, separator: str) -> int:
    """Separators outside quotation marks."""
    return sum(part.count(separator) for part in line.split('"')[::2])


def _has_short_cells(line: str, separator: str) -> bool:
    """Whether the cells are as short as those of a header: sentences have commas too."""
    return all(0 < len(cell.strip()) <= 40 for cell in line.split(separator))


def parse_json_text(text: str) -> Json:
    """The object or list that `text` writes down, or None when it is not JSON of such a kind."""
    beginning = text[:200].lstrip()[:1]
    if beginning not in ("{", "[") or len(text) > MAX_PARSED_LENGTH:
        return None
    try:
        if len(text) > LARGE_SIZE:
            return cast("Json", parse_in_steps(text, parse_constant=_refuse_constant))
        return cast("Json", json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):  # not JSON, or nested deeper than is sensible
        return None


def _refuse_constant(word: str) -> NoReturn:
    message = f"{word} is not JSON"
    raise ValueError(message)
