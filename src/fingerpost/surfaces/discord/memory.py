"""What was said in each conversation: kept while we run, read back from the journal after a restart."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Message, RouteOutcome
from fingerpost.router.conversations import exchange, question_in, reply_in
from fingerpost.router.route import Route
from fingerpost.store import Store

MOST_MESSAGES: Final = 60  # of one conversation; what a model is shown of it is another matter
MOST_CONVERSATIONS: Final = 500  # in memory; of others the journal tells
MOST_QUESTIONS: Final = 10  # open in one conversation
LOOKED_BACK: Final = 20  # packets


@frozen
class Talk:
    """A conversation so far: what was said, who asked, and what they were asked back."""

    history: tuple[Message, ...] = ()
    askers: frozenset[str] = frozenset()
    asked: tuple[Route, ...] = ()  # each waits for the answer of whoever asked it

    def question_to(self, caller: str) -> Route | None:
        """What this person was asked."""
        return next((each for each in self.asked if each.packet.header.caller == caller), None)


class Conversations:
    """The conversations of the connector."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._talks: OrderedDict[str, Talk] = OrderedDict()

    async def recall(self, conversation: str) -> Talk:
        """What was said. Secrets are masked in what comes from the journal."""
        if conversation not in self._talks:
            self._put(conversation, await self._restored(conversation))
        self._talks.move_to_end(conversation)
        return self._talks[conversation]

    def keep(self, conversation: str, before: Talk, route: Route) -> None:
        """The conversation with this request and what came of it at the end."""
        said = Message(role="user", text=route.packet.content.original_prompt)
        reply = Message(role="assistant", text=route.answer)
        caller = route.packet.header.caller
        now = self._talks.get(conversation, before)
        others = tuple(each for each in now.asked if each.packet.header.caller != caller)
        # While a call waits for a person the request is open: it is told of when there is an answer.
        told = () if route.outcome is RouteOutcome.WAITING else (said, reply)
        talk = Talk(
            history=(*now.history, *told)[-MOST_MESSAGES:],
            askers=now.askers if caller is None else now.askers | {caller},
            asked=(*others[-MOST_QUESTIONS:], *((route,) if route.outcome is RouteOutcome.ASKED else ())),
        )
        self._put(conversation, talk)

    def _put(self, conversation: str, talk: Talk) -> None:
        self._talks[conversation] = talk
        if len(self._talks) > MOST_CONVERSATIONS:
            self._talks.popitem(last=False)

    async def _restored(self, conversation: str) -> Talk:
        """A packet carries the messages before it, so the newest one that was answered tells it all."""
        journal = self._store.journal
        await journal.flush()
        found = await journal.packets_of(conversation, limit=LOOKED_BACK)
        packets = [packet for packet in found if packet.header.parent_id is None]
        callers = frozenset(packet.header.caller for packet in packets if packet.header.caller)
        talk = Talk(askers=callers)
        for number, packet in enumerate(packets):
            events = [entry.event for entry in await journal.events(packet_id=packet.packet_id)]
            reply = reply_in(events)
            if reply is None:
                continue
            asked = question_in(events) if number == 0 else None
            history = exchange(packet, reply)[-MOST_MESSAGES:]
            return replace(talk, history=history, asked=() if asked is None else (asked,))
        return talk
