"""What a path under /v1 leads to."""

from __future__ import annotations

import re
from typing import Final, Literal

from fingerpost.frozen import frozen
from fingerpost.surfaces.completions.faults import ApiFault

_PATH = re.compile(r"/v1(?:/p/(?P<profile>[^/]+))?/(?P<rest>.+)", re.DOTALL)
_KNOWN: Final = "There are /v1/chat/completions, /v1/responses and /v1/models."


@frozen
class Place:
    """An endpoint, with what its path names."""

    what: Literal["chat", "responses", "models"]
    path: str  # without names that callers make up
    method: Literal["GET", "POST"] = "POST"
    profile: str | None = None
    name: str = ""  # of one model


def place_of(path: str) -> Place:
    """Raises `ApiFault` for a path that is none of ours."""
    # Slashes are cut off here, not in the pattern: it would try every one of very many.
    found = _PATH.fullmatch(path.rstrip("/"))
    if found is None:
        raise _nothing(path)
    profile, rest = found["profile"], found["rest"]
    if rest == "chat/completions":
        return Place(what="chat", path="/v1/chat/completions", profile=profile)
    if rest == "responses":
        return Place(what="responses", path="/v1/responses", profile=profile)
    head, _, name = rest.partition("/")
    if head == "models":
        return Place(what="models", path="/v1/models", method="GET", profile=profile, name=name)
    raise _nothing(path)


def _nothing(path: str) -> ApiFault:
    return ApiFault(404, f"There is nothing at {path[:200]!r}. {_KNOWN}", code="not_found")
