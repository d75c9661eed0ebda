"""Detects what a model's server supports, by probing and from normal replies."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from fingerpost.errors import ModelError, ModelRefused
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, ModelReply, ModelRequest, OnText, ResponseSchema
from fingerpost.llm.content import as_mapping, parse_json, parse_structured
from fingerpost.records import JsonObject, Message
from fingerpost.regex import prepare_re
from fingerpost.schemas.validator import load_validator

PROBE_TOKENS: Final = 200
_COMPLETE_FINISH_REASONS: Final = (None, "stop", "tool_calls", "function_call")
_WORD: Final = "fingerpost-7f3a"  # a word that no model writes unless asked
_SCHEMA: Final = ResponseSchema(
    name="probe",
    schema={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [_WORD]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_TOOL_NAME: Final = "note_word"
_TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "Takes note of one word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word"}},
            "required": ["word"],
        },
    },
}


@frozen
class Capabilities:
    """Whether a server enforces a schema, and whether its model calls tools. None: unknown."""

    json_schema: bool | None = None
    tools: bool | None = None

    @property
    def complete(self) -> bool:
        """Whether everything is known."""
        return self.json_schema is not None and self.tools is not None

    def or_else(self, other: Capabilities) -> Capabilities:
        """Return these capabilities with unknown values taken from `other`."""
        return Capabilities(
            json_schema=other.json_schema if self.json_schema is None else self.json_schema,
            tools=other.tools if self.tools is None else self.tools,
        )


async def probe(model: ChatModel) -> Capabilities:
    """Send `model` two small requests. What the replies do not show stays unknown. Never raises."""
    await load_validator()
    schema = await _run_probe(model, _probe_schema)
    return Capabilities(json_schema=schema, tools=await _run_probe(model, _probe_tools))


async def _run_probe(
    model: ChatModel, send_probe: Callable[[ChatModel], Awaitable[bool | None]]
) -> bool | None:
    try:
        return await send_probe(model)
    except ModelRefused:
        return False
    except ModelError:
        return None


def _build_probe(text: str) -> ModelRequest:
    messages = (Message(role="user", text=text),)
    return ModelRequest(messages=messages, temperature=0.0, max_tokens=PROBE_TOKENS)


async def _probe_schema(model: ChatModel) -> bool | None:
    reply = await model.complete(replace(_build_probe("Say hello, in one word."), schema=_SCHEMA))
    if parse_structured(reply.text, _SCHEMA.schema) is not None:
        return True
    return False if is_finished(reply) else None


async def _probe_tools(model: ChatModel) -> bool | None:
    request = _build_probe(f"Call {_TOOL_NAME} with the word hello.")
    reply = await model.complete(replace(request, tools=(_TOOL,), tool_choice="required"))
    if has_called(reply, (_TOOL,)):
        return True
    return False if is_finished(reply) else None


def has_called(reply: ModelReply, tools: tuple[JsonObject, ...]) -> bool:
    """Return whether the reply contains a proper call of one of these tools."""
    names = {as_mapping(tool.get("function")).get("name") for tool in tools}
    written = [as_mapping(as_mapping(call).get("function")).get("name") for call in reply.tool_calls]
    return any(isinstance(name, str) and name in names for name in written)


def is_finished(reply: ModelReply) -> bool:
    """Return whether the reply is complete. A truncated or filtered reply proves nothing."""
    return reply.finish in _COMPLETE_FINISH_REASONS


_TAG: Final = prepare_re(r"<(?P<end>/?)think(?:ing)?>", re.IGNORECASE)
_MAX_TAG_LENGTH: Final = len("</thinking>")
_FENCE: Final = "```"


def find_reasoning_end(text: str) -> re.Match[str] | None:
    """Return the end of the reasoning that `text` begins with, or None."""
    found = _TAG.search(text)
    if found is None or not found["end"]:
        return None
    before, after = text[: found.start()], text[found.end() : found.end() + 1]
    at_an_edge = after in ("", "\n", "\r") or before.endswith("\n")
    is_shown = before.count(_FENCE) % 2 == 1
    return found if at_an_edge and not is_shown else None


def has_leading_reasoning(reply: ModelReply) -> bool:
    """Return whether the reply begins with reasoning and has content after it."""
    found = None if reply.reasoning else find_reasoning_end(reply.text)
    return found is not None and bool(reply.text[found.end() :].strip() or reply.tool_calls)


def split_reasoning(reply: ModelReply) -> ModelReply:
    """Return the reply with its leading reasoning moved to `reasoning`."""
    found = find_reasoning_end(reply.text)
    if found is None or not has_leading_reasoning(reply):
        return reply
    thoughts, answer = reply.text[: found.start()].strip(), reply.text[found.end() :].strip()
    return replace(reply, text=answer, reasoning=thoughts)


class ReasoningFilter:
    """Forwards the text after the leading reasoning of a model that is known to write it."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._held: list[str] | None = []
        self._tail = ""  # the end of the held text, because a tag may arrive in pieces

    def __call__(self, piece: str) -> None:
        if self._held is None:
            self._on_text(piece)
            return
        self._held.append(piece)
        self._tail += piece
        found = _TAG.search(self._tail)
        if found is None or not self._tail[found.end() :].strip():  # the text after it has not arrived yet
            cut = found.start() if found is not None else len(self._tail) - _MAX_TAG_LENGTH
            self._tail = self._tail[max(0, cut) :]
            return
        self._release()

    def end(self) -> None:
        """Release the held text at the end of the reply."""
        if self._held is not None:
            self._release()

    def _release(self) -> None:
        """Forward the text after the reasoning, or all of it if there is no reasoning."""
        assert self._held is not None
        text, self._held = "".join(self._held), None
        found = find_reasoning_end(text)
        answer = text if found is None else text[found.end() :].lstrip()
        if answer := answer or text:
            self._on_text(answer)


MAX_MISSED_CALLS: Final = 3  # consecutive replies without the required call
# Validity of the finding that a model has no tools; the model behind an address may change.
NO_TOOLS_VALID_SECONDS: Final = 86_400.0
_TOOL_WORDS: Final = r"(?:tools|tool[ _-]?(?:use|calls?|calling)|function[ _-]?(?:calls?|calling))"
# Messages of Ollama, vLLM, llama.cpp, OpenRouter and others. A message about one tool, or about tools
# in combination with something else, does not match.
_NO_TOOLS_PATTERN: Final = prepare_re(
    rf"\b(?:(?:does|do) not|doesn't|don't) support {_TOOL_WORDS}\b(?! (?:with|when|while|if|together)\b)"
    rf"|\b{_TOOL_WORDS} (?:is|are) (?:not supported|unsupported)(?! (?:with|when|while|if|together)\b)"
    r"|\btool choice requires --|\btools param requires --"
    rf"|\bno endpoints found that support {_TOOL_WORDS}\b",
    re.IGNORECASE,
)


_STORED_FIELDS: Final = ("json_schema", "tools", "without_since", "thinks_aloud")


@frozen
class CapabilityFindings:
    """Findings about one model. `missed` is kept in memory only; the rest can be stored."""

    json_schema: bool | None = None
    tools: bool | None = None
    without_since: float | None = None  # when it was found not to support tools, in seconds since 1970
    missed: int = 0
    thinks_aloud: bool = False  # whether its latest text began with reasoning

    @classmethod
    def from_capabilities(cls, known: Capabilities, now: float) -> CapabilityFindings:
        """Build findings from a probe."""
        since = now if known.tools is False else None
        return cls(json_schema=known.json_schema, tools=known.tools, without_since=since)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(json_schema=self.json_schema, tools=self.tools)

    def forget_expired(self, now: float) -> CapabilityFindings:
        """Return the findings that are still valid. A time in the future is not."""
        since = self.without_since
        if self.tools is not False or (since is not None and 0 <= now - since < NO_TOOLS_VALID_SECONDS):
            return self
        return replace(self, tools=None, without_since=None, missed=0)

    def update(self, request: ModelRequest, reply: ModelReply, now: float) -> CapabilityFindings:
        """Return the findings after a normal reply.

        A reply that violates its schema shows that the server ignores schemas. After that, a valid reply does
        not prove the opposite, because a model may comply by chance.
        """
        schema = self.json_schema
        if request.schema is not None and schema is not False and not reply.tool_calls and is_finished(reply):
            schema = parse_structured(reply.text, request.schema.schema) is not None
        found = self._update_tools(request, reply, now)
        return replace(found, json_schema=schema, thinks_aloud=self._detect_reasoning(reply))

    def update_after_refusal(
        self, request: ModelRequest, error: ModelRefused, now: float
    ) -> CapabilityFindings:
        """Return the findings after a refusal. A server that says it has no tools is believed at once."""
        if not request.tools or not _NO_TOOLS_PATTERN.search(str(error)):
            return self
        return replace(self, tools=False, without_since=now, missed=0)

    def _detect_reasoning(self, reply: ModelReply) -> bool:
        """Return whether the model writes leading reasoning. A cut reply or only calls change nothing."""
        decides = reply.text.strip() and is_finished(reply)
        return has_leading_reasoning(reply) or (self.thinks_aloud and not decides)

    def _update_tools(self, request: ModelRequest, reply: ModelReply, now: float) -> CapabilityFindings:
        if reply.tool_calls:
            called = bool(request.tools) and has_called(reply, request.tools)
            # A model may write calls although it was given no tools.
            tools = True if called else self.tools or None
            return replace(self, tools=tools, without_since=None, missed=0)
        # A caller's requirement may not make sense for the request, so it does not count.
        required = request.tools and request.tool_choice == "required" and not request.choice_is_callers
        if self.tools is not None or not required or not is_finished(reply):
            return self
        if self.missed + 1 < MAX_MISSED_CALLS:
            return replace(self, missed=self.missed + 1)
        return replace(self, tools=False, without_since=now, missed=0)

    def to_bytes(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in _STORED_FIELDS}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> CapabilityFindings:
        """Read stored findings. Unreadable data gives empty findings."""
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


def _read_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _read_time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
