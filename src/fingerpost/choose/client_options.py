"""Tools and options that an API client sends with its request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from fingerpost.catalog.name_resolver import find_reading
from fingerpost.frozen import frozen
from fingerpost.llm import ModelRequest
from fingerpost.llm.content import SYSTEM_ROLES, as_mapping, get_named_tool, has_response_format
from fingerpost.records import Json, JsonObject, Message, ToolCard, create_id

MAX_CLIENT_NAME_LENGTH: Final = 64  # limit of the providers for a tool name
MAX_DESCRIBED_TOOLS: Final = 50
_RENAMED_SUFFIX: Final = "_routed"
_CLIENT_TOOLS_NOTE: Final = (
    "The answering model has these tools as well. Where one of them suits better, choose none of yours; "
    "these cannot be chosen here:"
)


@frozen
class ClientOptions:
    """Optional parts of a client's request. Most requests have none of them."""

    tools: tuple[JsonObject, ...] = ()  # definitions in the OpenAI format, passed on unchanged
    tool_choice: Json = None  # "auto", "none", "required", or one tool by name
    later_messages: tuple[Message, ...] = ()  # messages after the prompt
    content_parts: tuple[JsonObject, ...] = ()  # content of the prompt other than text
    options: JsonObject = field(default_factory=dict[str, Json])
    sets_own_limits: bool = False  # the client's options decide the answer length; no default is applied
    model: str | None = None
    history: tuple[Message, ...] = ()  # includes content parts that the packet's history does not hold

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the client's tools."""
        return frozenset(name for tool in self.tools if (name := _get_function_name(tool)))

    @property
    def forbids_tools(self) -> bool:
        """Whether neither routed tools nor client tools may be called."""
        return self.tool_choice == "none"

    @property
    def excludes_routed_tools(self) -> bool:
        """Whether no routed tool is offered, because the client asked for no tool or for a client tool."""
        return self.forbids_tools or get_named_tool(self.tool_choice) in self.tool_names

    @property
    def has_response_format(self) -> bool:
        """Whether the client asks for a response format. Such an answer is returned unchanged."""
        return has_response_format(self.options)

    @property
    def has_system_message(self) -> bool:
        """Whether the client sends its own system message."""
        messages = (*self.history, *self.later_messages)
        return any(message.role in SYSTEM_ROLES for message in messages)

    def apply_to(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the client's options and model."""
        limit = None if self.sets_own_limits else request.max_tokens
        return replace(request, options=self.options, model=self.model, max_tokens=limit)

    def get_tool_choice(self, *, has_called: bool) -> Json:
        """Return the tool choice for the model: `auto` after a routed tool was called, if tools may be."""
        if self.tool_choice is None or (has_called and not self.forbids_tools):
            return "auto"
        return self.tool_choice


def describe_client_tools(client: ClientOptions) -> str:
    """Describe the client's tools for the model that selects a routed tool, or "" if there are none."""
    if not client.tools:
        return ""
    lines: list[str] = []
    for tool in client.tools[:MAX_DESCRIBED_TOOLS]:
        function = as_mapping(tool.get("function"))
        name, does = str(function.get("name")), str(function.get("description") or "")[:200]
        entry = {"name": name[:MAX_CLIENT_NAME_LENGTH], "does": does}
        lines.append(json.dumps(entry, ensure_ascii=False))
    return "\n".join((_CLIENT_TOOLS_NOTE, *lines))


def rename_conflicting_cards(cards: Sequence[ToolCard], client_names: frozenset[str]) -> tuple[ToolCard, ...]:
    """Rename the cards whose exposed name a client tool has. Client tools keep their names."""
    used = {name.casefold() for name in client_names}
    if not used:
        return tuple(cards)
    given = used | {card.exposed_name.casefold() for card in cards}
    found: list[ToolCard] = []
    for card in cards:
        name = card.exposed_name
        if name.casefold() in used:
            name = _make_unique_name(name, given)
            given.add(name.casefold())
        found.append(card if name == card.exposed_name else replace(card, exposed_name=name))
    return tuple(found)


def _make_unique_name(name: str, used_names: set[str]) -> str:
    number = 1
    while True:
        ending = _RENAMED_SUFFIX if number == 1 else f"{_RENAMED_SUFFIX}_{number}"
        made = name[: MAX_CLIENT_NAME_LENGTH - len(ending)] + ending
        if made.casefold() not in used_names:
            return made
        number += 1


def split_tool_calls(
    calls: Sequence[JsonObject], client_names: frozenset[str], cards: Sequence[ToolCard] = ()
) -> tuple[tuple[JsonObject, ...], tuple[JsonObject, ...]]:
    """Return the calls of client tools, each with a unique id, and the other calls.

    A name that one of the cards is exposed by is never read as a client tool with a namespace.
    """
    exposed = {card.exposed_name for card in cards}
    client_calls: list[JsonObject] = []
    others: list[JsonObject] = []
    ids: set[str] = set()
    for call in calls:
        written = _get_function_name(call)
        is_routed = written in exposed and written not in client_names
        name = None if is_routed else find_reading(written, client_names)
        if name is None:
            others.append(call)
            continue
        made = _ensure_call_id(call, name, ids)
        ids.add(str(made["id"]))
        client_calls.append(made)
    return tuple(client_calls), tuple(others)


def build_client_call(name: str, arguments: str) -> JsonObject:
    """Build a call of a client tool from a call that the model wrote as text."""
    function: JsonObject = {"name": name, "arguments": arguments}
    return {"id": create_id("call"), "type": "function", "function": function}


def _ensure_call_id(call: JsonObject, name: str, ids: set[str]) -> JsonObject:
    """Return the call with a unique id and the given name. A call that has both is returned unchanged."""
    written = call.get("id")
    known = isinstance(written, str) and written and written not in ids
    if known and _get_function_name(call) == name:
        return call
    function: JsonObject = {**as_mapping(call.get("function")), "name": name}
    return {**call, "id": written if known else create_id("call"), "function": function}


def _get_function_name(definition: object) -> str:
    """Return the function name of a tool definition or tool call, or an empty string if there is none."""
    name = as_mapping(as_mapping(definition).get("function")).get("name")
    return name if isinstance(name, str) else ""
