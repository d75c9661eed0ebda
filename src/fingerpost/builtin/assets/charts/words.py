"""A chart asked for in words: `a bar chart of fruit sold: apples 3, pears 5 and plums 2`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fingerpost.builtin.assets.charts.records import ChartType
from fingerpost.records import Json

MAX_PROMPT_LENGTH: Final = 20_000
_TYPE_PATTERNS: Final[Mapping[ChartType, re.Pattern[str]]] = {
    "pie": re.compile(r"\b(pie|donut|doughnut|shares? of)\b", re.IGNORECASE),
    "scatter": re.compile(r"\b(scatter|correlation)", re.IGNORECASE),
    "line": re.compile(r"\b(line (chart|graph|plot)|trend|time series|over time)\b", re.IGNORECASE),
    "bar": re.compile(r"\b(bars?|columns?|histogram)\b", re.IGNORECASE),
}
_NUMBER_SOURCE: Final = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
# `label: 3`, `label = 3`, `label (3)`, `label 3 km`; or `3 apples`.
_LABEL_FIRST_PATTERN: Final = re.compile(
    rf"^(?P<label>.*?[^\s:=(–-])\s*(?:[:=(–-]|\s)\s*[$€£]?(?P<value>{_NUMBER_SOURCE})\s*(?:%|[^\W\d]{{1,12}})?\)?[.!]?$"
)
_VALUE_FIRST_PATTERN: Final = re.compile(
    rf"^[$€£]?(?P<value>{_NUMBER_SOURCE})\s*%?\s+(?P<label>[^\d]+?)[.!]?$"
)
_MAX_PART_LENGTH: Final = 160
_POINT_PATTERN: Final = re.compile(rf"\(\s*({_NUMBER_SOURCE})\s*,\s*({_NUMBER_SOURCE})\s*\)")
_SUBJECT_PATTERN: Final = re.compile(
    r"\b(?:chart|graph|plot|diagram|histogram|pie)\b(?:\s+(?:of|showing|for|about|with))\s+(?P<what>[^:\n]{2,90})"
)
_REQUEST_PATTERN: Final = re.compile(
    r"^[^\n\d]{0,80}?\b(?:chart|graph|plot|histogram|diagram)\b\s*(?:of|for|with|showing|about)?\s*",
    re.IGNORECASE,
)
_LEADING_PATTERN: Final = re.compile(
    r"^(?:and|the|a|an|of|for|with|showing|data|values?)\b\s*", re.IGNORECASE
)


def find_chart_type(prompt: str) -> ChartType | None:
    """The kind of chart the words ask for."""
    return next((kind for kind, words in _TYPE_PATTERNS.items() if words.search(prompt)), None)


def find_pairs(text: str) -> list[Json]:
    """Labels with values, or points, as far as the words hold some."""
    text = text[:MAX_PROMPT_LENGTH]
    points: list[Json] = [
        [_parse_prompt_value(x), _parse_prompt_value(y)] for x, y in _POINT_PATTERN.findall(text)
    ]
    if len(points) > 1:
        return points
    body = text.partition(":")[2] if _is_introduced(text) else _REQUEST_PATTERN.sub("", text, count=1)
    found: list[Json] = []
    for part in re.split(r"[;\n]|,(?!\d{3}\b)|\band\b", body):
        said = part.strip()[-_MAX_PART_LENGTH:]
        match = _LABEL_FIRST_PATTERN.match(said) or _VALUE_FIRST_PATTERN.match(said)
        if match is not None and (label := _clean_label(match["label"])):
            found.append([label, _parse_prompt_value(match["value"])])
    return found if len(found) > 1 or (found and ":" in text) else []


def find_title(prompt: str) -> str:
    """What the chart is of: the words before its values."""
    match = _SUBJECT_PATTERN.search(prompt[:MAX_PROMPT_LENGTH])
    if match is None:
        return ""
    what = match["what"].strip()
    if re.search(rf"\s{_NUMBER_SOURCE}", what):  # the values themselves
        return ""
    return what[:1].upper() + what[1:].rstrip(" .,")


def _is_introduced(text: str) -> bool:
    """Whether a colon stands between what is wanted and the values."""
    head, _, rest = text.partition(":")
    wanted = re.search(r"\b(chart|graph|plot|diagram|pie|histogram|data|values)\b|\n", head, re.IGNORECASE)
    return bool(wanted) and not re.search(_NUMBER_SOURCE, head) and len(re.findall(_NUMBER_SOURCE, rest)) > 1


def _clean_label(label: str) -> str:
    label = label.strip().strip("\"'").strip()
    while (shorter := _LEADING_PATTERN.sub("", label)) != label:
        label = shorter
    return label.strip(" -–*•").strip()


def _parse_prompt_value(text: str) -> float:
    return float(text.replace(",", ""))
