"""From what was said with a request to what the caller brings along for the model that answers."""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.choose.brought import ClientOptions
from fingerpost.llm.content import to_text_only
from fingerpost.records import Message
from fingerpost.router.wanted import RouteOptions


def build_client_options(options: RouteOptions, *, prime: str) -> ClientOptions:
    """`prime` is who answers anyway: asking for them by name changes nothing."""
    model = options.get("model")
    return ClientOptions(
        tools=options.get("caller_tools", ()),
        tool_choice=options.get("tool_choice"),
        later_messages=options.get("since", ()),
        content_parts=options.get("parts", ()),
        options=options.get("options", {}),
        sets_own_limits=options.get("own_terms", False),
        model=None if model in (None, "", prime) else model,
        history=options.get("history", ()),
    )


def restore_content_parts(fitted: Sequence[Message], written: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with what the caller wrote beside its words, as far as it is still the same.

    A beginning may have been cut off, so both are compared from their ends.
    """
    found = list(fitted)
    for behind in range(1, min(len(found), len(written)) + 1):
        if written[-behind].parts and to_text_only(written[-behind]) == found[-behind]:
            found[-behind] = written[-behind]
    return tuple(found)
