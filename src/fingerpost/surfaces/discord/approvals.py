"""Calls that wait for a person, shown with buttons: who pressed, what it came to, wherever it was decided.

A press only decides. Whatever was decided, here or in another process, is seen by one watch, which
changes the message and has the request go on. Where each message stands is kept in the store, so a
restart loses none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import aiohttp
import anyio
import discord

from fingerpost.errors import FingerpostError, StoreError
from fingerpost.events import ApprovalDecided
from fingerpost.frozen import frozen
from fingerpost.records import Decision, Effect, Pending
from fingerpost.records.codec import from_json, to_json
from fingerpost.redaction import scrub
from fingerpost.router import Router
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord import showing
from fingerpost.surfaces.discord.buttons import ButtonAction, Interaction, build_buttons, build_reason_form
from fingerpost.surfaces.discord.note import NO_MENTIONS, Channel, ProgressMessage
from fingerpost.surfaces.discord.people import (
    DiscordPerson,
    build_conversation_id,
    explain_no_approval,
    explain_no_rejection,
    parse_channel_id,
)

log = logging.getLogger("fingerpost.discord")

POSTED_CACHE: Final = "discord_approvals"
CHECK_INTERVAL_S: Final = 1.0  # a decision made in another process is told to nobody here
POSTED_TTL_S: Final = 30 * 86_400.0
PENDING_LOOK_BACK: Final = 200  # calls, after a restart


@frozen
class PostedApproval:
    """Where a call is shown to one of the requests that wait for it.

    `mark_settled`: everything that followed from its decision was done.
    """

    pending_id: str
    packet_id: str
    channel: int
    message: int
    settled: bool = False


class DiscordApprovals:
    """Shows calls that wait, and hears what is decided about them.

    `go_on` continues the request of a decided call. `offer` shows a call of ours that nobody has shown:
    the process ended before it could, or a subagent asked.
    """

    def __init__(
        self,
        router: Router,
        settings: DiscordSettings,
        *,
        channel: Callable[[int], Awaitable[Channel | None]],
        resume: Callable[[Pending, PostedApproval], Awaitable[None]],
        show_pending: Callable[[Pending, str], Awaitable[None]],
        is_busy: Callable[[str], bool],
        start: Callable[..., None],
    ) -> None:
        self._router = router
        self._settings = settings
        self._channel = channel
        self._go_on = resume
        self._offer = show_pending
        self._is_busy = is_busy
        self._start = start
        self._open: dict[tuple[str, str], PostedApproval] = {}  # by call and request
        self._wake = anyio.Event()

    # -- showing ------------------------------------------------------------------------------------

    async def show(self, progress: ProgressMessage, pending: Pending, packet_id: str) -> None:
        """The note becomes the question, with its buttons, for one of the requests that wait for the call."""
        content, enclosed = showing.render_approval(pending)
        view = build_buttons("approve", "reject", pending_id=pending.pending_id)
        # Kept before it is shown: whoever stops us in between must not leave buttons nobody knows of.
        posted = await self._remember_posted(pending, packet_id, progress.message)
        message = await progress.replace_content(
            content, view=view, files=[each.to_discord() for each in enclosed]
        )
        if message.id != posted.message:
            posted = await self._remember_posted(pending, packet_id, message)
        self._open[pending.pending_id, packet_id] = posted

    async def _remember_posted(
        self, pending: Pending, packet_id: str, message: discord.Message
    ) -> PostedApproval:
        posted = PostedApproval(
            pending_id=pending.pending_id,
            packet_id=packet_id,
            channel=message.channel.id,
            message=message.id,
        )
        await self._store_posted(posted)
        return posted

    async def _restore_message(self, pending: Pending, posted: PostedApproval) -> None:
        """After a restart: we may have been stopped before the buttons were there."""
        channel = await self._channel(posted.channel)
        if channel is None:
            return
        try:
            message = await channel.fetch_message(posted.message)
        except discord.NotFound:
            return  # it is shown anew, like any that nobody has shown
        content, _ = showing.render_approval(pending)
        view = build_buttons("approve", "reject", pending_id=pending.pending_id)
        await message.edit(content=content, view=view, allowed_mentions=NO_MENTIONS)
        self._open[pending.pending_id, posted.packet_id] = posted

    async def show_decision(self, channel: Channel, pending: Pending, posted: PostedApproval) -> None:
        """The message says who decided, and its buttons do nothing any more."""
        view = build_buttons("approve", "reject", pending_id=pending.pending_id, disabled=True)
        try:
            message = await channel.fetch_message(posted.message)
            await message.edit(
                content=showing.render_decided(pending), view=view, allowed_mentions=NO_MENTIONS
            )
        except discord.HTTPException as error:  # somebody deleted it; the request goes on all the same
            log.info("the decision about %s could not be shown: %s", pending.pending_id, error)

    async def mark_settled(self, posted: PostedApproval) -> None:
        """Everything that followed was done."""
        await self._store_posted(replace(posted, settled=True))

    async def _store_posted(self, posted: PostedApproval) -> None:
        await self._router.store.cache.put(
            POSTED_CACHE, _build_key(posted.pending_id, posted.packet_id), to_json(posted), ttl=POSTED_TTL_S
        )

    # -- hearing ------------------------------------------------------------------------------------

    async def handle_press(
        self, interaction: Interaction, person: DiscordPerson, action: ButtonAction, pending_id: str
    ) -> None:
        """Somebody pressed a button."""
        pending = await self._router.calls.approvals.get(pending_id)
        refusal = self._explain_refusal(interaction, person, action, pending)
        if refusal is not None or pending is None:
            await _reply_privately(interaction, refusal or "Nothing is known of this call any more.")
            self._wake.set()
            return
        if action == "approve" and (pending.effect is Effect.DESTROY or showing.needs_private_view(pending)):
            await _confirm_call(interaction, pending)
            return
        if action == "reject":
            await interaction.response.send_modal(build_reason_form(pending_id))
            return
        standing = await self._record_decision(interaction, person, pending_id, Decision.APPROVED)
        if standing is not None and action == "confirm":
            await interaction.edit_original_response(content=showing.describe_decision(standing), view=None)

    async def handle_rejection(
        self, interaction: Interaction, person: DiscordPerson, pending_id: str, reason: str
    ) -> None:
        """The call was rejected, perhaps with a reason."""
        pending = await self._router.calls.approvals.get(pending_id)
        refusal = self._explain_refusal(interaction, person, "reject", pending)
        if refusal is not None:
            await _reply_privately(interaction, refusal)
            self._wake.set()
            return
        await self._record_decision(interaction, person, pending_id, Decision.REJECTED, reason=reason or None)

    async def _record_decision(
        self,
        interaction: Interaction,
        person: DiscordPerson,
        pending_id: str,
        decision: Decision,
        *,
        reason: str | None = None,
    ) -> Pending | None:
        await interaction.response.defer()
        try:
            standing = await self._router.calls.decide(pending_id, decision, by=person.caller, reason=reason)
        except FingerpostError as error:
            log.warning("%s could not be decided: %s", pending_id, error)
            await interaction.followup.send("That could not be kept. Please press again.", ephemeral=True)
            return None
        self._wake.set()
        return standing

    def _explain_refusal(
        self, interaction: Interaction, person: DiscordPerson, action: ButtonAction, pending: Pending | None
    ) -> str | None:
        """Why this press does nothing; None where it does."""
        here = interaction.channel_id
        if pending is None or here is None or pending.conversation != build_conversation_id(here):
            return "Nothing is known of this call any more."
        judge = explain_no_rejection if action == "reject" else explain_no_approval
        why = judge(self._settings, person, asker=pending.caller)
        if why is None and pending.decision is not Decision.WAITING:
            return showing.describe_decision(pending)
        return why

    # -- watching -----------------------------------------------------------------------------------

    async def watch_decisions(self) -> None:
        """See what is decided anywhere, and have it followed. Until cancelled."""
        try:
            await self._restore_posted()
        except (StoreError, discord.HTTPException, aiohttp.ClientError) as error:
            log.warning("not everything that waited could be taken up: %s", scrub(str(error)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen_for_decisions)
            while True:
                try:
                    await self._check_decisions()
                except StoreError as error:  # it may be back in a moment
                    log.warning("the store could not be asked about approvals: %s", error)
                with anyio.move_on_after(CHECK_INTERVAL_S):
                    await self._wake.wait()
                self._wake = anyio.Event()

    async def _listen_for_decisions(self) -> None:
        with self._router.live.subscribe() as events:
            async for event in events:
                if isinstance(event, ApprovalDecided):
                    self._wake.set()

    async def _restore_posted(self) -> None:
        """What stood open when we were here last; decided since then or not."""
        for pending in await self._router.store.approvals.list_recent(limit=PENDING_LOOK_BACK):
            for posted in await self._find_posted(pending):
                if pending.decision is Decision.WAITING:
                    await self._restore_message(pending, posted)
                else:
                    self._open[pending.pending_id, posted.packet_id] = posted

    async def _find_posted(self, pending: Pending) -> list[PostedApproval]:
        """Where it is shown, as far as that is not settled."""
        if parse_channel_id(pending.conversation) is None:
            return []
        keys = [_build_key(pending.pending_id, packet_id) for packet_id in pending.packets]
        kept = [await self._router.store.cache.get(POSTED_CACHE, key) for key in keys]
        posted = [from_json(PostedApproval, each) for each in kept if each is not None]
        return [each for each in posted if not each.settled]

    async def _check_decisions(self) -> None:
        waiting = {each.pending_id: each for each in await self._router.calls.approvals.list_waiting()}
        for key in [each for each in self._open if each[0] not in waiting]:
            pending = await self._router.calls.approvals.get(key[0])
            posted = self._open.pop(key)
            if pending is not None:
                self._start(self._go_on, pending, posted)
        for pending in waiting.values():
            for packet_id in self._find_unposted_packets(pending):
                await self._offer(pending, packet_id)

    def _find_unposted_packets(self, pending: Pending) -> list[str]:
        """The requests that wait for this call and to which it is not shown."""
        if parse_channel_id(pending.conversation) is None or self._is_busy(pending.conversation or ""):
            return []
        return [each for each in pending.packets if (pending.pending_id, each) not in self._open]


def _build_key(pending_id: str, packet_id: str) -> str:
    return f"{pending_id}:{packet_id}"


async def _confirm_call(interaction: Interaction, pending: Pending) -> None:
    """Show the exact call to the person who pressed the button, and ask once more."""
    shown = showing.render_exact_call(pending)
    if shown is None:
        await _reply_privately(
            interaction, "It is too long to be shown here. Decide it in the console or a terminal."
        )
        return
    words, enclosed = shown
    await interaction.response.send_message(
        words,
        view=build_buttons("confirm", pending_id=pending.pending_id),
        files=[each.to_discord() for each in enclosed],
        ephemeral=True,
        allowed_mentions=NO_MENTIONS,
    )


async def _reply_privately(interaction: Interaction, text: str) -> None:
    """To whoever pressed, and to nobody else."""
    await interaction.response.send_message(text, ephemeral=True, allowed_mentions=NO_MENTIONS)
