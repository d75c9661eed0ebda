"""What was said in each conversation: kept while we run, read back from the journal after a restart."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Message, RouteOutcome
from fingerpost.router.conversations import append_exchange, find_question, find_reply
from fingerpost.router.route import Route
from fingerpost.store import Store

MAX_MESSAGES: Final = 60  # of one conversation; what a model is shown of it is another matter
MAX_CONVERSATIONS: Final = 500  # in memory; of others the journal tells
MAX_QUESTIONS: Final = 10  # open in one conversation
JOURNAL_LOOK_BACK: Final = 20  # packets


@frozen
class DiscordConversation:
    """A conversation so far: what was said, who asked, and what they were asked back."""

    history: tuple[Message, ...] = ()
    askers: frozenset[str] = frozenset()
    asked: tuple[Route, ...] = ()  # each waits for the answer of whoever asked it

    def get_question(self, caller: str) -> Route | None:
        """What this person was asked."""
        return next((each for each in self.asked if each.packet.header.caller == caller), None)


class DiscordConversations:
    """The conversations of the connector."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._talks: OrderedDict[str, DiscordConversation] = OrderedDict()

    async def load(self, conversation: str) -> DiscordConversation:
        """What was said. Secrets are masked in what comes from the journal."""
        if conversation not in self._talks:
            self._cache(conversation, await self._restore_from_journal(conversation))
        self._talks.move_to_end(conversation)
        return self._talks[conversation]

    def remember(self, conversation: str, before: DiscordConversation, route: Route) -> None:
        """The conversation with this request and what came of it at the end."""
        said = Message(role="user", text=route.packet.content.original_prompt)
        reply = Message(role="assistant", text=route.answer)
        caller = route.packet.header.caller
        now = self._talks.get(conversation, before)
        others = tuple(each for each in now.asked if each.packet.header.caller != caller)
        # While a call waits for a person the request is open: it is told of when there is an answer.
        told = () if route.outcome is RouteOutcome.WAITING else (said, reply)
        talk = DiscordConversation(
            history=(*now.history, *told)[-MAX_MESSAGES:],
            askers=now.askers if caller is None else now.askers | {caller},
            asked=(*others[-MAX_QUESTIONS:], *((route,) if route.outcome is RouteOutcome.ASKED else ())),
        )
        self._cache(conversation, talk)

    def _cache(self, conversation: str, conversation_state: DiscordConversation) -> None:
        self._talks[conversation] = conversation_state
        if len(self._talks) > MAX_CONVERSATIONS:
            self._talks.popitem(last=False)

    async def _restore_from_journal(self, conversation: str) -> DiscordConversation:
        """A packet carries the messages before it, so the newest one that was answered tells it all."""
        journal = self._store.journal
        await journal.flush()
        found = await journal.list_session_packets(conversation, limit=JOURNAL_LOOK_BACK)
        packets = [packet for packet in found if packet.header.parent_id is None]
        callers = frozenset(packet.header.caller for packet in packets if packet.header.caller)
        talk = DiscordConversation(askers=callers)
        for number, packet in enumerate(packets):
            events = [entry.event for entry in await journal.list_events(packet_id=packet.packet_id)]
            reply = find_reply(events)
            if reply is None:
                continue
            asked = find_question(events) if number == 0 else None
            history = append_exchange(packet, reply)[-MAX_MESSAGES:]
            return replace(talk, history=history, asked=() if asked is None else (asked,))
        return talk
