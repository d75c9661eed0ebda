"""Conversations read from the journal: their history and their open question. Secrets are masked there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fingerpost.events import AnswerGiven, Event, QuestionAsked, RequestNarrowed, RouteBegan, rebuild_packet
from fingerpost.records import Message, Mode, Packet, RouteOutcome, is_same_person
from fingerpost.router.route import Route

if TYPE_CHECKING:
    from fingerpost.store import Store

_EVENT_KINDS: Final = (RouteBegan.kind, AnswerGiven.kind, QuestionAsked.kind)


async def read_history(store: Store, conversation: str, *, caller: str | None) -> tuple[Message, ...]:
    """Return the messages of this caller's conversation. Another caller's conversation of the same name is
    ignored.

    A packet contains its earlier messages, so only the newest answered packet is read.
    """
    await store.journal.flush()
    found = await store.journal.list_session_packets(conversation)
    packets = [packet for packet in found if is_same_person(packet.header.caller, caller)]
    for packet in packets:
        recorded = await store.journal.list_events(packet_id=packet.packet_id, kinds=_EVENT_KINDS)
        events = [entry.event for entry in recorded]
        reply = find_reply(events)
        if reply is not None:
            began = next(event for event in events if isinstance(event, RouteBegan))
            return append_exchange(began.apply(packet), reply)
    return packets[0].context.history if packets else ()


def append_exchange(packet: Packet, reply: str) -> tuple[Message, ...]:
    """Return the packet's history with its request and the reply appended."""
    asked = Message(role="user", text=packet.content.original_prompt, by_model=is_by_model(packet))
    return (*packet.context.history, asked, Message(role="assistant", text=reply))


def is_by_model(packet: Packet) -> bool:
    """Return whether a model wrote the request: the person's words came beside it, or it is a subagent's."""
    return packet.context.words_given or packet.header.parent_id is not None


async def find_open_question(store: Store, conversation: str, *, caller: str | None) -> Route | None:
    """Return the question that the caller's next message answers (see `find_question`)."""
    for packet in await store.journal.list_session_packets(conversation, limit=1):
        if not is_same_person(packet.header.caller, caller):
            return None
        recorded = await store.journal.list_events(packet_id=packet.packet_id)
        return find_question([entry.event for entry in recorded])
    return None


def find_question(events: Sequence[Event]) -> Route | None:
    """Return the question that ended this packet if the next message answers it directly.

    That is a question asked without a model, or by a tool during its call. All other questions are read by a
    model as part of the conversation.
    """
    from fingerpost.router.route import Route

    asked, packet = _find_last_shown_event(events), rebuild_packet(events)
    narrowings = [event.narrowing for event in events if isinstance(event, RequestNarrowed)]
    if packet is None or packet.context.mode is None or not isinstance(asked, QuestionAsked):
        return None
    if packet.context.mode != Mode.KEYLESS and asked.question.call is None:
        return None
    return Route(
        packet=packet,
        outcome=RouteOutcome.ASKED,
        mode=Mode(packet.context.mode),
        answer=asked.question.text,
        question=asked.question,
        narrowing=narrowings[-1] if narrowings else None,
    )


def find_reply(events: Sequence[Event]) -> str | None:
    """Return the last text shown to the person. None if the packet was not routed, or still waits."""
    if not any(isinstance(event, RouteBegan) for event in events):
        return None
    last = _find_last_shown_event(events)
    if isinstance(last, QuestionAsked):
        return last.question.text
    return None if last is None else last.text


def _find_last_shown_event(events: Sequence[Event]) -> AnswerGiven | QuestionAsked | None:
    """Return the last answer or question shown to the person. Approval requests are ignored."""
    for event in reversed(events):
        if isinstance(event, AnswerGiven):
            return event
        if isinstance(event, QuestionAsked) and event.question.pending_id is None:
            return event
    return None
