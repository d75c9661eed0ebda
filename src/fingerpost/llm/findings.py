"""What ordinary exchanges show of one model: facts, and what they rest on.

That a model takes no tools is believed slowly, because nothing could show the contrary
any more: tools are not given to it from then on. So it takes several replies in a row,
it is not believed for long, and what looks otherwise ends it at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from fingerpost.errors import ModelRefused
from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.capabilities import Capabilities, has_called, is_finished
from fingerpost.llm.fields import as_mapping, parse_json
from fingerpost.llm.structured import structured
from fingerpost.llm.thoughts import has_leading_reasoning

MAX_MISSED: Final = 3  # replies in a row without the call we required
BELIEVED_SECONDS: Final = 86_400.0  # that a model takes no tools: servers and models behind an address change
_TOOL_WORDS: Final = r"(?:tools|tool[ _-]?(?:use|calls?|calling)|function[ _-]?(?:calls?|calling))"
# As Ollama, vLLM, llama.cpp, OpenRouter and others say it. What is said of one tool or of tools together
# with something else is no such thing.
_NO_TOOLS_PATTERN: Final = re.compile(
    rf"\b(?:(?:does|do) not|doesn't|don't) support {_TOOL_WORDS}\b(?! (?:with|when|while|if|together)\b)"
    rf"|\b{_TOOL_WORDS} (?:is|are) (?:not supported|unsupported)(?! (?:with|when|while|if|together)\b)"
    r"|\btool choice requires --|\btools param requires --"
    rf"|\bno endpoints found that support {_TOOL_WORDS}\b",
    re.IGNORECASE,
)


@frozen
class CapabilityFindings:
    """Of one model. `missed` lasts as long as we run; the rest can be written down."""

    json_schema: bool | None = None
    tools: bool | None = None
    without_since: float | None = None  # when it was found to take no tools, in seconds since 1970
    missed: int = 0
    thinks_aloud: bool = False  # its latest text began with thoughts

    @classmethod
    def from_capabilities(cls, known: Capabilities, now: float) -> CapabilityFindings:
        """As found out on purpose."""
        since = now if known.tools is False else None
        return cls(json_schema=known.json_schema, tools=known.tools, without_since=since)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(json_schema=self.json_schema, tools=self.tools)

    def forget_expired(self, now: float) -> CapabilityFindings:
        """What of it is still believed. A time in the future is that of a clock put right since."""
        since = self.without_since
        if self.tools is not False or (since is not None and 0 <= now - since < BELIEVED_SECONDS):
            return self
        return replace(self, tools=None, without_since=None, missed=0)

    def update(self, request: ModelRequest, reply: ModelReply, now: float) -> CapabilityFindings:
        """What is known after an ordinary exchange.

        A reply outside its schema tells of a server that ignores what it was asked. A good one is no
        proof of the contrary where that was seen once: a good model may have been lucky.
        """
        schema = self.json_schema
        if request.schema is not None and schema is not False and not reply.tool_calls and is_finished(reply):
            schema = structured(reply.text, request.schema.schema) is not None
        found = self._update_tools(request, reply, now)
        return replace(found, json_schema=schema, thinks_aloud=self._detect_reasoning(reply))

    def update_after_refusal(
        self, request: ModelRequest, error: ModelRefused, now: float
    ) -> CapabilityFindings:
        """A server that says itself that it takes no tools is believed at once."""
        if not request.tools or not _NO_TOOLS_PATTERN.search(str(error)):
            return self
        return replace(self, tools=False, without_since=now, missed=0)

    def _detect_reasoning(self, reply: ModelReply) -> bool:
        """A reply that was cut short, or only calls, may not have come to the end of its thoughts."""
        return has_leading_reasoning(reply) or (
            self.thinks_aloud and not (reply.text.strip() and is_finished(reply))
        )

    def _update_tools(self, request: ModelRequest, reply: ModelReply, now: float) -> CapabilityFindings:
        if reply.tool_calls:
            called = bool(request.tools) and has_called(reply, request.tools)
            tools = (
                True if called else self.tools or None
            )  # one that was given none can call them all the same
            return replace(self, tools=tools, without_since=None, missed=0)
        if self.tools is not None or not _requires_call(request) or not is_finished(reply):
            return self
        if self.missed + 1 < MAX_MISSED:
            return replace(self, missed=self.missed + 1)
        return replace(self, tools=False, without_since=now, missed=0)

    def to_bytes(self) -> bytes:
        kept = {
            "json_schema": self.json_schema,
            "tools": self.tools,
            "without_since": self.without_since,
            "thinks_aloud": self.thinks_aloud,
        }
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> CapabilityFindings:
        """What was written; nothing known where that cannot be read."""
        try:
            fields = as_mapping(parse_json(content))
        except ValueError:
            return cls()
        return cls(
            json_schema=_read_bool(fields.get("json_schema")),
            tools=_read_bool(fields.get("tools")),
            without_since=_read_time(fields.get("without_since")),
            thinks_aloud=fields.get("thinks_aloud") is True,
        )


def _requires_call(request: ModelRequest) -> bool:
    """Whether we required a call. What a caller requires may make no sense for what they ask."""
    return bool(request.tools) and request.tool_choice == "required" and not request.choice_is_callers


def _read_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _read_time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
