"""Which media types the caller takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.surfaces.api.operation import Operation, Problem

EVENTS: Final = "text/event-stream"


def accepts(headers: Mapping[str, str], operation: Operation) -> None:
    """Raises `Problem` when nothing we could answer with would be taken."""
    offered = (operation.media, *operation.also)
    if not any(takes(headers, media) for media in offered):
        raise Problem(406, "Not in this form", f"This is given as {' or '.join(offered)}.")


def takes(headers: Mapping[str, str], media: str) -> bool:
    """Whether the caller takes this media type; without a word about it they take any."""
    ranges = _ranges(headers)
    return not ranges or any(one in ranges for one in (media, f"{media.partition('/')[0]}/*", "*/*"))


def prefers_events(headers: Mapping[str, str]) -> bool:
    """Whether the caller asks for a stream by name."""
    return EVENTS in _ranges(headers)


def _ranges(headers: Mapping[str, str]) -> frozenset[str]:
    parts = (part.partition(";") for part in headers.get("accept", "").split(","))
    wanted = ((name.strip().lower(), more.replace(" ", "").lower()) for name, _, more in parts)
    return frozenset(name for name, more in wanted if name and more not in {"q=0", "q=0.0"})
