"""A body of /v1/responses, read as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import get_fields
from fingerpost.surfaces.completions.faults import CompletionError
from fingerpost.surfaces.completions.reading import (
    ChatRequest,
    get_model_options,
    get_tool_entries,
    get_tool_names,
    parse_flag,
    parse_model,
)
from fingerpost.surfaces.completions.responses.items import parse_input

_OWN_RESPONSE_FIELDS: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "fingerpost"}
    | {"max_output_tokens", "text", "reasoning", "store", "truncation", "include"}
    | {"previous_response_id", "conversation", "background", "prompt", "max_tool_calls", "top_logprobs"}
)
# What needs something kept from an earlier request, or changes the shape of the answer.
_UNSUPPORTED_FIELDS: Final = {
    "previous_response_id": "Nothing is kept between requests here: send the whole conversation as `input`.",
    "conversation": "Nothing is kept between requests here: send the whole conversation as `input`.",
    "prompt": "Prompts are not kept here: send `instructions` and `input`.",
    "background": "Answers are given at once here, or streamed.",
    "top_logprobs": "Probabilities of tokens cannot be given: an answer may take several models.",
    "max_tool_calls": "How many rounds of tools there are is said as `fingerpost.max_turns`.",
}
_SUPPORTED_INCLUDES: Final = ("reasoning.encrypted_content",)  # clients ask for it always; there is none
# Said again in the answer, as it was asked.
_ECHOED_FIELDS: Final = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature",
    "text", "tool_choice", "tools", "top_p", "user",
)  # fmt: skip


def parse_response_request(body: Mapping[str, Any]) -> ChatRequest:
    """Raises `CompletionError` naming the `param` that is wrong or cannot be had."""
    for name, why in _UNSUPPORTED_FIELDS.items():
        if body.get(name):
            raise CompletionError(400, why, name)
    _check_includes(body.get("include"))
    tools = _parse_function_tools(body.get("tools"))
    return ChatRequest(
        model=parse_model(body),
        conversation=parse_input(body.get("input"), body.get("instructions")),
        tools=tools,
        tool_choice=_translate_tool_choice(body.get("tool_choice"), tools),
        options={**get_model_options(body, _OWN_RESPONSE_FIELDS), **_translate_options(body)},
        stream=parse_flag(body, "stream"),
        request_options=body.get("fingerpost"),
        echo={name: body[name] for name in _ECHOED_FIELDS if body.get(name) is not None},
    )


def _check_includes(value: object) -> None:
    wanted = cast("list[object]", value) if isinstance(value, list) else []
    if other := [name for name in wanted if name not in _SUPPORTED_INCLUDES]:
        raise CompletionError(400, f"{other[0]!r:.60} cannot be included.", "include")


def _translate_options(body: Mapping[str, Any]) -> JsonObject:
    """Options under the names the chat API has for them."""
    text, reasoning = get_fields(body.get("text")), get_fields(body.get("reasoning"))
    found = {
        "max_completion_tokens": body.get("max_output_tokens"),
        "response_format": _translate_format(get_fields(text.get("format"))),
        "verbosity": text.get("verbosity"),
        "reasoning_effort": reasoning.get("effort"),
    }
    return {name: cast("Json", value) for name, value in found.items() if value is not None}


def _translate_format(wanted: Mapping[str, object]) -> JsonObject | None:
    kind = wanted.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind != "json_schema":
        raise CompletionError(400, "A format is text, json_object or json_schema.", "text.format.type")
    return {
        "type": "json_schema",
        "json_schema": {name: cast("Json", value) for name, value in wanted.items() if name != "type"},
    }


def _parse_function_tools(value: object) -> tuple[JsonObject, ...]:
    """The caller's own tools, in the form of the chat API: the same names, schemas and words."""
    return tuple(
        _translate_tool(get_fields(tool), f"tools[{at}]") for at, tool in enumerate(get_tool_entries(value))
    )


def _translate_tool(tool: Mapping[str, object], where: str) -> JsonObject:
    if tool.get("type") != "function":
        kind = f"{tool.get('type')!r:.60}"
        raise CompletionError(
            400, f"Tools of type {kind} are not run here, only functions are.", f"{where}.type"
        )
    if not isinstance(tool.get("name"), str) or not tool.get("name"):
        raise CompletionError(400, "A function has a name.", f"{where}.name")
    told = {name: cast("Json", value) for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": told}


def _translate_tool_choice(value: object, tools: tuple[JsonObject, ...]) -> Json:
    if value is None or value in ("none", "auto", "required"):
        return cast("Json", value)
    fields = get_fields(value)
    name = fields.get("name")
    if fields.get("type") != "function" or not isinstance(name, str) or name not in get_tool_names(tools):
        wanted = "`tool_choice` is none, auto, required, or names a function of `tools`."
        raise CompletionError(400, wanted, "tool_choice")
    return {"type": "function", "function": {"name": name}}
