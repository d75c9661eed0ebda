"""A body of /v1/responses, read as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import fields_of
from fingerpost.surfaces.completions.faults import ApiFault
from fingerpost.surfaces.completions.reading import (
    Question,
    listed_tools,
    options_of,
    read_flag,
    read_model,
    tool_names,
)
from fingerpost.surfaces.completions.responses.items import read_input

_OURS: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "fingerpost"}
    | {"max_output_tokens", "text", "reasoning", "store", "truncation", "include"}
    | {"previous_response_id", "conversation", "background", "prompt", "max_tool_calls", "top_logprobs"}
)
# What needs something kept from an earlier request, or changes the shape of the answer.
_NOT_HERE: Final = {
    "previous_response_id": "Nothing is kept between requests here: send the whole conversation as `input`.",
    "conversation": "Nothing is kept between requests here: send the whole conversation as `input`.",
    "prompt": "Prompts are not kept here: send `instructions` and `input`.",
    "background": "Answers are given at once here, or streamed.",
    "top_logprobs": "Probabilities of tokens cannot be given: an answer may take several models.",
    "max_tool_calls": "How many rounds of tools there are is said as `fingerpost.max_turns`.",
}
_INCLUDED: Final = ("reasoning.encrypted_content",)  # clients ask for it always; there is none
# Said again in the answer, as it was asked.
_ECHOED: Final = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature",
    "text", "tool_choice", "tools", "top_p", "user",
)  # fmt: skip


def read_response(body: Mapping[str, Any]) -> Question:
    """Raises `ApiFault` naming the `param` that is wrong or cannot be had."""
    for name, why in _NOT_HERE.items():
        if body.get(name):
            raise ApiFault(400, why, name)
    _check_included(body.get("include"))
    tools = _tools(body.get("tools"))
    return Question(
        model=read_model(body),
        talk=read_input(body.get("input"), body.get("instructions")),
        tools=tools,
        tool_choice=_choice(body.get("tool_choice"), tools),
        options={**options_of(body, _OURS), **_translated(body)},
        stream=read_flag(body, "stream"),
        manner=body.get("fingerpost"),
        echo={name: body[name] for name in _ECHOED if body.get(name) is not None},
    )


def _check_included(value: object) -> None:
    wanted = cast("list[object]", value) if isinstance(value, list) else []
    if other := [name for name in wanted if name not in _INCLUDED]:
        raise ApiFault(400, f"{other[0]!r:.60} cannot be included.", "include")


def _translated(body: Mapping[str, Any]) -> JsonObject:
    """Options under the names the chat API has for them."""
    text, reasoning = fields_of(body.get("text")), fields_of(body.get("reasoning"))
    found = {
        "max_completion_tokens": body.get("max_output_tokens"),
        "response_format": _format(fields_of(text.get("format"))),
        "verbosity": text.get("verbosity"),
        "reasoning_effort": reasoning.get("effort"),
    }
    return {name: cast("Json", value) for name, value in found.items() if value is not None}


def _format(wanted: Mapping[str, object]) -> JsonObject | None:
    kind = wanted.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind != "json_schema":
        raise ApiFault(400, "A format is text, json_object or json_schema.", "text.format.type")
    return {
        "type": "json_schema",
        "json_schema": {name: cast("Json", value) for name, value in wanted.items() if name != "type"},
    }


def _tools(value: object) -> tuple[JsonObject, ...]:
    """The caller's own tools, in the form of the chat API: the same names, schemas and words."""
    return tuple(_tool(fields_of(tool), f"tools[{at}]") for at, tool in enumerate(listed_tools(value)))


def _tool(tool: Mapping[str, object], where: str) -> JsonObject:
    if tool.get("type") != "function":
        kind = f"{tool.get('type')!r:.60}"
        raise ApiFault(400, f"Tools of type {kind} are not run here, only functions are.", f"{where}.type")
    if not isinstance(tool.get("name"), str) or not tool.get("name"):
        raise ApiFault(400, "A function has a name.", f"{where}.name")
    told = {name: cast("Json", value) for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": told}


def _choice(value: object, tools: tuple[JsonObject, ...]) -> Json:
    if value is None or value in ("none", "auto", "required"):
        return cast("Json", value)
    fields = fields_of(value)
    name = fields.get("name")
    if fields.get("type") != "function" or not isinstance(name, str) or name not in tool_names(tools):
        wanted = "`tool_choice` is none, auto, required, or names a function of `tools`."
        raise ApiFault(400, wanted, "tool_choice")
    return {"type": "function", "function": {"name": name}}
