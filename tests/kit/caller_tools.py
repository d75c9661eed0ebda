"""A caller with tools of their own, a server with notes, and what a valid conversation is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fingerpost import Router
from fingerpost.errors import ModelRefused
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.llm.content import as_mapping
from fingerpost.records import JsonObject, Message
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.routers import open_router

REQUEST = "Search my notes for the budget"
SEARCH = "notes__search_notes"
DELETE = "notes__delete_note"
NO_TOOLS = ModelRefused("small refused the request (status 400): small does not support tools", model="small")


def definition(name: str, description: str = "Something of the caller's.", **more: Any) -> JsonObject:
    parameters: JsonObject = {"type": "object", "properties": {"what": {"type": "string"}}}
    function: JsonObject = {
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": True,
    }
    return {"type": "function", "function": function, **more}


PAINT = definition("paint_wall", "Paint the caller's wall.", cache_control={"type": "odd"})
OPEN = definition("open_door", "Open the caller's door.")
OWN = (PAINT, OPEN)


async def _answer(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}: the budget is 4,200 ({arguments})"


def notes() -> ToolServer:
    found = [
        tool("search_notes", "Search my notes for words.", "query", **READS),
        tool("delete_note", "Delete a note for good.", "name", **DESTROYS),
    ]
    return tool_server("notes", found, call=_answer)


@asynccontextmanager
async def open_recorder(
    folder: Path, model: ScriptedModel | None, **more: Any
) -> AsyncGenerator[tuple[Router, ToolServer]]:
    server = notes()
    async with open_router(folder, [server.spec()], model, **more) as router:
        yield router, server


def call(name: str, id: str = "call_1", /, **arguments: Any) -> JsonObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def reply_with_calls(*made: JsonObject, text: str = "") -> ModelReply:
    return ModelReply(text=text, model="scripted", finish="tool_calls", tool_calls=made)


def names_in(request: ModelRequest) -> list[str]:
    return [str(as_mapping(each.get("function")).get("name")) for each in request.tools]


def join_texts(requests: Iterable[ModelRequest]) -> str:
    return "\n".join(message.text for request in requests for message in request.messages)


def disorder(messages: Sequence[Message]) -> list[str]:
    """What a server of the OpenAI format would refuse: answers to no call, calls without an answer."""
    found: list[str] = []
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                found.append(f"message {at} answers no call before it")
            else:
                open_calls.remove(message.tool_call_id)
            continue
        if open_calls:
            found.append(f"before message {at} no answer to {open_calls}")
        open_calls = [str(each.get("id")) for each in message.tool_calls]
        if len(set(open_calls)) < len(open_calls) or "" in open_calls:
            found.append(f"message {at} has calls that cannot be told apart")
    return [*found, *(f"at the end no answer to {each}" for each in open_calls)]
