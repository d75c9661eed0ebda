"""Which media types the caller takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem

EVENT_STREAM_TYPE: Final = "text/event-stream"


def check_accept(headers: Mapping[str, str], operation: ApiOperation) -> None:
    """Raises `ApiProblem` when nothing we could answer with would be taken."""
    offered = (operation.media, *operation.also)
    if not any(accepts_media(headers, media) for media in offered):
        raise ApiProblem(406, "Not in this form", f"This is given as {' or '.join(offered)}.")


def accepts_media(headers: Mapping[str, str], media: str) -> bool:
    """Whether the caller takes this media type; without a word about it they take any."""
    ranges = _parse_accept(headers)
    return not ranges or any(one in ranges for one in (media, f"{media.partition('/')[0]}/*", "*/*"))


def prefers_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether the caller asks for a stream by name."""
    return EVENT_STREAM_TYPE in _parse_accept(headers)


def _parse_accept(headers: Mapping[str, str]) -> frozenset[str]:
    parts = (part.partition(";") for part in headers.get("accept", "").split(","))
    wanted = ((name.strip().lower(), more.replace(" ", "").lower()) for name, _, more in parts)
    return frozenset(name for name, more in wanted if name and more not in {"q=0", "q=0.0"})
