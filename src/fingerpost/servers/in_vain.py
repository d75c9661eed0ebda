"""Questions that a server can put in the older era alone.

In the newer era a tool asks by its answer. One that asks in the middle of its work, as it could before, fails
there: the libraries servers are made with refuse it, each in its own sentence, all of them with these words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from fingerpost.errors import ToolFailed
from fingerpost.records import Json, JsonObject

LEGACY_VERSION: Final = "2025-11-25"
INVALID_REQUEST: Final = -32600  # what the MCP library answers with
_UNSUPPORTED_PHRASES: Final = "server-initiated requests"
_MAX_TEXT_LENGTH: Final = 1000  # characters: a long text is no such sentence


class ServerRequestUnsupported(ToolFailed):
    """The tool failed because its server could not ask. `result` is what it said of that, if it was a result.

    `again`: the same call, made once more, can be asked about.
    """

    def __init__(self, message: str, *, server: str, code: int, data: object, again: bool) -> None:
        super().__init__(message, server=server, code=code, data=data)
        self.result: JsonObject | None = None
        self.again = again


def is_unsupported_request_failure(failed: JsonObject | ToolFailed) -> bool:
    """Whether this failure is that of a server which wanted to ask something."""
    said = [str(failed)] if isinstance(failed, ToolFailed) else _get_texts(failed)
    return any(_UNSUPPORTED_PHRASES in text[:_MAX_TEXT_LENGTH] for text in said)


def build_unsupported_request(
    server: str, failed: JsonObject | ToolFailed, advice: str, *, again: bool
) -> ServerRequestUnsupported:
    """The same failure, with what helps against it."""
    if isinstance(failed, ToolFailed):
        message = f"{str(failed).rstrip('.')}. {advice}"
        return ServerRequestUnsupported(
            message, server=server, code=failed.code, data=failed.data, again=again
        )
    texts = [*_get_texts(failed), advice]
    error = ServerRequestUnsupported(
        "\n".join(texts), server=server, code=INVALID_REQUEST, data=None, again=again
    )
    content = cast("Sequence[Json]", failed["content"])
    error.result = {**failed, "content": [*content, {"type": "text", "text": advice}]}
    return error


def _get_texts(result: JsonObject) -> list[str]:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return []
    blocks = [block for block in cast("Sequence[Json]", content) if isinstance(block, dict)]
    return [text for block in blocks if isinstance(text := cast("JsonObject", block).get("text"), str)]
