"""The answer as a response, whole or as events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import encode_json, get_fields
from fingerpost.surfaces.completions.extension import build_extension, build_id_headers
from fingerpost.surfaces.completions.faults import format_error
from fingerpost.surfaces.completions.line import LateEventStream
from fingerpost.surfaces.completions.reading import ChatRequest
from fingerpost.surfaces.completions.turns import CompletionResult, get_unstreamed_text
from fingerpost.surfaces.web.asgi import HttpError

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
    """A `response`."""
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
    """The text, where there is some, and the calls of the caller's own tools."""
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


class ResponseStream:
    """Events, each with its number: created, text piece by piece, calls, completed."""

    def __init__(self, stream: LateEventStream, request: ChatRequest, *, extension: bool) -> None:
        self._line = stream
        self._question = request
        self._extension = extension
        self._packet_id = ""
        self._created = int(time.time())
        self._said: list[str] = []
        self._number = 0
        self._introduced = False

    async def on_start(self, packet_id: str) -> None:
        self._packet_id = packet_id
        if not self._line.opened:
            self._line.add_headers(build_id_headers(packet_id))

    async def on_text(self, piece: str) -> None:
        await self._send_created()
        if not self._said:
            await self._send_item("added", 0, _build_message_item(self._packet_id, None, "in_progress"))
            await self._send_part("added", _build_text_part(""))
        self._said.append(piece)
        await self._send_event(
            "response.output_text.delta", **self._get_text_position(), delta=piece, logprobs=[]
        )

    async def on_note(self, text: str) -> None:
        await self._line.send_comment(text)

    async def finish(self, result: CompletionResult) -> None:
        """Everything that is left to say."""
        if not self._packet_id:  # a request that was gone on with had its id before
            await self.on_start(result.route.packet_id)
        calls = result.route.tool_calls
        rest = get_unstreamed_text(result.text, "".join(self._said))
        if result.refusal and not self._said:
            await self._send_refusal(result.refusal)
        elif rest or not (self._said or calls):
            await self.on_text(rest)
        await self._send_created()
        if self._said:
            await self._finish_text(result.text)
        for index, call in enumerate(calls, start=int(bool(self._said))):
            await self._send_call(index, call)
        final = _complete_response(self._build_current_response(), result, extension=self._extension)
        kind = "response.incomplete" if final["status"] == "incomplete" else "response.completed"
        await self._send_event(kind, response=final)

    async def fail(self, error: HttpError) -> None:
        """The answer breaks off: the client is told in the stream."""
        fields = get_fields(format_error(error)["error"])
        named = {name: fields.get(name) for name in ("code", "message", "param")}
        await self._send_event("error", **named)

    async def _finish_text(self, text: str) -> None:
        await self._send_event(
            "response.output_text.done", **self._get_text_position(), text=text, logprobs=[]
        )
        await self._finish_part(_build_text_part(text))

    async def _send_refusal(self, text: str) -> None:
        """A part of its own kind, at once: a refusal is short."""
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
        begun, ended = _build_call_item(call, arguments="", status="in_progress"), _build_call_item(call)
        at = {"item_id": ended["id"], "output_index": index}
        await self._send_item("added", index, begun)
        await self._send_event("response.function_call_arguments.delta", **at, delta=ended["arguments"])
        await self._send_event(
            "response.function_call_arguments.done",
            **at,
            arguments=ended["arguments"],
            name=ended["name"],
        )
        await self._send_item("done", index, ended)

    def _get_text_position(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._packet_id}", "output_index": 0, "content_index": 0}

    def _build_current_response(self) -> dict[str, Any]:
        return _build_response_body(self._packet_id, self._created, self._question)

    async def _send_created(self) -> None:
        if not self._introduced:
            self._introduced = True
            await self._send_event("response.created", response=self._build_current_response())
            await self._send_event("response.in_progress", response=self._build_current_response())

    async def _send_item(self, what: str, index: int, item: JsonObject) -> None:
        await self._send_event(f"response.output_item.{what}", output_index=index, item=item)

    async def _send_part(self, what: str, part: JsonObject) -> None:
        await self._send_event(f"response.content_part.{what}", **self._get_text_position(), part=part)

    async def _send_event(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        await self._line.send_event(encode_json(event), event=kind)
