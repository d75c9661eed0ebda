"""The function-calling loop: the request of each turn, and the parser of the reply."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from fingerpost.catalog import escape_invisible_except
from fingerpost.choose.client_options import ClientOptions, build_client_call, split_tool_calls
from fingerpost.choose.offered_tools import (
    build_definitions,
    dump_stable_json,
    format_definitions,
    get_tool_names,
    resolve_call,
)
from fingerpost.choose.prompts import (
    build_closed_schema,
    format_step_text,
    get_name_for_model,
    map_exposed_names,
    sort_arguments,
    to_tool_messages,
)
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply, ModelRequest, ResponseSchema
from fingerpost.llm.content import (
    UnreadableToolCall,
    as_mapping,
    find_outermost_objects,
    get_named_tool,
    parse_tool_calls,
    read_arguments,
    strip_reasoning,
)
from fingerpost.records import Json, JsonObject, Message, Packet, Step, ToolCall, ToolCard, to_valid_text
from fingerpost.redaction import scrub
from fingerpost.settings import ChooseSettings

MAX_CALLS_PER_TURN: Final = 8
NO_CLIENT_OPTIONS: Final = ClientOptions()
NO_MORE_TOOLS_NOTE: Final = (
    "No further tool can be called now. Answer the request with what the results above show, say which tool "
    "it comes from, and say plainly what is missing."
)
JSON_FORMAT: Final = """\
Reply with one JSON object and nothing else:
{"calls": [{"tool": "exact name", "arguments": {…}}], "answer": null} to call tools, or
{"calls": [], "answer": "your answer"} to answer. Results come in the next message."""


def build_turn_request(
    packet: Packet,
    cards: Sequence[ToolCard],
    *,
    system: str,
    history: Sequence[Message],
    settings: ChooseSettings,
    final: bool = False,
    has_tool_support: bool = True,
    order: Sequence[str] = (),
    own_tools: Sequence[JsonObject] = (),
    find_tools: Sequence[JsonObject] = (),
    guides: str = "",
    usage: Mapping[str, str] = MappingProxyType({}),
    note: str = "",
    client: ClientOptions = NO_CLIENT_OPTIONS,
) -> ModelRequest:
    """Build the model request of this turn.

    `order` are the keys as offered so far in the conversation (see `order_offered_keys`). `own_tools` are
    definitions of Fingerpost's own tools in the OpenAI format. `find_tools` are definitions of the tool
    search, treated like routed tools. `usage` is text for each definition (see `describe_tool_usage`);
    `guides` is the same as text for a model without tool support. With `final`, only client tools and
    `own_tools` can be called. `note` describes the problem with the last reply; it comes last and only in
    this turn.
    """
    routed: tuple[JsonObject, ...] = ()
    if not (client.tools and final):
        routed = (*build_definitions(cards, order=order, usage=usage), *find_tools)
    offered = (*client.tools, *routed, *own_tools)
    closed = client.forbids_tools or (final and not client.tools and not own_tools)
    steps = packet.tool_routing.steps
    # A plain text reply gets no tool list. The last of several turns keeps the JSON format.
    keeps_format = not closed or (bool(steps) and not client.forbids_tools)
    in_json = not has_tool_support and bool(offered) and keeps_format
    if has_tool_support:
        later = (*client.later_messages, *to_tool_messages(steps, cards))
    else:
        later = rewrite_as_text(client.later_messages, in_json=in_json)
        later += _build_text_messages(steps, cards, in_json=in_json)
    listing = (format_definitions((*client.tools, *routed)), JSON_FORMAT) if in_json else ()
    prompt = prepend_tools(packet.content.original_prompt, guides, *listing)
    callable_now = (*client.tools, *own_tools) if final and not closed else offered
    choice = "none" if closed else client.get_tool_choice(has_called=bool(steps))
    opening = build_opening_messages(system, history, prompt, client.content_parts)
    own = "" if closed else describe_own_tools(own_tools, final=final, listing=not has_tool_support)
    closing = build_closing_message(note, own, NO_MORE_TOOLS_NOTE if closed and steps else "")
    return client.apply_to(
        ModelRequest(
            messages=(*opening, *later, *closing),
            temperature=settings.answer_temperature,
            max_tokens=settings.answer_tokens,
            tools=offered if has_tool_support else (),
            tool_choice=choice if has_tool_support and offered else None,
            choice_is_callers=client.tool_choice is not None,
            schema=_build_turn_schema(get_tool_names(callable_now), choice) if in_json else None,
        )
    )


def describe_own_tools(own_tools: Sequence[JsonObject], *, final: bool, listing: bool) -> str:
    """Return the text about Fingerpost's own tools. It comes last, so the prompt begins unchanged.

    With `listing`, it includes their definitions, for a model without tool support.
    """
    if not own_tools:
        return ""
    also = f"You can also call:\n{format_definitions(own_tools)}" if listing else ""
    names = ", ".join(get_tool_names(own_tools))
    only = f"Of the tools only {names} can be called now; otherwise answer." if final else ""
    return "\n\n".join(part for part in (also, only) if part)


def build_opening_messages(
    system: str, history: Sequence[Message], prompt: str, parts: tuple[JsonObject, ...] = ()
) -> tuple[Message, ...]:
    """Return the first messages of every request: the system prompt, the conversation and the prompt.

    A system message of the conversation is merged into ours, because many models accept only one.
    """
    request = Message(role="user", text=prompt, parts=parts)
    if system and history and history[0].role == "system" and not history[0].parts:
        first = Message(role="system", text=f"{system}\n\n{history[0].text}")
        return (first, *history[1:], request)
    first = (Message(role="system", text=system),) if system else ()
    return (*first, *history, request)


def build_closing_message(*notes: str) -> tuple[Message, ...]:
    """Join the notes into one last message. Return an empty tuple without notes."""
    text = "\n\n".join(note for note in notes if note)
    return (Message(role="user", text=text),) if text else ()


def prepend_tools(prompt: str, *sections: str) -> str:
    """Return the prompt with the text about its tools before it, if there is any."""
    text = "\n\n".join(part for part in sections if part)
    return f"# TOOLS FOR THIS REQUEST\n{text}\n\n# REQUEST\n{prompt}" if text else prompt


def _build_text_messages(
    steps: Sequence[Step], cards: Sequence[ToolCard], *, in_json: bool
) -> tuple[Message, ...]:
    """Return each step as the model would write it, with the result as the next message."""
    known = map_exposed_names(cards)
    messages: list[Message] = []
    for step in steps:
        name = get_name_for_model(step.tool, known)
        calls: list[Json] = [{"tool": name, "arguments": sort_arguments(step)}]
        messages.append(Message(role="assistant", text=_format_calls(calls, "", in_json=in_json)))
        messages.append(Message(role="user", text=f"Result of {name}:\n{format_step_text(step)}"))
    return tuple(messages)


def rewrite_as_text(messages: Sequence[Message], *, in_json: bool = True) -> tuple[Message, ...]:
    """Rewrite client tool calls and their results as text, for a model without tool support."""
    rewritten: list[Message] = []
    called: dict[object, str] = {}
    for message in messages:
        if message.role == "tool":
            name = called.get(message.tool_call_id, "a tool")
            rewritten.append(Message(role="user", text=f"Result of {name}:\n{message.text}"))
            continue
        functions = [as_mapping(call.get("function")) for call in message.tool_calls]
        ids = (call.get("id") for call in message.tool_calls)
        called.update(zip(ids, (str(function.get("name")) for function in functions), strict=True))
        calls: list[Json] = [
            {"tool": str(function.get("name")), "arguments": _read_arguments(function.get("arguments"))}
            for function in functions
        ]
        text = _format_calls(calls, message.text, in_json=in_json) if calls else message.text
        rewritten.append(Message(role=message.role, text=text))
    return tuple(rewritten)


def _format_calls(calls: list[Json], text: str, *, in_json: bool) -> str:
    """Format a turn with calls: as JSON, or as text when the reply is plain text."""
    if in_json:
        return dump_stable_json({"calls": calls, "answer": text or None})
    return "\n".join(part for part in (text, f"(Tools called: {dump_stable_json(calls)})") if part)


def _read_arguments(arguments: object) -> Json:
    found = read_arguments(arguments)
    return {} if isinstance(found, str) else cast("JsonObject", found)


def _build_turn_schema(tools: Sequence[str], choice: Json = "auto") -> ResponseSchema:
    """Build the schema of a turn. With the choice `none`, it allows no calls."""
    must = choice == "required" or get_named_tool(choice) is not None
    tools = [name for name in tools if name == (get_named_tool(choice) or name)]
    calls: JsonObject = {
        "type": "array",
        "items": build_call_schema(tools),
        **({"minItems": 1} if must else {}),
        "maxItems": 0 if choice == "none" else MAX_CALLS_PER_TURN,
    }
    answer: JsonObject = {"type": "string" if choice == "none" else ["string", "null"]}
    return ResponseSchema(name="turn", schema=build_closed_schema({"calls": calls, "answer": answer}))


def build_call_schema(tools: Sequence[str]) -> JsonObject:
    """Build the schema of a call of one of these tools."""
    named: JsonObject = {"type": "string", "enum": list(tools)}
    return build_closed_schema({"tool": named, "arguments": {"type": "object"}})


MAX_PROBLEMS: Final = 8
MAX_PROBLEM_LENGTH: Final = 1000


@frozen
class ModelTurn:
    """The calls to make or the text to return. `problems` are for the model to correct.

    `handed` are calls of client tools in the OpenAI format, which the client executes.
    """

    calls: tuple[ToolCall, ...] = ()
    handed: tuple[JsonObject, ...] = ()
    text: str = ""
    problems: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The problems as text for the next request, or an empty string."""
        if not self.problems:
            return ""
        return "Your last reply could not be used as it is:\n- " + "\n- ".join(self.problems)


def parse_turn(
    reply: ModelReply,
    cards: Sequence[ToolCard],
    *,
    has_tool_support: bool = True,
    own_names: Collection[str] = (),
    client_tools: frozenset[str] = frozenset(),
) -> ModelTurn:
    """Parse this reply. `has_tool_support` is as in the request.

    `own_names` are the names of Fingerpost's own tools, `client_tools` those of the client's tools.
    """
    text = to_valid_text(reply.text)
    if reply.tool_calls:
        handed, routed = split_tool_calls(reply.tool_calls, client_tools, cards)
        turn = _build_turn(parse_tool_calls({"tool_calls": list(routed)}), text, cards, own_names)
        return replace(turn, handed=handed)
    if has_tool_support:
        return ModelTurn(text=text.strip())
    turn = _parse_json_turn(text, cards, {*own_names, *client_tools})
    handed = tuple(
        build_client_call(call.name, dump_stable_json(call.arguments))
        for call in turn.calls
        if call.name in client_tools
    )
    own = tuple(call for call in turn.calls if call.name not in client_tools)
    return replace(turn, handed=handed, calls=own)


def _parse_json_turn(text: str, cards: Sequence[ToolCard], own_names: Collection[str]) -> ModelTurn:
    fields = _find_turn_object(text)
    if fields is None:
        plain = strip_reasoning(text)
        if plain and not plain.startswith(("{", "[")) and '"calls"' not in plain:
            return ModelTurn(text=plain)  # a plain text answer
        return ModelTurn(problems=("it is not a JSON object with `calls` and `answer`",))
    answer, calls = fields.get("answer"), fields.get("calls")
    entries = calls if isinstance(calls, list | tuple) else [] if calls is None else [calls]
    said = to_valid_text(answer) if isinstance(answer, str) else ""
    turn = _build_turn(map(_parse_call_entry, entries), said, cards, own_names)
    if turn.calls or turn.text or turn.problems:
        return turn
    return ModelTurn(problems=("it neither calls a tool nor answers",))


def _find_turn_object(text: str) -> JsonObject | None:
    """Return the last object that is a turn, or a list of bare calls as a turn."""
    for group in reversed(find_outermost_objects(text, whole=True)):
        for entry in reversed(group):
            if "calls" in entry or "answer" in entry:
                return entry
        if all("arguments" in entry for entry in group):
            return {"calls": group}
    return None


def _parse_call_entry(entry: object) -> ToolCall | UnreadableToolCall:
    fields = as_mapping(entry)
    name = fields.get("tool", fields.get("name"))
    if not isinstance(name, str) or not name.strip():
        return UnreadableToolCall(reference=None, name="", message="the call names no tool")
    arguments = read_arguments(fields.get("arguments"))
    if isinstance(arguments, str):
        return UnreadableToolCall(reference=None, name=name, message=arguments)
    return ToolCall(name=name.strip(), arguments=arguments)


def _build_turn(
    entries: Iterable[ToolCall | UnreadableToolCall],
    text: str,
    cards: Sequence[ToolCard],
    own_names: Collection[str],
) -> ModelTurn:
    calls: list[ToolCall] = []
    problems: list[str] = []
    for entry in entries:
        if isinstance(entry, UnreadableToolCall):
            read = _describe_unreadable(entry)
        else:
            read = resolve_call(entry, cards, own_names=own_names)
        if isinstance(read, str):
            problems.append(read[:MAX_PROBLEM_LENGTH])
        else:
            calls.append(read)
    made = tuple(calls[:MAX_CALLS_PER_TURN])
    if len(calls) > len(made):
        problems.append(f"only the first {len(made)} of {len(calls)} calls were made: call fewer at once")
    return ModelTurn(calls=made, text=text.strip(), problems=tuple(problems[:MAX_PROBLEMS]))


def _describe_unreadable(entry: UnreadableToolCall) -> str:
    name = f" of {scrub(escape_invisible_except(entry.name[:80]))}" if entry.name else ""
    return f"the call{name} could not be read: {entry.message}. Write it again."
