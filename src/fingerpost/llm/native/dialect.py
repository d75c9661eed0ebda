"""What differs between the two APIs; everything else is `NativeChat`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelRequest
from fingerpost.llm.native.draft import ReplyDraft
from fingerpost.records import Json


@frozen
class NativeRequest:
    """A request, and what was learned about the model it goes to."""

    request: ModelRequest
    model: str
    without: Collection[str] = ()  # options it has refused
    room: int = 0  # tokens it needs beyond the answer, to think
    streamed: bool = False


class NativeDialect(Protocol):
    """One API: where to ask, how, and how to read what comes."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Where a key for the vendor itself may stand in the environment."""
        ...

    @property
    def options(self) -> Mapping[str, re.Pattern[str]]:
        """What a request means the same without, and the words by which a refusal names it."""
        ...

    def build_url(self, base_url: str | None, model: str, *, streamed: bool) -> str: ...

    def build_headers(self, key: str | None, without: Collection[str]) -> dict[str, str]: ...

    def build_body(self, native_request: NativeRequest) -> dict[str, Json]: ...

    def read_reply(self, draft: ReplyDraft, body: Mapping[str, Any]) -> bool:
        """Take in a whole reply. False: it is none."""
        ...

    def read_event(self, draft: ReplyDraft, event: Mapping[str, Any]) -> None:
        """Take in one event of a streamed reply."""
        ...
