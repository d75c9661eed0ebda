"""An outcome as the message a model gets: what the tool said is fenced off as data, what we say is not."""

from __future__ import annotations

from fingerpost.call.digest import fence_as_data
from fingerpost.llm.tool_calls import UnreadableToolCall
from fingerpost.records import Json, Outcome


def build_tool_message(outcome: Outcome) -> dict[str, Json]:
    """The outcome in the OpenAI format (`role: tool`)."""
    if outcome.success:
        note = build_cached_note(outcome)
        content = fence_as_data(outcome.content, outcome.tool) + (f"\n{note}" if note else "")
    else:
        # The reason may quote the tool or its server, so it is data; the advice is ours.
        content = f"{outcome.error}: {fence_as_data(outcome.content, outcome.tool)}\n{outcome.advice}"
    return {"role": "tool", "tool_call_id": outcome.reference or outcome.call_id, "content": content}


def build_cached_note(outcome: Outcome) -> str:
    """That a result comes from memory, and how old it is; empty for any other."""
    match outcome.metadata.get("cached"):
        case {"age_seconds": float(age)}:
            return f"This result is {age:g} s old: it comes from the cache."
        case _:
            return ""


def build_unreadable_message(call: UnreadableToolCall) -> dict[str, Json]:
    """What a model gets back for a call nobody could read."""
    name = f" of {call.name}" if call.name else ""
    content = f"invalid_parameters: the call{name} could not be read: {call.message}. Write it again."
    return {"role": "tool", "tool_call_id": call.reference or "", "content": content}
