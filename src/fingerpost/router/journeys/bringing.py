"""From what was said with a request to what the caller brings along for the model that answers."""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.choose.brought import Brought
from fingerpost.llm.content import worded
from fingerpost.records import Message
from fingerpost.router.wanted import Asking


def brought_by(asking: Asking, *, prime: str) -> Brought:
    """`prime` is who answers anyway: asking for them by name changes nothing."""
    model = asking.get("model")
    return Brought(
        tools=asking.get("caller_tools", ()),
        choice=asking.get("tool_choice"),
        since=asking.get("since", ()),
        parts=asking.get("parts", ()),
        options=asking.get("options", {}),
        own_terms=asking.get("own_terms", False),
        model=None if model in (None, "", prime) else model,
        history=asking.get("history", ()),
    )


def with_parts(fitted: Sequence[Message], written: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with what the caller wrote beside its words, as far as it is still the same.

    A beginning may have been cut off, so both are compared from their ends.
    """
    found = list(fitted)
    for behind in range(1, min(len(found), len(written)) + 1):
        if written[-behind].parts and worded(written[-behind]) == found[-behind]:
            found[-behind] = written[-behind]
    return tuple(found)
