"""The one message that stands for a request until its answer does, and says meanwhile what is being done."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

import aiohttp
import anyio
import discord

from fingerpost.call.action import describe_action
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
from fingerpost.surfaces.discord.inert import escape_line

log = logging.getLogger("fingerpost.discord")

EDIT_INTERVAL_S: Final = 1.5  # between edits: Discord takes about five in five seconds
SHUTDOWN_TEXT: Final = "I was stopped before there was an answer. Please ask again."
NO_MENTIONS: Final = discord.AllowedMentions.none()

Channel = discord.abc.Messageable


class ProgressMessage:
    """A message of ours in a channel, edited now and then."""

    def __init__(
        self, channel: Channel, message: discord.Message, *, interval: float = EDIT_INTERVAL_S
    ) -> None:
        self.channel = channel
        self.message = message
        self._every = interval
        self._words = message.content
        self._shown = message.content
        self._changed = anyio.Event()

    @classmethod
    async def post(
        cls,
        channel: Channel,
        text: str,
        *,
        answering: discord.Message | None = None,
        interval: float = EDIT_INTERVAL_S,
    ) -> ProgressMessage:
        """A new message, as a reply where `answering` stands in the same channel."""
        reference = None if answering is None else answering.to_reference(fail_if_not_exists=False)
        if reference is None:
            message = await channel.send(text, allowed_mentions=NO_MENTIONS, suppress_embeds=True)
        else:
            message = await channel.send(
                text, reference=reference, allowed_mentions=NO_MENTIONS, suppress_embeds=True
            )
        return cls(channel, message, interval=interval)

    def set_text(self, text: str) -> None:
        """What is being done now; shown when it may be."""
        self._words = text
        self._changed.set()

    async def keep_updating(self) -> None:
        """Edit the message whenever there is something new, but not too often. Until cancelled."""
        while True:
            await anyio.sleep(self._every)
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._words != self._shown:
                self._shown = self._words
                # The library never recovers a rate limit whose request was cancelled half way.
                with anyio.CancelScope(shield=True):
                    await self._edit_message(self._words)

    async def _edit_message(self, text: str) -> None:
        try:
            await self.message.edit(content=text, suppress=True, allowed_mentions=NO_MENTIONS)
        except (discord.HTTPException, aiohttp.ClientError) as error:  # what matters is the answer
            log.info("progress could not be shown: %s", error)

    async def replace_content(
        self,
        content: str,
        *,
        view: discord.ui.View | None = None,
        files: Sequence[discord.File] = (),
    ) -> discord.Message:
        """The message is this from now on; a new one where somebody deleted it meanwhile."""
        try:
            return await self.message.edit(
                content=content,
                view=view,
                attachments=list(files),
                suppress=True,
                allowed_mentions=NO_MENTIONS,
            )
        except discord.NotFound:
            for file in files:
                file.reset(seek=True)
            return await send_message(self.channel, content, view=view, files=files)


async def send_message(
    channel: Channel,
    content: str,
    *,
    view: discord.ui.View | None = None,
    files: Sequence[discord.File] = (),
) -> discord.Message:
    """A message that calls nobody and shows no previews: a preview would fetch what a stranger wrote."""
    if view is None:
        return await channel.send(content, files=files, allowed_mentions=NO_MENTIONS, suppress_embeds=True)
    return await channel.send(
        content, view=view, files=files, allowed_mentions=NO_MENTIONS, suppress_embeds=True
    )


async def show_progress(
    events: AsyncIterator[Event],
    progress: ProgressMessage,
    router: Router,
    *,
    conversation: str,
    packet_id: str | None,
) -> None:
    """Say on the note what happens to one packet; where its id is not known yet, the next one that begins."""
    async for event in events:
        if packet_id is None and isinstance(event, PacketReceived):
            header = event.packet.header
            if header.session_id == conversation and header.parent_id is None:
                packet_id = event.packet_id
        if packet_id is not None and event.packet_id == packet_id:
            words = describe_event(event, router)
            if words:
                progress.set_text(words)


def describe_event(event: Event, router: Router) -> str:
    """What a person who waits reads of an event; mostly nothing."""
    if isinstance(event, CallProgressed):
        return escape_line(event.message)
    if isinstance(event, CallPrepared):
        card = router.tools.get(event.tool)
        if card is None:
            return ""
        doing = describe_action(card, event.arguments).rstrip("…")
        return f"{escape_line(doing)} with {escape_line(card.server, 60)}…"
    if isinstance(event, AttemptStarted) and event.number > 1:
        return f"Trying {escape_line(event.tool)} again…"
    if isinstance(event, RequestNarrowed):
        return "Choosing what to do…" if event.narrowing.shortlist.offered else "Thinking…"
    if isinstance(event, CallFinished):
        return "Reading what came back…"
    return ""
