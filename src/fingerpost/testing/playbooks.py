"""A journey as a short text that two runs of the same request have in common.

Ids, times and token counts are taken out; everything that was decided stays, so that a
test can hold the whole of it beside what it expects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from fingerpost.events import Event
from fingerpost.router import Route

_ID: Final = re.compile(r"\b(pkt|cal|apr|evt|gnt|ses)_[0-9A-Za-z]+")
_TIME: Final = re.compile(r"\b\d+(?:\.\d+)? (ms|s)\b")
_TOKENS: Final = re.compile(r"\b\d+(?:\+\d+)? tokens\b")


def playbook(route: Route | Iterable[Event], *, without: Collection[str] = ()) -> str:
    """One line per event, `kind: summary`; kinds in `without` are left out."""
    events = route.events if isinstance(route, Route) else route
    lines = (
        f"{event.kind}: {remove_variable_parts(event.summary())}".rstrip(": ")
        for event in events
        if event.kind not in without
    )
    return "\n".join(lines)


def remove_variable_parts(text: str) -> str:
    """`text` without what differs from run to run."""
    text = _ID.sub(r"\1_…", " ".join(text.split()))
    return _TOKENS.sub("… tokens", _TIME.sub(r"… \1", text))
