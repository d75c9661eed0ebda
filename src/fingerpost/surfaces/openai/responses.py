"""/v1/responses: the same requests and answers in another format. Nothing is stored for a later request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from fingerpost.records import Json, JsonObject, Message
from fingerpost.surfaces.http.asgi import HttpError
from fingerpost.surfaces.openai.chat import AnswerStream, LateEventStream, build_extension
from fingerpost.surfaces.openai.errors import CompletionError, encode_json, format_error, get_fields
from fingerpost.surfaces.openai.messages import (
    MAX_MESSAGES,
    ChatConversation,
    ChatRequest,
    check_order,
    get_model_options,
    get_tool_entries,
    get_tool_names,
    parse_flag,
    parse_model,
    parse_parts,
)
from fingerpost.surfaces.openai.requests import CompletionResult, get_unstreamed_text

_ITEM_ROLES: Final = ("system", "developer", "user", "assistant")
_TEXT_PART_TYPES: Final = ("input_text", "output_text", "text")


def parse_input(value: object, instructions: object) -> ChatConversation:
    """Parse the conversation from `instructions` and `input`. Raises `CompletionError`."""
    if instructions is not None and not isinstance(instructions, str):
        raise CompletionError(400, "`instructions` is a text.", "instructions")
    first = () if instructions is None else (Message(role="system", text=instructions),)
    if isinstance(value, str):
        return ChatConversation.from_messages((*first, Message(role="user", text=value)))
    if not isinstance(value, list) or not value:
        raise CompletionError(400, "`input` is a text, or a list of items.", "input")
    items = cast("list[object]", value)
    if len(items) > MAX_MESSAGES:
        raise CompletionError(400, f"A request has at most {MAX_MESSAGES} items.", "input")
    messages = list(first)
    for at, item in enumerate(items):
        _add_item(messages, item, f"input[{at}]")
    check_order(messages)
    return ChatConversation.from_messages(messages)


def _add_item(messages: list[Message], item: object, where: str) -> None:
    """Add an item. The calls of one turn are collected in one message, together with the text before them."""
    fields = get_fields(item)
    kind = fields.get("type", "message" if "role" in fields else None)
    if kind == "message":
        messages.append(_parse_item_message(fields, where))
    elif kind == "function_call":
        call = _parse_function_call(fields, where)
        last = messages[-1] if messages else None
        if last is not None and last.role == "assistant":
            messages[-1] = replace(last, tool_calls=(*last.tool_calls, call))
        else:
            messages.append(Message(role="assistant", text="", tool_calls=(call,)))
    elif kind == "function_call_output":
        messages.append(_parse_function_result(fields, where))
    elif kind != "reasoning":  # encrypted reasoning of a model: ignored
        known = "message, function_call and function_call_output"
        raise CompletionError(
            400, f"Items of type {kind!r:.60} are not supported; {known} are.", f"{where}.type"
        )


def _parse_item_message(item: Mapping[str, object], where: str) -> Message:
    role = item.get("role")
    if role not in _ITEM_ROLES:
        raise CompletionError(
            400, f"The role of a message is one of {', '.join(_ITEM_ROLES)}.", f"{where}.role"
        )
    text, parts = parse_parts(item.get("content"), f"{where}.content", _parse_item_part)
    return Message(role=str(role), text=text, parts=parts)


def _parse_item_part(part: object, where: str) -> JsonObject:
    """Convert a part to the format of the chat API, which the model gets."""
    fields = get_fields(part)
    kind = fields.get("type")
    if kind in _TEXT_PART_TYPES or kind == "refusal":
        text = fields.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise CompletionError(400, "This part contains no text.", where)
        return {"type": "text", "text": text}
    if kind == "input_image" and isinstance(fields.get("image_url"), str):
        image: dict[str, Json] = {"url": str(fields["image_url"])}
        if isinstance(fields.get("detail"), str):
            image["detail"] = str(fields["detail"])
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and isinstance(fields.get("file_data"), str):
        named = {name: str(fields[name]) for name in ("file_data", "filename") if name in fields}
        return {"type": "file", "file": named}
    raise CompletionError(400, "A part is a text, a picture by its URL, or a file with its data.", where)


def _parse_function_call(item: Mapping[str, object], where: str) -> JsonObject:
    call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, str):
        raise CompletionError(400, "A call has a call_id, a name, and arguments as a text of JSON.", where)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parse_function_result(item: Mapping[str, object], where: str) -> Message:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise CompletionError(400, "A result names the call it answers.", f"{where}.call_id")
    text, parts = parse_parts(item.get("output"), f"{where}.output", _parse_item_part)
    return Message(role="tool", text=text, tool_call_id=call_id, parts=parts)


_OWN_RESPONSE_FIELDS: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "fingerpost"}
    | {"max_output_tokens", "text", "reasoning", "store", "truncation", "include"}
    | {"previous_response_id", "conversation", "background", "prompt", "max_tool_calls", "top_logprobs"}
)
# These need stored state of an earlier request, or change the form of the answer.
_UNSUPPORTED_FIELDS: Final = {
    "previous_response_id": "Nothing is stored between requests: send the whole conversation as `input`.",
    "conversation": "Nothing is stored between requests: send the whole conversation as `input`.",
    "prompt": "Prompts are not stored: send `instructions` and `input`.",
    "background": "Background answers are not supported: use a plain or streamed answer.",
    "top_logprobs": "Log probabilities are not available: an answer can come from several models.",
    "max_tool_calls": "Set the number of tool rounds with `fingerpost.max_turns`.",
}
_SUPPORTED_INCLUDES: Final = ("reasoning.encrypted_content",)  # clients always ask for it; there is none
# Repeated unchanged in the answer.
_ECHOED_FIELDS: Final = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature",
    "text", "tool_choice", "tools", "top_p", "user",
)  # fmt: skip


def parse_response_request(body: Mapping[str, Any]) -> ChatRequest:
    """Parse the body. Raises `CompletionError` with the `param` that is invalid or not supported."""
    for name, why in _UNSUPPORTED_FIELDS.items():
        if body.get(name):
            raise CompletionError(400, why, name)
    included: object = body.get("include")
    for name in cast("list[object]", included) if isinstance(included, list) else []:
        if name not in _SUPPORTED_INCLUDES:
            raise CompletionError(400, f"{name!r:.60} cannot be included.", "include")
    entries = enumerate(get_tool_entries(body.get("tools")))
    tools = tuple(_translate_tool(get_fields(tool), f"tools[{at}]") for at, tool in entries)
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


def _translate_options(body: Mapping[str, Any]) -> JsonObject:
    """Return the options under their names in the chat API."""
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


def _translate_tool(tool: Mapping[str, object], where: str) -> JsonObject:
    """Convert a tool of the caller to the format of the chat API."""
    if tool.get("type") != "function":
        kind = f"{tool.get('type')!r:.60}"
        raise CompletionError(
            400, f"Tools of type {kind} are not run here, only functions are.", f"{where}.type"
        )
    if not isinstance(tool.get("name"), str) or not tool.get("name"):
        raise CompletionError(400, "A function has a name.", f"{where}.name")
    function = {
        name: cast("Json", value) for name, value in tool.items() if name != "type" and value is not None
    }
    return {"type": "function", "function": function}


def _translate_tool_choice(value: object, tools: tuple[JsonObject, ...]) -> Json:
    if value is None or value in ("none", "auto", "required"):
        return cast("Json", value)
    fields = get_fields(value)
    name = fields.get("name")
    if fields.get("type") != "function" or not isinstance(name, str) or name not in get_tool_names(tools):
        wanted = "`tool_choice` is none, auto, required, or names a function of `tools`."
        raise CompletionError(400, wanted, "tool_choice")
    return {"type": "function", "function": {"name": name}}


_RESPONSE_DEFAULTS: Final[JsonObject] = {
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "usage": None,
    "user": None,
}


def build_response(result: CompletionResult, request: ChatRequest, *, extension: bool) -> JsonObject:
    """Build a `response`."""
    made = _build_response_body(result.route.packet_id, int(time.time()), request)
    return _complete_response(made, result, extension=extension)


def _build_response_body(packet_id: str, created: int, request: ChatRequest) -> dict[str, Any]:
    return {
        "id": f"resp_{packet_id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "model": request.model,
        "output": [],
        **_RESPONSE_DEFAULTS,
        **request.echo,
    }


def _complete_response(
    response: Mapping[str, Any], result: CompletionResult, *, extension: bool
) -> dict[str, Any]:
    short = result.finish in ("length", "content_filter")
    reason = "content_filter" if result.finish == "content_filter" else "max_output_tokens"
    body: dict[str, Any] = {
        **response,
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": reason} if short else None,
        "output": _build_items(result),
        "usage": {
            "input_tokens": result.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": result.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": result.prompt_tokens + result.completion_tokens,
        },
    }
    if extension:
        body["fingerpost"] = build_extension(result)
    return body


def _build_items(result: CompletionResult) -> list[JsonObject]:
    """Return the text item, if there is text, and the calls of the caller's own tools."""
    calls = [_build_call_item(call) for call in result.route.tool_calls]
    if not result.text and calls:
        return calls
    part = _build_refusal_part(result.refusal) if result.refusal else _build_text_part(result.text)
    return [_build_message_item(result.route.packet_id, part, "completed"), *calls]


def _build_message_item(packet_id: str, part: JsonObject | None, status: str) -> JsonObject:
    content: list[Json] = [] if part is None else [part]
    item_id = f"msg_{packet_id}"
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def _build_text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _build_refusal_part(text: str) -> JsonObject:
    return {"type": "refusal", "refusal": text}


def _build_call_item(
    call: JsonObject, *, arguments: str | None = None, status: str = "completed"
) -> JsonObject:
    function = get_fields(call.get("function"))
    return {
        "type": "function_call",
        "id": f"fc_{call.get('id', '')}",
        "call_id": call.get("id", ""),
        "name": cast("Json", function.get("name", "")),
        "arguments": cast("Json", function.get("arguments", "{}")) if arguments is None else arguments,
        "status": status,
    }


class ResponseStream(AnswerStream):
    """Streams numbered events: created, text deltas, calls, completed."""

    def __init__(self, stream: LateEventStream, request: ChatRequest, *, extension: bool) -> None:
        super().__init__(stream, request, extension=extension)
        self._number = 0

    async def on_text(self, piece: str) -> None:
        await self._send_created()
        if not self._pieces:
            await self._send_item("added", 0, _build_message_item(self._packet_id, None, "in_progress"))
            await self._send_part("added", _build_text_part(""))
        self._pieces.append(piece)
        await self._send_event(
            "response.output_text.delta", **self._get_text_position(), delta=piece, logprobs=[]
        )

    async def _finish(self, result: CompletionResult) -> None:
        calls = result.route.tool_calls
        rest = get_unstreamed_text(result.text, "".join(self._pieces))
        if result.refusal and not self._pieces:
            await self._send_refusal(result.refusal)
        elif rest or not (self._pieces or calls):
            await self.on_text(rest)
        await self._send_created()
        if self._pieces:
            at, text = self._get_text_position(), result.text
            await self._send_event("response.output_text.done", **at, text=text, logprobs=[])
            await self._finish_part(_build_text_part(text))
        for index, call in enumerate(calls, start=int(bool(self._pieces))):
            await self._send_call(index, call)
        final = _complete_response(self._build_current_response(), result, extension=self._extension)
        kind = "response.incomplete" if final["status"] == "incomplete" else "response.completed"
        await self._send_event(kind, response=final)

    async def fail(self, error: HttpError) -> None:
        fields = get_fields(format_error(error)["error"])
        named = {name: fields.get(name) for name in ("code", "message", "param")}
        await self._send_event("error", **named)

    async def _send_refusal(self, text: str) -> None:
        """Send a refusal as a single part. Refusals are short."""
        await self._send_created()
        await self._send_item("added", 0, _build_message_item(self._packet_id, None, "in_progress"))
        await self._send_part("added", _build_refusal_part(""))
        await self._send_event("response.refusal.delta", **self._get_text_position(), delta=text)
        await self._send_event("response.refusal.done", **self._get_text_position(), refusal=text)
        await self._finish_part(_build_refusal_part(text))

    async def _finish_part(self, part: JsonObject) -> None:
        await self._send_part("done", part)
        await self._send_item("done", 0, _build_message_item(self._packet_id, part, "completed"))

    async def _send_call(self, index: int, call: JsonObject) -> None:
        started, ended = _build_call_item(call, arguments="", status="in_progress"), _build_call_item(call)
        at = {"item_id": ended["id"], "output_index": index}
        await self._send_item("added", index, started)
        await self._send_event("response.function_call_arguments.delta", **at, delta=ended["arguments"])
        await self._send_event(
            "response.function_call_arguments.done", **at, arguments=ended["arguments"], name=ended["name"]
        )
        await self._send_item("done", index, ended)

    def _get_text_position(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._packet_id}", "output_index": 0, "content_index": 0}

    def _build_current_response(self) -> dict[str, Any]:
        return _build_response_body(self._packet_id, self._created, self._request)

    async def _send_created(self) -> None:
        if not self._begun:
            self._begun = True
            await self._send_event("response.created", response=self._build_current_response())
            await self._send_event("response.in_progress", response=self._build_current_response())

    async def _send_item(self, what: str, index: int, item: JsonObject) -> None:
        await self._send_event(f"response.output_item.{what}", output_index=index, item=item)

    async def _send_part(self, what: str, part: JsonObject) -> None:
        await self._send_event(f"response.content_part.{what}", **self._get_text_position(), part=part)

    async def _send_event(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        await self._stream.send_event(encode_json(event), event=kind)
