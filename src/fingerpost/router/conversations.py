"""Conversations over time, read back from the journal: what was said, and the question that stands open.

Secrets are masked in what comes from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fingerpost.events import AnswerGiven, Event, QuestionAsked, RequestNarrowed, RouteBegan, rebuild_packet
from fingerpost.records import Message, Mode, Packet, RouteOutcome, is_same_person
from fingerpost.store import Store

if TYPE_CHECKING:
    from fingerpost.router.route import Route

_EVENT_KINDS: Final = (RouteBegan.kind, AnswerGiven.kind, QuestionAsked.kind)


async def read_history(store: Store, conversation: str, *, caller: str | None) -> tuple[Message, ...]:
    """What was said in this conversation by this caller: another one's of the same name is another.

    A packet carries the messages before it, so the newest one that was answered tells it all.
    """
    await store.journal.flush()
    found = await store.journal.list_session_packets(conversation)
    packets = [packet for packet in found if is_same_person(packet.header.caller, caller)]
    for packet in packets:
        recorded = await store.journal.list_events(packet_id=packet.packet_id, kinds=_EVENT_KINDS)
        reply = find_reply([entry.event for entry in recorded])
        if reply is not None:
            return append_exchange(packet, reply)
    return packets[0].context.history if packets else ()


def append_exchange(packet: Packet, reply: str) -> tuple[Message, ...]:
    """The conversation with this request and its reply at the end."""
    asked = Message(role="user", text=packet.content.original_prompt)
    return (*packet.context.history, asked, Message(role="assistant", text=reply))


async def find_open_question(store: Store, conversation: str, *, caller: str | None) -> Route | None:
    """The question that ended the caller's conversation, where the next line answers it (`find_question`)."""
    for packet in await store.journal.list_session_packets(conversation, limit=1):
        if not is_same_person(packet.header.caller, caller):
            return None
        recorded = await store.journal.list_events(packet_id=packet.packet_id)
        return find_question([entry.event for entry in recorded])
    return None


def find_question(events: Sequence[Event]) -> Route | None:
    """The question that ended this packet, where the next line answers it: asked without a model, or by
    a tool in the middle of its call.

    Any other a model reads in the conversation.
    """
    from fingerpost.router.route import Route

    asked, standing = _find_last_word(events), rebuild_packet(events)
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


def find_reply(events: Sequence[Event]) -> str | None:
    """What the person was told last; None for a packet nobody set out to answer, or that waits."""
    if not any(isinstance(event, RouteBegan) for event in events):
        return None
    last = _find_last_word(events)
    if isinstance(last, QuestionAsked):
        return last.question.text
    return None if last is None else last.text


def _find_last_word(events: Sequence[Event]) -> AnswerGiven | QuestionAsked | None:
    """The answer or the question the person read last; what waits for their leave is neither."""
    for event in reversed(events):
        if isinstance(event, AnswerGiven):
            return event
        if isinstance(event, QuestionAsked) and event.question.pending_id is None:
            return event
    return None
