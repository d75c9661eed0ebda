"""Conversations over time: read back from the journal, written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fingerpost.events import AnswerGiven, Event, QuestionAsked, RequestNarrowed, RouteBegan, rebuild
from fingerpost.records import Message, Mode, Packet, RouteOutcome
from fingerpost.store import Store

if TYPE_CHECKING:
    from fingerpost.router import Route

_TELLING: Final = (RouteBegan.kind, AnswerGiven.kind, QuestionAsked.kind)


async def recall(store: Store, conversation: str) -> tuple[Message, ...]:
    """What was said in this conversation, as the journal holds it: secrets are masked there.

    A packet carries the messages before it, so the newest one that was answered tells it all.
    """
    packets = await store.journal.packets_of(conversation)
    for packet in packets:
        recorded = await store.journal.events(packet_id=packet.packet_id, kinds=_TELLING)
        reply = _reply([entry.event for entry in recorded])
        if reply is not None:
            return exchange(packet, reply)
    return packets[0].context.history if packets else ()


def exchange(packet: Packet, reply: str) -> tuple[Message, ...]:
    """The conversation with this request and its reply at the end."""
    asked = Message(role="user", text=packet.content.original_prompt)
    return (*packet.context.history, asked, Message(role="assistant", text=reply))


async def open_question(store: Store, conversation: str) -> Route | None:
    """The question that ended the conversation, where the next line answers it: asked without a model, or by
    a tool in the middle of its call.

    Any other a model reads in the conversation.
    """
    from fingerpost.router import Route

    for packet in await store.journal.packets_of(conversation, limit=1):
        events = [entry.event for entry in await store.journal.events(packet_id=packet.packet_id)]
        asked, standing = _last_word(events), rebuild(events)
        narrowings = [event.narrowing for event in events if isinstance(event, RequestNarrowed)]
        if standing is None or standing.context.mode is None or not isinstance(asked, QuestionAsked):
            return None
        if standing.context.mode != Mode.KEYLESS and asked.question.call is None:
            return None
        return Route(
            packet=standing,
            outcome=RouteOutcome.ASKED,
            mode=Mode(standing.context.mode),
            answer=asked.question.text,
            question=asked.question,
            narrowing=narrowings[-1] if narrowings else None,
        )
    return None


def _reply(events: Sequence[Event]) -> str | None:
    """What the person was told last; None for a packet nobody set out to answer, or that waits."""
    if not any(isinstance(event, RouteBegan) for event in events):
        return None
    last = _last_word(events)
    if isinstance(last, QuestionAsked):
        return last.question.text
    return None if last is None else last.text


def _last_word(events: Sequence[Event]) -> AnswerGiven | QuestionAsked | None:
    """The answer or the question the person read last; what waits for their leave is neither."""
    for event in reversed(events):
        if isinstance(event, AnswerGiven):
            return event
        if isinstance(event, QuestionAsked) and event.question.pending_id is None:
            return event
    return None


def write_transcript(path: Path, messages: Sequence[Message]) -> None:
    """The conversation as Markdown in a new file that only its owner can read. Raises `OSError`."""
    names = {"user": "You", "assistant": "Fingerpost"}
    parts = [f"**{names.get(one.role, one.role)}**\n\n{one.text.strip()}\n" for one in messages]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(parts))
