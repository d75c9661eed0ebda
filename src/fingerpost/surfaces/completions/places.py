"""What a path under /v1 leads to."""

from __future__ import annotations

import re
from typing import Final, Literal

from fingerpost.frozen import frozen
from fingerpost.surfaces.completions.faults import CompletionError

_PATH_PATTERN = re.compile(r"/v1(?:/p/(?P<profile>[^/]+))?/(?P<rest>.+)", re.DOTALL)
_KNOWN_PATHS: Final = "There are /v1/chat/completions, /v1/responses and /v1/models."


@frozen
class OpenAIPath:
    """An endpoint, with what its path names."""

    endpoint: Literal["chat", "responses", "models"]
    path: str  # without names that callers make up
    method: Literal["GET", "POST"] = "POST"
    profile: str | None = None
    name: str = ""  # of one model


def parse_path(path: str) -> OpenAIPath:
    """Raises `CompletionError` for a path that is none of ours."""
    # Slashes are cut off here, not in the pattern: it would try every one of very many.
    found = _PATH_PATTERN.fullmatch(path.rstrip("/"))
    if found is None:
        raise _build_not_found(path)
    profile, rest = found["profile"], found["rest"]
    if rest == "chat/completions":
        return OpenAIPath(endpoint="chat", path="/v1/chat/completions", profile=profile)
    if rest == "responses":
        return OpenAIPath(endpoint="responses", path="/v1/responses", profile=profile)
    head, _, name = rest.partition("/")
    if head == "models":
        return OpenAIPath(endpoint="models", path="/v1/models", method="GET", profile=profile, name=name)
    raise _build_not_found(path)


def _build_not_found(path: str) -> CompletionError:
    return CompletionError(404, f"There is nothing at {path[:200]!r}. {_KNOWN_PATHS}", code="not_found")
