"""A body of /v1/chat/completions, read: what is asked, with which tools, and how the answer is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import get_fields
from fingerpost.surfaces.completions.faults import CompletionError
from fingerpost.surfaces.completions.messages import ChatConversation, parse_messages, split_conversation

MAX_TOOLS: Final = 1024
MAX_OPTIONS: Final = 100
MAX_TOOL_NAME_LENGTH: Final = 300

_TOOL_CHOICES: Final = ("none", "auto", "required")
_OWN_CHAT_FIELDS: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "fingerpost"}
    | {"n", "logprobs", "top_logprobs", "modalities", "audio", "functions", "function_call"}
)
# Of client libraries, not of the API: passed on they would change requests that carry our key.
_FORBIDDEN_OPTIONS: Final = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})


@frozen
class ChatRequest:
    """What a caller wants to have answered, in whichever API they asked it."""

    model: str  # as they wrote it
    conversation: ChatConversation
    tools: tuple[JsonObject, ...] = ()
    tool_choice: Json = None
    options: JsonObject = field(default_factory=dict[str, Json])
    stream: bool = False
    include_usage: bool = False
    request_options: object = None  # the field `fingerpost`, unread
    echo: JsonObject = field(default_factory=dict[str, Json])  # said again in the answer


def parse_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Raises `CompletionError` naming the `param` that is wrong or cannot be had."""
    _check_shape(body)
    tools = parse_tools(body.get("tools"))
    stream = parse_flag(body, "stream")
    return ChatRequest(
        model=parse_model(body),
        conversation=split_conversation(parse_messages(body.get("messages"))),
        tools=tools,
        tool_choice=_parse_tool_choice(body.get("tool_choice"), tools),
        options=get_model_options(body, _OWN_CHAT_FIELDS),
        stream=stream,
        include_usage=_parse_include_usage(body.get("stream_options"), stream),
        request_options=body.get("fingerpost"),
    )


def parse_model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model.isprintable() or not 0 < len(model) <= MAX_TOOL_NAME_LENGTH:
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
    """Everything else: for the model that answers, as the caller wrote it."""
    options = {name: value for name, value in body.items() if name not in own_fields and value is not None}
    if wrong := sorted(_FORBIDDEN_OPTIONS.intersection(options)):
        raise CompletionError(400, f"`{wrong[0]}` belongs to the client, not into the request.", wrong[0])
    if len(options) > MAX_OPTIONS:
        raise CompletionError(400, f"A request has at most {MAX_OPTIONS} options.")
    return options


def _check_shape(body: Mapping[str, Any]) -> None:
    """What would change the shape of the answer, and cannot be had."""
    if body.get("functions") is not None or body.get("function_call") is not None:
        name = "functions" if body.get("functions") is not None else "function_call"
        raise CompletionError(
            400, "Functions are the old form of tools: send `tools` and `tool_choice`.", name
        )
    if body.get("n") not in (None, 1):
        raise CompletionError(400, "One answer at a time: tools would run for each.", "n")
    if body.get("logprobs") or body.get("top_logprobs") is not None:
        name = "logprobs" if body.get("logprobs") else "top_logprobs"
        raise CompletionError(
            400, "Probabilities of tokens cannot be given: an answer may take several models.", name
        )
    if body.get("audio") is not None:
        raise CompletionError(400, "Answers are text here.", "audio")
    modalities: object = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        raise CompletionError(400, 'Answers are text here: `modalities` can only be ["text"].', "modalities")


def get_tool_entries(value: object) -> list[object]:
    """The caller's own tools, each unread. Raises `CompletionError`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise CompletionError(400, "`tools` is a list.", "tools")
    tools = cast("list[object]", value)
    if len(tools) > MAX_TOOLS:
        raise CompletionError(400, f"A request has at most {MAX_TOOLS} tools.", "tools")
    return tools


def parse_tools(value: object) -> tuple[JsonObject, ...]:
    """The caller's own tools, as they wrote them."""
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
    if value is None:
        return False
    if not stream:
        raise CompletionError(400, "`stream_options` goes only with `stream`.", "stream_options")
    return get_fields(value).get("include_usage") is True
