"""A chart asked for in words: `a bar chart of fruit sold: apples 3, pears 5 and plums 2`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fingerpost.builtin.assets.charts.records import ChartType
from fingerpost.records import Json

LONGEST: Final = 20_000
_TYPES: Final[Mapping[ChartType, re.Pattern[str]]] = {
    "pie": re.compile(r"\b(pie|donut|doughnut|shares? of)\b", re.IGNORECASE),
    "scatter": re.compile(r"\b(scatter|correlation)", re.IGNORECASE),
    "line": re.compile(r"\b(line (chart|graph|plot)|trend|time series|over time)\b", re.IGNORECASE),
    "bar": re.compile(r"\b(bars?|columns?|histogram)\b", re.IGNORECASE),
}
_NUMBER: Final = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
# `label: 3`, `label = 3`, `label (3)`, `label 3 km`; or `3 apples`.
_LABEL_FIRST: Final = re.compile(
    rf"^(?P<label>.*?[^\s:=(–-])\s*(?:[:=(–-]|\s)\s*[$€£]?(?P<value>{_NUMBER})\s*(?:%|[^\W\d]{{1,12}})?\)?[.!]?$"
)
_VALUE_FIRST: Final = re.compile(rf"^[$€£]?(?P<value>{_NUMBER})\s*%?\s+(?P<label>[^\d]+?)[.!]?$")
_LONGEST_PART: Final = 160
_POINT: Final = re.compile(rf"\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")
_SUBJECT: Final = re.compile(
    r"\b(?:chart|graph|plot|diagram|histogram|pie)\b(?:\s+(?:of|showing|for|about|with))\s+(?P<what>[^:\n]{2,90})"
)
_WISH: Final = re.compile(
    r"^[^\n\d]{0,80}?\b(?:chart|graph|plot|histogram|diagram)\b\s*(?:of|for|with|showing|about)?\s*",
    re.IGNORECASE,
)
_LEADING: Final = re.compile(r"^(?:and|the|a|an|of|for|with|showing|data|values?)\b\s*", re.IGNORECASE)


def type_in(prompt: str) -> ChartType | None:
    """The kind of chart the words ask for."""
    return next((kind for kind, words in _TYPES.items() if words.search(prompt)), None)


def pairs_in(text: str) -> list[Json]:
    """Labels with values, or points, as far as the words hold some."""
    text = text[:LONGEST]
    points: list[Json] = [[_value(x), _value(y)] for x, y in _POINT.findall(text)]
    if len(points) > 1:
        return points
    body = text.partition(":")[2] if _is_introduced(text) else _WISH.sub("", text, count=1)
    found: list[Json] = []
    for part in re.split(r"[;\n]|,(?!\d{3}\b)|\band\b", body):
        said = part.strip()[-_LONGEST_PART:]
        match = _LABEL_FIRST.match(said) or _VALUE_FIRST.match(said)
        if match is not None and (label := _cleaned(match["label"])):
            found.append([label, _value(match["value"])])
    return found if len(found) > 1 or (found and ":" in text) else []


def title_in(prompt: str) -> str:
    """What the chart is of: the words before its values."""
    match = _SUBJECT.search(prompt[:LONGEST])
    if match is None:
        return ""
    what = match["what"].strip()
    if re.search(rf"\s{_NUMBER}", what):  # the values themselves
        return ""
    return what[:1].upper() + what[1:].rstrip(" .,")


def _is_introduced(text: str) -> bool:
    """Whether a colon stands between what is wanted and the values."""
    head, _, rest = text.partition(":")
    wanted = re.search(r"\b(chart|graph|plot|diagram|pie|histogram|data|values)\b|\n", head, re.IGNORECASE)
    return bool(wanted) and not re.search(_NUMBER, head) and len(re.findall(_NUMBER, rest)) > 1


def _cleaned(label: str) -> str:
    label = label.strip().strip("\"'").strip()
    while (shorter := _LEADING.sub("", label)) != label:
        label = shorter
    return label.strip(" -–*•").strip()


def _value(text: str) -> float:
    return float(text.replace(",", ""))
