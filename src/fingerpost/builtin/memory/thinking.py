"""`think`: a place to think aloud before acting. Nothing is done with it but that the trace shows it."""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.kit import BuiltinTool, ToolCaller, ToolReply
from fingerpost.records import Effect, JsonObject

THINK_TOOL: Final = "think"
MAX_THOUGHT_LENGTH: Final = 20_000


def build_think_tool() -> BuiltinTool:
    return BuiltinTool(
        name=THINK_TOOL,
        title="Think",
        description=(
            "Think something through in writing before you act: weigh what is known, plan the next steps, "
            "check a result against the rules. Changes nothing, finds nothing out and answers nothing."
        ),
        run=_run_think,
        effect=Effect.READ,
        properties={
            "thought": {
                "type": "string", "minLength": 1, "maxLength": MAX_THOUGHT_LENGTH,
                "description": "What you think"
            },
        },
        required=("thought",),
        knowledge={
            "category": "memory",
            "typical_ms": 5,
            "timeout_ms": 10_000,
            "priority": 10,
            "keywords": ("think it through", "think aloud", "step by step"),
            "purpose": "A place to think before a hard step.",
            "when": ("several tools have to be used one after another, and their results weighed",),
            "when_not": ("you want to find something out or remember it",),
        },
    )  # fmt: skip


async def _run_think(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    return ToolReply("Noted. Go on.")
