"""An outcome as the message a model gets: what the tool said is fenced off as data, what we say is not."""

from __future__ import annotations

from fingerpost.call.digest import as_data
from fingerpost.llm.tool_calls import Unreadable
from fingerpost.records import Json, Outcome


def tool_message(outcome: Outcome) -> dict[str, Json]:
    """The outcome in the OpenAI format (`role: tool`)."""
    if outcome.success:
        content = as_data(outcome.content, outcome.tool)
    else:
        # The reason may quote the tool or its server, so it is data; the advice is ours.
        content = f"{outcome.error}: {as_data(outcome.content, outcome.tool)}\n{outcome.advice}"
    return {"role": "tool", "tool_call_id": outcome.reference or outcome.call_id, "content": content}


def unreadable_message(call: Unreadable) -> dict[str, Json]:
    """What a model gets back for a call nobody could read."""
    name = f" of {call.name}" if call.name else ""
    content = f"invalid_parameters: the call{name} could not be read: {call.message}. Write it again."
    return {"role": "tool", "tool_call_id": call.reference or "", "content": content}
