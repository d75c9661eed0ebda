"""What a caller reads while a request waits for a person, and how it is known again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fingerpost.records import Message, Pending
from fingerpost.surfaces.completions.messages import ChatConversation, split_conversation
from fingerpost.surfaces.web.links import build_approval_url

_NOTE_PATTERN = re.compile(r"\(approval (?P<id>apr_[0-9a-f]{32})\)\s*$")


def format_approval_note(pending: Pending, address: str) -> str:
    """What the caller reads while a call waits. Its end is how the conversation is recognised later."""
    return (
        f"{pending.tool} needs a person's approval before it runs: {pending.reason}. "
        f"Approve or reject it at {build_approval_url(address, pending.pending_id)} and send any message: "
        f"I go on from there. (approval {pending.pending_id})"
    )


def split_at_note(conversation: ChatConversation) -> tuple[ChatConversation, str | None]:
    """The conversation as it was when the last answer spoke of a waiting call, and that call's id.

    Where it did not, the conversation as it is. What was said since then is no request of its own.
    """
    pending_id: str | None = None
    while not conversation.since and (found := _find_note(conversation.history)) is not None:
        at, named = found
        if pending_id not in (None, named):
            break
        pending_id = named
        conversation = split_conversation(conversation.history[:at])
    return conversation, pending_id


def _find_note(history: Sequence[Message]) -> tuple[int, str] | None:
    """Where the last answer stands, and what it waits for, if it is such a note."""
    for at in range(len(history) - 1, -1, -1):
        message = history[at]
        if message.role == "assistant" and not message.tool_calls:
            found = _NOTE_PATTERN.search(message.text)
            return None if found is None or at == 0 else (at, found["id"])
        if message.role not in ("system", "developer"):
            return None
    return None
