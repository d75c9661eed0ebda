"""What kind of text a tool sent: looked at, not asked, because few tools say so truthfully."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Final, NoReturn, cast

from fingerpost.records import Json
from fingerpost.records.json import LARGE, parse_in_steps

# Longer JSON is cut as text: parsing it would take many times its size in memory.
PARSED_UP_TO: Final = 16_000_000
_LOOKED_AT: Final = 6_000
LEAST_ROWS: Final = 4  # lines, below which nothing is a table or a log

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


class Shape(StrEnum):
    """The ways of cutting there are."""

    JSON = "json"
    PAGE = "html"
    TABLE = "table"
    LOG = "log"
    TEXT = "text"


def shape_of(text: str) -> Shape:
    """What the beginning of a text that is not JSON looks like."""
    beginning = text[:_LOOKED_AT]
    if _PAGE.match(beginning) or (beginning.lstrip()[:1] == "<" and len(_TAGS.findall(beginning)) >= 5):
        return Shape.PAGE
    lines = [line for line in beginning.splitlines()[:30] if line.strip()]
    if len(lines) >= LEAST_ROWS:
        if header_rows(lines):
            return Shape.TABLE
        if sum(_LOG_LINE.match(line) is not None for line in lines) >= 0.6 * len(lines):
            return Shape.LOG
    return Shape.TEXT


def header_rows(lines: list[str]) -> int:
    """How many lines are the header of a table; 0 when the lines are no table."""
    if len(lines) < LEAST_ROWS:
        return 0
    if "|" in lines[0] and "|" in lines[1] and _RULE.fullmatch(lines[1][:1_000]):
        return 2
    if set(lines[1].strip()) <= {"-", " ", "+", "="} and len(lines[1].split()) >= 2:
        return 2
    for separator in ("\t", ",", ";", "|"):
        counts = [_unquoted(line, separator) for line in lines[:10]]
        if counts[0] >= 1 and counts.count(counts[0]) >= 0.9 * len(counts) and _cells(lines[0], separator):
            return 1
    columns = [len(_GAP.split(line.strip())) for line in lines[:10]]
    return 1 if columns[0] >= 3 and columns.count(columns[0]) >= 0.7 * len(columns) else 0


def _unquoted(line: str, separator: str) -> int:
    """Separators outside quotation marks."""
    return sum(part.count(separator) for part in line.split('"')[::2])


def _cells(line: str, separator: str) -> bool:
    """Whether the cells are as short as those of a header: sentences have commas too."""
    return all(0 < len(cell.strip()) <= 40 for cell in line.split(separator))


def parse(text: str) -> Json:
    """The object or list that `text` writes down, or None when it is not JSON of such a kind."""
    beginning = text[:200].lstrip()[:1]
    if beginning not in ("{", "[") or len(text) > PARSED_UP_TO:
        return None
    try:
        if len(text) > LARGE:
            return cast("Json", parse_in_steps(text, parse_constant=_refuse))
        return cast("Json", json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):  # not JSON, or nested deeper than is sensible
        return None


def _refuse(word: str) -> NoReturn:
    message = f"{word} is not JSON"
    raise ValueError(message)
