"""Parsing of /v1/chat/completions bodies: messages, tools and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Message
from fingerpost.surfaces.openai.errors import CompletionError, get_fields

MAX_MESSAGES: Final = 5000
MAX_PARTS: Final = 1000
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_PART_KINDS: Final = ("text", "image_url", "input_audio", "file", "refusal")


@frozen
class ChatConversation:
    """A conversation split at the request: the messages before it, and those since."""

    request: Message
    history: tuple[Message, ...] = ()
    since: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.history, self.request, *self.since)

    @property
    def is_bare(self) -> bool:
        """Whether the request is the only message besides system and developer messages."""
        return not self.since and all(message.role in ("system", "developer") for message in self.history)

    @classmethod
    def from_messages(cls, messages: Sequence[Message]) -> ChatConversation:
        """Split at the last user message, which is the request. Raises `CompletionError` if there is none."""
        at = _find_last(
            messages, lambda message: message.role == "user" and bool(message.text or message.parts)
        )
        if at is None:
            at = _find_last(messages, lambda message: message.role != "tool" and bool(message.text))
        if at is None:
            raise CompletionError(400, "No message contains text.", "messages")
        return cls(request=messages[at], history=tuple(messages[:at]), since=tuple(messages[at + 1 :]))


def parse_messages(value: object) -> tuple[Message, ...]:
    """Parse messages of the chat API. Raises `CompletionError` that names the invalid one."""
    if not isinstance(value, list) or not value:
        raise CompletionError(400, "`messages` must be a list with at least one message.", "messages")
    entries = cast("list[object]", value)
    if len(entries) > MAX_MESSAGES:
        raise CompletionError(400, f"A request has at most {MAX_MESSAGES} messages.", "messages")
    read = tuple(_parse_message(entry, f"messages[{at}]") for at, entry in enumerate(entries))
    check_order(read)
    return read


def _find_last(messages: Sequence[Message], predicate: Callable[[Message], bool]) -> int | None:
    return next((at for at in range(len(messages) - 1, -1, -1) if predicate(messages[at])), None)


def _parse_message(entry: object, where: str) -> Message:
    if not isinstance(entry, Mapping):
        raise CompletionError(400, "A message is an object with a role and content.", where)
    fields = cast("Mapping[str, object]", entry)
    role = fields.get("role")
    if role == "function" or fields.get("function_call"):
        raise CompletionError(
            400, "Functions are the old form of tools: send `tools`, and results with the role `tool`.", where
        )
    if role not in _ROLES:
        raise CompletionError(400, f"The role of a message is one of {', '.join(_ROLES)}.", f"{where}.role")
    if fields.get("audio") is not None:
        raise CompletionError(400, "Audio answers cannot be continued here.", f"{where}.audio")
    text, parts = _parse_content(fields, where, required=role not in ("assistant",))
    if role == "tool":
        call = fields.get("tool_call_id")
        if not isinstance(call, str) or not call:
            raise CompletionError(
                400, "A tool message needs `tool_call_id`: the call it answers.", f"{where}.tool_call_id"
            )
        return Message(role=role, text=text, tool_call_id=call, parts=parts)
    calls = parse_tool_calls(fields.get("tool_calls"), f"{where}.tool_calls") if role == "assistant" else ()
    return Message(role=role, text=text, tool_calls=calls, parts=parts)


def _parse_content(
    fields: Mapping[str, object], where: str, *, required: bool
) -> tuple[str, tuple[JsonObject, ...]]:
    """Return the text, and the parts if there is more than text."""
    content = fields.get("content")
    if content is not None:
        return parse_parts(content, f"{where}.content", _parse_part)
    refusal = fields.get("refusal")
    if required:
        raise CompletionError(400, "This message has no content.", f"{where}.content")
    return (refusal if isinstance(refusal, str) else ""), ()


def parse_parts(
    content: object, where: str, parse_part: Callable[[object, str], JsonObject]
) -> tuple[str, tuple[JsonObject, ...]]:
    """Return the text of a content, and its parts if there is more than text."""
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise CompletionError(400, "Content is a text or a list of parts.", where)
    parts = cast("list[object]", content)
    if len(parts) > MAX_PARTS:
        raise CompletionError(400, f"A message has at most {MAX_PARTS} parts.", where)
    read = [parse_part(part, f"{where}[{at}]") for at, part in enumerate(parts)]
    words = [str(part[str(part["type"])]) for part in read if part["type"] in ("text", "refusal")]
    plain = all(part["type"] == "text" for part in read)
    return "\n".join(words), () if plain else tuple(read)


def _parse_part(part: object, where: str) -> JsonObject:
    if not isinstance(part, Mapping):
        raise CompletionError(400, "A part of a message is an object with a type.", where)
    fields = cast("JsonObject", part)
    kind = fields.get("type")
    if kind not in _PART_KINDS:
        raise CompletionError(400, f"A part is one of {', '.join(_PART_KINDS)}.", f"{where}.type")
    held = fields.get(str(kind))
    if kind in ("text", "refusal"):
        if not isinstance(held, str):
            raise CompletionError(400, "This part contains no text.", f"{where}.{kind}")
    elif not isinstance(held, Mapping):
        raise CompletionError(400, f"This part holds no object {kind!r}.", f"{where}.{kind}")
    return fields


def parse_tool_calls(value: object, where: str) -> tuple[JsonObject, ...]:
    """Parse calls of an assistant, each with an id, a name and arguments as text."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise CompletionError(400, "`tool_calls` is a list.", where)
    return tuple(
        _parse_tool_call(call, f"{where}[{at}]") for at, call in enumerate(cast("list[object]", value))
    )


def _parse_tool_call(call: object, where: str) -> JsonObject:
    fields = get_fields(call)
    function = fields.get("function")
    named = get_fields(function)
    if fields.get("type", "function") != "function" or not named:
        raise CompletionError(400, "A call is an object of type `function`.", where)
    call_id, name, arguments = fields.get("id"), named.get("name"), named.get("arguments", "{}")
    if not isinstance(call_id, str) or not call_id:
        raise CompletionError(400, "A call has an id, by which its result names it.", f"{where}.id")
    if not isinstance(name, str) or not name or not isinstance(arguments, str):
        raise CompletionError(400, "A call has a name, and arguments as a text of JSON.", f"{where}.function")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def check_order(messages: Sequence[Message]) -> None:
    """Raise `CompletionError` unless every result follows its call. Models reject any other order."""
    call_ids: set[str] = set()
    for at, message in enumerate(messages):
        call_ids.update(str(call["id"]) for call in message.tool_calls)
        if message.tool_call_id is not None and message.tool_call_id not in call_ids:
            raise CompletionError(
                400,
                "This result answers no call of an assistant's message before it.",
                f"messages[{at}].tool_call_id",
            )


MAX_TOOLS: Final = 1024
MAX_OPTIONS: Final = 100
MAX_MODEL_NAME_LENGTH: Final = 300

_TOOL_CHOICES: Final = ("none", "auto", "required")
_OWN_CHAT_FIELDS: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "fingerpost"}
    | {"n", "logprobs", "top_logprobs", "modalities", "audio", "functions", "function_call"}
)
# Options of client libraries. If forwarded, they would change requests that contain our key.
_FORBIDDEN_OPTIONS: Final = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})


@frozen
class ChatRequest:
    """A parsed request of either API."""

    model: str  # as sent
    conversation: ChatConversation
    tools: tuple[JsonObject, ...] = ()
    tool_choice: Json = None
    options: JsonObject = field(default_factory=dict[str, Json])
    stream: bool = False
    include_usage: bool = False
    request_options: object = None  # the field `fingerpost`, not parsed
    echo: JsonObject = field(default_factory=dict[str, Json])  # repeated in the answer


def parse_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Parse the body. Raises `CompletionError` with the `param` that is invalid or not supported."""
    _check_shape(body)
    tools = parse_tools(body.get("tools"))
    stream = parse_flag(body, "stream")
    return ChatRequest(
        model=parse_model(body),
        conversation=ChatConversation.from_messages(parse_messages(body.get("messages"))),
        tools=tools,
        tool_choice=_parse_tool_choice(body.get("tool_choice"), tools),
        options=get_model_options(body, _OWN_CHAT_FIELDS),
        stream=stream,
        include_usage=_parse_include_usage(body.get("stream_options"), stream),
        request_options=body.get("fingerpost"),
    )


def parse_model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model.isprintable() or not 0 < len(model) <= MAX_MODEL_NAME_LENGTH:
        raise CompletionError(
            400, "`model` names the model: `fingerpost` is the one configured here.", "model"
        )
    return model


def parse_flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise CompletionError(400, f"`{name}` is true or false.", name)


def get_model_options(body: Mapping[str, Any], own_fields: frozenset[str]) -> JsonObject:
    """Return all other fields unchanged, for the model."""
    options = {name: value for name, value in body.items() if name not in own_fields and value is not None}
    if wrong := sorted(_FORBIDDEN_OPTIONS.intersection(options)):
        raise CompletionError(400, f"`{wrong[0]}` belongs to the client, not into the request.", wrong[0])
    if len(options) > MAX_OPTIONS:
        raise CompletionError(400, f"A request has at most {MAX_OPTIONS} options.")
    return options


def _check_shape(body: Mapping[str, Any]) -> None:
    """Raise `CompletionError` for options that would change the form of the answer and are not supported."""
    if body.get("functions") is not None or body.get("function_call") is not None:
        name = "functions" if body.get("functions") is not None else "function_call"
        raise CompletionError(
            400, "Functions are the old form of tools: send `tools` and `tool_choice`.", name
        )
    if body.get("n") not in (None, 1):
        raise CompletionError(400, "`n` must be 1: tools would run for each answer.", "n")
    if body.get("logprobs") or body.get("top_logprobs") is not None:
        name = "logprobs" if body.get("logprobs") else "top_logprobs"
        raise CompletionError(
            400, "Log probabilities are not available: an answer can come from several models.", name
        )
    if body.get("audio") is not None:
        raise CompletionError(400, "Only text answers are supported.", "audio")
    modalities: object = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        raise CompletionError(400, 'Answers are text here: `modalities` can only be ["text"].', "modalities")


def get_tool_entries(value: object) -> list[object]:
    """Return the caller's own tools, not parsed. Raises `CompletionError`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise CompletionError(400, "`tools` is a list.", "tools")
    tools = cast("list[object]", value)
    if len(tools) > MAX_TOOLS:
        raise CompletionError(400, f"A request has at most {MAX_TOOLS} tools.", "tools")
    return tools


def parse_tools(value: object) -> tuple[JsonObject, ...]:
    """Return the caller's own tools unchanged after checking them."""
    tools = get_tool_entries(value)
    names: set[str] = set()
    for at, tool in enumerate(tools):
        name = _parse_tool_name(tool, f"tools[{at}]")
        if name in names:
            raise CompletionError(400, f"Two tools are called {name[:60]!r}.", f"tools[{at}].function.name")
        names.add(name)
    return cast("tuple[JsonObject, ...]", tuple(tools))


def _parse_tool_name(tool: object, where: str) -> str:
    fields = get_fields(tool)
    if fields.get("type") != "function":
        raise CompletionError(400, "A tool is of type `function` here.", f"{where}.type")
    function = fields.get("function")
    name = get_fields(function).get("name")
    if not isinstance(name, str) or not name:
        raise CompletionError(400, "A tool has a function with a name.", f"{where}.function.name")
    return name


def get_tool_names(tools: tuple[JsonObject, ...]) -> set[str]:
    return {str(cast("Mapping[str, Json]", tool["function"])["name"]) for tool in tools}


def _parse_tool_choice(value: object, tools: tuple[JsonObject, ...]) -> Json:
    if value is None or value in _TOOL_CHOICES:
        return cast("Json", value)
    fields = get_fields(value)
    function = get_fields(fields.get("function"))
    if fields.get("type") != "function" or not function:
        choices = ", ".join(_TOOL_CHOICES)
        raise CompletionError(
            400, f"`tool_choice` is {choices}, or names a function of `tools`.", "tool_choice"
        )
    name = function.get("name")
    if not isinstance(name, str) or name not in get_tool_names(tools):
        raise CompletionError(400, f"No tool of yours is called {name!r:.60}.", "tool_choice.function.name")
    return cast("Json", value)


def _parse_include_usage(value: object, stream: bool) -> bool:
    if value is not None and not stream:
        raise CompletionError(400, "`stream_options` goes only with `stream`.", "stream_options")
    return get_fields(value).get("include_usage") is True
