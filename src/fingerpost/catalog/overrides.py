"""What a person wrote about tools, by pattern.

A pattern is compared with the whole key (`server/tool`); `*`, `?` and `[…]`
mean what they mean in a shell, and capitals matter. Overrides are read from
first to last and each field is taken from the last one that sets it: general
rules come first in the file, exceptions after them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fingerpost.frozen import frozen
from fingerpost.records import Instructions, Intelligence, Known, Source
from fingerpost.settings.model import ToolOverride

T = TypeVar("T")


@frozen(kw_only=False)
class WrittenOverride:
    """All that is written about one tool, and which pattern each field comes from."""

    fields: ToolOverride
    patterns: dict[str, str]

    def get_reason(self, field: str) -> str:
        return f"written for {self.patterns[field]!r}"

    @property
    def instructions(self) -> Instructions:
        """When to use the tool and when not, as far as it is written."""
        own = self.fields
        return Instructions(
            purpose=own.purpose or "",
            when=own.when or (),
            when_not=own.when_not or (),
            examples=own.examples or (),
        )


class Overrides:
    """The written overrides, ready to be asked about a key."""

    def __init__(self, overrides: Sequence[ToolOverride]) -> None:
        self._rules: list[tuple[Callable[[str], object], ToolOverride]] = [
            (re.compile(fnmatch.translate(item.match)).match, item) for item in overrides
        ]

    def find(self, key: str) -> WrittenOverride | None:
        """What is written about this tool, or None."""
        values: dict[str, Any] = {}
        patterns: dict[str, str] = {}
        for matches, item in self._rules:
            if not matches(key):
                continue
            for field in item.model_fields_set - {"match"}:
                value = getattr(item, field)
                if value is not None:
                    values[field] = value
                    patterns[field] = item.match
        if not values:
            return None
        return WrittenOverride(ToolOverride.model_construct(match=key, **values), patterns)

    def get_pattern(self, key: str, field: str) -> str:
        """Which entry says this about the tool; the tool's own key where none does."""
        written = self.find(key)
        return key if written is None else written.patterns.get(field, key)


def apply_override(base: Intelligence, written: ToolOverride, reason: Callable[[str], str]) -> Intelligence:
    """`base` with every field that is written replaced."""

    def over(known: Known[T], field: str, value: T | None) -> Known[T]:
        return known if value is None else Known(value, Source.WRITTEN, reason(field))

    latency, response, signals = base.latency, base.response, base.signals
    return Intelligence(
        category=over(base.category, "category", written.category),
        priority=over(base.priority, "priority", written.priority),
        hierarchy=over(base.hierarchy, "hierarchy", written.hierarchy),
        conflicts=over(base.conflicts, "conflicts", written.conflicts),
        latency=type(latency)(
            typical=over(latency.typical, "typical_ms", written.typical_ms),
            timeout=over(latency.timeout, "timeout_ms", written.timeout_ms),
            feedback_delay=over(latency.feedback_delay, "feedback_delay_ms", written.feedback_delay_ms),
        ),
        response=type(response)(
            typical_tokens=over(response.typical_tokens, "typical_tokens", written.typical_tokens),
            max_tokens=over(response.max_tokens, "max_tokens", written.max_tokens),
            structured=over(response.structured, "structured", written.structured),
            needs_summary=over(response.needs_summary, "needs_summary", written.needs_summary),
        ),
        signals=type(signals)(
            keywords=over(signals.keywords, "keywords", written.keywords),
            weight=over(signals.weight, "weight", written.weight),
            exclusive_intent=over(signals.exclusive_intent, "exclusive_intent", written.exclusive_intent),
        ),
        parameters=base.parameters,
    )
