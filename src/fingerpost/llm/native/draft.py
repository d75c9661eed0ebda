"""A reply while it is being read: pieces of text and of calls, tokens, why it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from fingerpost.errors import ModelRefused, ModelReplyInvalid
from fingerpost.llm.base import ModelReply, ModelUsage, OnText
from fingerpost.llm.fields import MAX_REPLY_CALLS
from fingerpost.records import Json, JsonObject, check_json, create_id, to_valid_text
from fingerpost.records.json import has_lone_surrogate

FILTERED: Final = "content_filter"
CUT_SHORT: Final = "length"
GARBLED: Final = "malformed"


@dataclass(slots=True, kw_only=True)
class _NativeOpenCall:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])
    signature: str | None = None

    def build_call(self) -> JsonObject:
        """The call in the OpenAI format, which everybody after us reads."""
        function: JsonObject = {"name": self.name, "arguments": "".join(self.arguments) or "{}"}
        call: dict[str, Json] = {"id": self.id, "type": "function", "function": function}
        if self.signature:
            call["extra_content"] = {"google": {"thought_signature": self.signature}}
        return call


@dataclass(slots=True)
class ReplyDraft:
    """One try at a reply. `told` once text was handed over: from then on nothing may be said again."""

    asked: str  # the model that was asked
    on_text: OnText | None = None
    limit: int = 4 * 1024 * 1024  # characters
    model: str = ""
    finish: str | None = None
    ended: bool = False
    thought: bool = False  # it thought aloud, within the same limit on tokens
    told: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    _size: int = 0
    _pieces: list[str] = field(default_factory=list[str])
    _calls: dict[object, _NativeOpenCall] = field(default_factory=dict[object, "_NativeOpenCall"])

    def add_text(self, value: object) -> None:
        if not isinstance(value, str) or not value:
            return
        piece = self._hold_text(value)
        self._pieces.append(piece)
        if self.on_text is not None:
            self.told = True
            self.on_text(piece)

    def open_call(self, key: object, name: object, *, id: object = None, signature: object = None) -> None:
        """A call begins; its arguments follow. Without a name it is none."""
        if not isinstance(name, str) or not name or len(self._calls) >= MAX_REPLY_CALLS:
            return
        identifier = id if isinstance(id, str) and id else create_id("call")
        mark = signature if isinstance(signature, str) else None
        self._calls[key] = _NativeOpenCall(id=identifier, name=to_valid_text(name), signature=mark)

    def add_arguments(self, key: object, value: object) -> None:
        """More of a call's arguments: a piece of JSON text, or the whole of them."""
        call = self._calls.get(key)
        if call is None:
            return
        if isinstance(value, str):
            call.arguments.append(self._hold_text(value))
        elif isinstance(value, Mapping) and value and check_json(cast("object", value)) is None:
            call.arguments.append(self._hold_text(json.dumps(value, ensure_ascii=False)))

    def _hold_text(self, text: str) -> str:
        """The text, fit to be kept, as long as there is not too much of it."""
        self._size += len(text)
        if self._size > self.limit:
            message = f"{self.asked} answered with more than {self.limit:,} characters"
            raise ModelReplyInvalid(message, model=self.asked, hint="Set a limit on its answers.")
        return to_valid_text(text) if has_lone_surrogate(text) else text

    @property
    def call_count(self) -> int:
        return len(self._calls)

    @property
    def is_starved(self) -> bool:
        """Whether thinking used up what was meant for the answer, and it can still be asked again."""
        return self.finish == CUT_SHORT and self.thought and not self.told

    def build_reply(self) -> ModelReply:
        """The whole. A model that said nothing because it would not, or could not, did not answer."""
        text = "".join(self._pieces)
        if not text and not self._calls:
            self._explain_silence()
        return ModelReply(
            text=text,
            model=self.model or self.asked,
            usage=self._build_usage(),
            finish=self.finish,
            tool_calls=tuple(call.build_call() for call in self._calls.values()),
        )

    def _explain_silence(self) -> None:
        if self.finish == FILTERED:
            message = f"{self.asked} would not answer this"
            raise ModelRefused(message, model=self.asked, hint="Put the request in other words.")
        if self.finish == GARBLED:
            message = f"{self.asked} wrote a tool call that its own server could not read"
            raise ModelReplyInvalid(message, model=self.asked, hint="Ask again, or choose another model.")

    def _build_usage(self) -> ModelUsage | None:
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return ModelUsage(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens)


def parse_token_count(value: object) -> int | None:
    """A number of tokens, or None where it is none."""
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return cast("int", value) if counts else None
