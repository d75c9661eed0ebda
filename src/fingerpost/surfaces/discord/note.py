"""The one message that stands for a request until its answer does, and says meanwhile what is being done."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

import aiohttp
import anyio
import discord

from fingerpost.call.action import action_words
from fingerpost.events import (
    AttemptStarted,
    CallFinished,
    CallPrepared,
    CallProgressed,
    Event,
    PacketReceived,
    RequestNarrowed,
)
from fingerpost.router import Router
from fingerpost.surfaces.discord.inert import plain

log = logging.getLogger("fingerpost.discord")

EVERY_S: Final = 1.5  # between edits: Discord takes about five in five seconds
STOPPED: Final = "I was stopped before there was an answer. Please ask again."
NOBODY: Final = discord.AllowedMentions.none()

Channel = discord.abc.Messageable


class Note:
    """A message of ours in a channel, edited now and then."""

    def __init__(self, channel: Channel, message: discord.Message, *, every: float = EVERY_S) -> None:
        self.channel = channel
        self.message = message
        self._every = every
        self._words = message.content
        self._shown = message.content
        self._changed = anyio.Event()

    @classmethod
    async def post(
        cls,
        channel: Channel,
        words: str,
        *,
        answering: discord.Message | None = None,
        every: float = EVERY_S,
    ) -> Note:
        """A new message, as a reply where `answering` stands in the same channel."""
        reference = None if answering is None else answering.to_reference(fail_if_not_exists=False)
        if reference is None:
            message = await channel.send(words, allowed_mentions=NOBODY, suppress_embeds=True)
        else:
            message = await channel.send(
                words, reference=reference, allowed_mentions=NOBODY, suppress_embeds=True
            )
        return cls(channel, message, every=every)

    def say(self, words: str) -> None:
        """What is being done now; shown when it may be."""
        self._words = words
        self._changed.set()

    async def keep_showing(self) -> None:
        """Edit the message whenever there is something new, but not too often. Until cancelled."""
        while True:
            await anyio.sleep(self._every)
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._words != self._shown:
                self._shown = self._words
                # The library never recovers a rate limit whose request was cancelled half way.
                with anyio.CancelScope(shield=True):
                    await self._edit(self._words)

    async def _edit(self, words: str) -> None:
        try:
            await self.message.edit(content=words, suppress=True, allowed_mentions=NOBODY)
        except (discord.HTTPException, aiohttp.ClientError) as error:  # what matters is the answer
            log.info("progress could not be shown: %s", error)

    async def become(
        self,
        content: str,
        *,
        view: discord.ui.View | None = None,
        files: Sequence[discord.File] = (),
    ) -> discord.Message:
        """The message is this from now on; a new one where somebody deleted it meanwhile."""
        try:
            return await self.message.edit(
                content=content, view=view, attachments=list(files), suppress=True, allowed_mentions=NOBODY
            )
        except discord.NotFound:
            for file in files:
                file.reset(seek=True)
            return await send(self.channel, content, view=view, files=files)


async def send(
    channel: Channel,
    content: str,
    *,
    view: discord.ui.View | None = None,
    files: Sequence[discord.File] = (),
) -> discord.Message:
    """A message that calls nobody and shows no previews: a preview would fetch what a stranger wrote."""
    if view is None:
        return await channel.send(content, files=files, allowed_mentions=NOBODY, suppress_embeds=True)
    return await channel.send(content, view=view, files=files, allowed_mentions=NOBODY, suppress_embeds=True)


async def watch(
    events: AsyncIterator[Event], note: Note, router: Router, *, conversation: str, packet_id: str | None
) -> None:
    """Say on the note what happens to one packet; where its id is not known yet, the next one that begins."""
    async for event in events:
        if packet_id is None and isinstance(event, PacketReceived):
            header = event.packet.header
            if header.session_id == conversation and header.parent_id is None:
                packet_id = event.packet_id
        if packet_id is not None and event.packet_id == packet_id:
            words = words_for(event, router)
            if words:
                note.say(words)


def words_for(event: Event, router: Router) -> str:
    """What a person who waits reads of an event; mostly nothing."""
    if isinstance(event, CallProgressed):
        return plain(event.message)
    if isinstance(event, CallPrepared):
        card = router.tools.get(event.tool)
        if card is None:
            return ""
        doing = action_words(card, event.arguments).rstrip("…")
        return f"{plain(doing)} with {plain(card.server, 60)}…"
    if isinstance(event, AttemptStarted) and event.number > 1:
        return f"Trying {plain(event.tool)} again…"
    if isinstance(event, RequestNarrowed):
        return "Choosing what to do…" if event.narrowing.shortlist.offered else "Thinking…"
    if isinstance(event, CallFinished):
        return "Reading what came back…"
    return ""
