"""What a model's server can really do, found out by probing and from ordinary exchanges."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from fingerpost.errors import ModelError, ModelRefused
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, ModelReply, ModelRequest, OnText, ResponseSchema
from fingerpost.llm.content import as_mapping, parse_json, structured
from fingerpost.records import JsonObject, Message

PROBE_TOKENS: Final = 200
_FINISH_REASONS: Final = (None, "stop", "tool_calls", "function_call")
_WORD: Final = "fingerpost-7f3a"  # nobody says it who is not made to
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
    """Whether a server keeps to a schema, and whether its model calls tools. None: not known."""

    json_schema: bool | None = None
    tools: bool | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to find out."""
        return self.json_schema is not None and self.tools is not None

    def or_else(self, other: Capabilities) -> Capabilities:
        """This, with `other` for what is not known here."""
        return Capabilities(
            json_schema=other.json_schema if self.json_schema is None else self.json_schema,
            tools=other.tools if self.tools is None else self.tools,
        )


async def probe(model: ChatModel) -> Capabilities:
    """Ask `model` two tiny questions. What cannot be told from its answers stays unknown; never raises."""
    return Capabilities(
        json_schema=await _run_probe(model, _probe_schema), tools=await _run_probe(model, _probe_tools)
    )


async def _run_probe(
    model: ChatModel, question: Callable[[ChatModel], Awaitable[bool | None]]
) -> bool | None:
    try:
        return await question(model)
    except ModelRefused:
        return False
    except ModelError:
        return None


async def _probe_schema(model: ChatModel) -> bool | None:
    request = ModelRequest(
        messages=(Message(role="user", text="Say hello, in one word."),),
        temperature=0.0,
        max_tokens=PROBE_TOKENS,
        schema=_SCHEMA,
    )
    reply = await model.complete(request)
    if structured(reply.text, _SCHEMA.schema) is not None:
        return True
    return False if is_finished(reply) else None


async def _probe_tools(model: ChatModel) -> bool | None:
    request = ModelRequest(
        messages=(Message(role="user", text=f"Call {_TOOL_NAME} with the word hello."),),
        temperature=0.0,
        max_tokens=PROBE_TOKENS,
        tools=(_TOOL,),
        tool_choice="required",
    )
    reply = await model.complete(request)
    if has_called(reply, (_TOOL,)):
        return True
    return False if is_finished(reply) else None


def has_called(reply: ModelReply, tools: tuple[JsonObject, ...]) -> bool:
    """Whether one of these tools is called in the way that tools are."""
    names = {as_mapping(tool.get("function")).get("name") for tool in tools}
    written = [as_mapping(as_mapping(call).get("function")).get("name") for call in reply.tool_calls]
    return any(isinstance(name, str) and name in names for name in written)


def is_finished(reply: ModelReply) -> bool:
    """Whether the model said all it wanted: one that was cut off, or stopped by a filter, shows nothing."""
    return reply.finish in _FINISH_REASONS


_TAG: Final = re.compile(r"<(?P<end>/?)think(?:ing)?>", re.IGNORECASE)
_MAX_TAG_LENGTH: Final = len("</thinking>")
_FENCE: Final = "```"


def find_reasoning_end(text: str) -> re.Match[str] | None:
    """The end of thoughts that `text` begins with, if it does."""
    found = _TAG.search(text)
    if found is None or not found["end"]:
        return None
    at_an_edge = text[found.end() : found.end() + 1] in ("", "\n", "\r") or text[: found.start()].endswith(
        "\n"
    )
    is_shown = text.count(_FENCE, 0, found.start()) % 2 == 1
    return found if at_an_edge and not is_shown else None


def has_leading_reasoning(reply: ModelReply) -> bool:
    """Whether the reply begins with thoughts, and has something behind them."""
    found = None if reply.reasoning else find_reasoning_end(reply.text)
    return found is not None and bool(reply.text[found.end() :].strip() or reply.tool_calls)


def split_reasoning(reply: ModelReply) -> ModelReply:
    """The same reply with its thoughts in their own place."""
    found = find_reasoning_end(reply.text)
    if found is None or not has_leading_reasoning(reply):
        return reply
    thoughts, answer = reply.text[: found.start()].strip(), reply.text[found.end() :].strip()
    return replace(reply, text=answer, reasoning=thoughts)


class ReasoningFilter:
    """Passes on what comes behind the thoughts of a model that is known to begin with them."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._held: list[str] | None = []
        self._tail = ""  # the end of what is held: a tag may come in pieces

    def __call__(self, piece: str) -> None:
        if self._held is None:
            self._on_text(piece)
            return
        self._held.append(piece)
        self._tail += piece
        found = _TAG.search(self._tail)
        if found is None or not self._tail[found.end() :].strip():  # what is behind it has not come yet
            cut = found.start() if found is not None else len(self._tail) - _MAX_TAG_LENGTH
            self._tail = self._tail[max(0, cut) :]
            return
        self._release()

    def end(self) -> None:
        """Nothing more will come."""
        if self._held is not None:
            self._release()

    def _release(self) -> None:
        """Of text that begins with no thoughts, nothing is kept back."""
        assert self._held is not None
        text, self._held = "".join(self._held), None
        found = find_reasoning_end(text)
        answer = text if found is None else text[found.end() :].lstrip()
        if answer := answer or text:
            self._on_text(answer)


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
