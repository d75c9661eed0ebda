"""Pending calls on Discord: who may decide, the message with its buttons, and what follows a decision."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, Self, cast

import aiohttp
import anyio
import discord

from fingerpost.call.approvals import describe_effect
from fingerpost.errors import FingerpostError, StoreError
from fingerpost.events import ApprovalDecided
from fingerpost.frozen import frozen
from fingerpost.records import Decision, Effect, Pending
from fingerpost.records.codec import from_json, to_json
from fingerpost.redaction import find_secret_paths, scrub
from fingerpost.router import Router
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord.messages import (
    NO_MENTIONS,
    Channel,
    OutgoingFile,
    ProgressMessage,
    escape_line,
    format_json_value,
)

CALLER_PREFIX = "discord:"  # prefix of callers and conversations


@frozen
class DiscordPerson:
    """A Discord user. `server` is None in direct messages; `roles` are the user's roles on that server."""

    user: int
    server: int | None = None
    roles: frozenset[int] = frozenset()

    @property
    def caller(self) -> str:
        """The caller name of the user in Fingerpost."""
        return f"{CALLER_PREFIX}{self.user}"

    @property
    def ids(self) -> frozenset[str]:
        """The ids that settings may name the user by. The role that every user has does not count."""
        return frozenset(str(each) for each in (self.user, *self.roles) if each != self.server)


def build_conversation_id(channel: int) -> str:
    """Return the conversation id of a thread or direct message channel."""
    return f"{CALLER_PREFIX}{channel}"


def parse_channel_id(conversation: str | None) -> int | None:
    """Return the channel of a conversation, or None if it is not on Discord."""
    number = (conversation or "").removeprefix(CALLER_PREFIX)
    ours = conversation is not None and conversation.startswith(CALLER_PREFIX) and number.isascii()
    return int(number) if ours and number.isdigit() and len(number) <= 20 else None


def is_allowed(settings: DiscordSettings, person: DiscordPerson) -> bool:
    """Return whether the user is answered. For direct messages `server` is a server shared with the bot."""
    if settings.servers and str(person.server) not in settings.servers:
        return str(person.user) in settings.users and person.server is None
    wanted = {*settings.users, *settings.roles}
    return not wanted or not wanted.isdisjoint(person.ids)


def explain_no_approval(settings: DiscordSettings, person: DiscordPerson, *, asker: str | None) -> str | None:
    """Return why the user may not approve a call of `asker` (a caller), or None if permitted."""
    own = asker == person.caller
    if person.server is None and own:
        known = str(person.user) in {*settings.users, *settings.approvers}
        if settings.own_approvals and known:
            return None
        return (
            "You asked for this yourself and may not approve it here. "
            "The operator can, in the console or with `fingerpost approvals`."
        )
    if own:
        return "You asked for this yourself: another person has to approve it."
    if settings.servers and person.server is not None and str(person.server) not in settings.servers:
        return "Calls cannot be approved on this server."
    if set(settings.approvers).isdisjoint(person.ids):
        return "You may not approve calls. The bot's operator decides who may."
    return None


MAX_ARGUMENTS_SHOWN: Final = 900  # characters; longer arguments are attached as a file
_MAX_NAME_LENGTH: Final = 80
_MAX_REASON_SHOWN: Final = 120  # fits into a message even if every character is escaped
_MAX_ARGUMENTS_FILE_BYTES: Final = 1024 * 1024


def render_approval(pending: Pending) -> tuple[str, tuple[OutgoingFile, ...]]:
    """Return the message, and a file if the arguments are too long for it."""
    arguments, enclosed = _render_arguments(pending, exact=False)
    name = escape_line(pending.operation, _MAX_NAME_LENGTH)
    lines = [
        f"**{name}** needs approval: {describe_effect(pending)}.",
        f"```json\n{arguments}\n```",
        f"-# Why: {escape_line(pending.reason, _MAX_REASON_SHOWN)}",
        f"-# Requested by {format_person(pending.caller)}. Until <t:{int(pending.expires.timestamp())}:t>.",
    ]
    return "\n".join(lines), enclosed


def needs_private_view(pending: Pending) -> bool:
    """Return whether the channel message hides a part of the call, because it looks secret or is too long."""
    return bool(find_secret_paths(pending.arguments)) or render_exact_call(pending) is None


def render_exact_call(pending: Pending) -> tuple[str, tuple[OutgoingFile, ...]] | None:
    """Render the call without masks, for the one user who is about to approve it.

    Return None if it is too long for Discord. A call that cannot be read here is not approved here.
    """
    arguments, enclosed = _render_arguments(pending, exact=True)
    if any(len(each.data) > _MAX_ARGUMENTS_FILE_BYTES for each in enclosed):
        return None
    name = escape_line(pending.operation, _MAX_NAME_LENGTH)
    question = f"**{name}** needs approval: {describe_effect(pending)}. Run exactly this?"
    secret = bool(find_secret_paths(pending.arguments))
    note = "-# A part of it looks like a secret: the channel does not see it.\n" if secret else ""
    return f"{question}\n{note}```json\n{arguments}\n```", enclosed


def _render_arguments(pending: Pending, *, exact: bool) -> tuple[str, tuple[OutgoingFile, ...]]:
    arguments = format_json_value(pending.arguments, exact=exact)
    enclosed: tuple[OutgoingFile, ...] = ()
    if len(arguments) > MAX_ARGUMENTS_SHOWN or len(pending.operation) > _MAX_NAME_LENGTH:
        whole = {"tool": pending.tool, "operation": pending.operation, "arguments": pending.arguments}
        data = format_json_value(whole, exact=exact).encode("utf-8", "replace")
        enclosed = (OutgoingFile("call.json", data if exact else data[:_MAX_ARGUMENTS_FILE_BYTES]),)
    if len(arguments) > MAX_ARGUMENTS_SHOWN:
        cut = f"… {len(arguments):,} characters in all: see call.json"
        arguments = f"{arguments[:MAX_ARGUMENTS_SHOWN]}\n{cut}"
    return arguments, enclosed


def render_decided(pending: Pending) -> str:
    """Render the message after a decision or after the call expired."""
    text, _ = render_approval(pending)
    return f"{text.rpartition(chr(10))[0]}\n{describe_decision(pending)}"


def describe_decision(pending: Pending) -> str:
    """Return a sentence that says who decided what."""
    if pending.decision is Decision.EXPIRED:
        return "**Expired**: no decision in time; the call did not run."
    why = pending.decision_reason
    reason = f": {escape_line(why, _MAX_REASON_SHOWN)}" if why else "."
    edited = " with other arguments" if pending.edited_arguments is not None else ""
    return f"**{pending.decision.capitalize()}**{edited} by {format_person(pending.decided_by)}{reason}"


def format_person(name: str | None) -> str:
    """Format a Discord user as a mention that does not notify, and other callers by name."""
    number = (name or "").removeprefix(CALLER_PREFIX)
    if name is not None and name.startswith(CALLER_PREFIX) and number.isascii() and number.isdigit():
        return f"<@{number}>"
    return escape_line(name or "an unknown caller", 60)


ButtonAction = Literal["approve", "reject", "confirm"]
Interaction = discord.Interaction[Any]

_CUSTOM_ID_PATTERN: Final = r"fingerpost:(?P<act>approve|reject|confirm):(?P<id>apr_[0-9a-f]{32})"
_FORM_ID_PATTERN: Final = re.compile(r"fingerpost:reason:(?P<id>apr_[0-9a-f]{32})")
_REASON_FIELD_ID: Final = "reason"
MAX_REASON_LENGTH: Final = 500
FORM_TIMEOUT_S: Final = 900.0  # how long the library keeps an open form; submissions are handled without it
_BUTTON_LABELS: Final[dict[str, tuple[str, discord.ButtonStyle]]] = {
    "approve": ("Approve", discord.ButtonStyle.success),
    "reject": ("Reject", discord.ButtonStyle.secondary),
    "confirm": ("Yes, run it", discord.ButtonStyle.danger),
}


class ButtonHandler(Protocol):
    """A client that handles button presses."""

    handle_press: Callable[[Interaction, ButtonAction, str], Awaitable[None]]


class DecisionButton(discord.ui.DynamicItem["discord.ui.Button[Any]"], template=_CUSTOM_ID_PATTERN):
    """One of the three buttons."""

    def __init__(self, action: ButtonAction, pending_id: str, *, disabled: bool = False) -> None:
        label, style = _BUTTON_LABELS[action]
        custom_id = f"fingerpost:{action}:{pending_id}"
        super().__init__(discord.ui.Button(label=label, style=style, disabled=disabled, custom_id=custom_id))
        self._act: ButtonAction = action
        self._pending_id = pending_id

    @classmethod
    async def from_custom_id(
        cls, interaction: Interaction, item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        return cls(cast("ButtonAction", match["act"]), match["id"])

    async def callback(self, interaction: Interaction) -> None:
        client = cast("ButtonHandler", interaction.client)
        await client.handle_press(interaction, self._act, self._pending_id)


def build_buttons(*acts: ButtonAction, pending_id: str, disabled: bool = False) -> discord.ui.View:
    """Return a row of these buttons."""
    view = discord.ui.View(timeout=None)
    for act in acts:
        view.add_item(DecisionButton(act, pending_id, disabled=disabled))
    return view


def build_reason_form(pending_id: str) -> discord.ui.Modal:
    """Return the form that asks for the reason of a rejection. The reason is optional."""
    custom_id = f"fingerpost:reason:{pending_id}"
    form = discord.ui.Modal(title="Reject this call", custom_id=custom_id, timeout=FORM_TIMEOUT_S)
    field: discord.ui.TextInput[Any] = discord.ui.TextInput(
        custom_id=_REASON_FIELD_ID,
        style=discord.TextStyle.paragraph,
        required=False,
        max_length=MAX_REASON_LENGTH,
        placeholder="The model is told, and answers accordingly.",
    )
    form.add_item(discord.ui.Label(text="Why not? (optional)", component=field))
    return form


def parse_form(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the call id and the reason from a submitted form, or None if it is not ours."""
    found = _FORM_ID_PATTERN.fullmatch(str(data.get("custom_id")))
    return None if found is None else (found["id"], _get_value(data.get("components") or ()))


def _get_value(components: Sequence[Mapping[str, Any]]) -> str:
    for component in components:
        if component.get("custom_id") == _REASON_FIELD_ID:
            return " ".join(str(component.get("value") or "").split())[:MAX_REASON_LENGTH]
        inner = [component["component"]] if "component" in component else component.get("components") or ()
        if value := _get_value(inner):
            return value
    return ""


log = logging.getLogger("fingerpost.discord")

POSTED_CACHE: Final = "discord_approvals"
CHECK_INTERVAL_S: Final = 1.0  # decisions in other processes are found only by polling
POSTED_TTL_S: Final = 30 * 86_400.0
PENDING_LOOK_BACK: Final = 200  # calls, after a restart


@frozen
class PostedApproval:
    """The message that shows a call for one of the requests that wait for it.

    `settled`: everything that follows the decision is done.
    """

    pending_id: str
    packet_id: str
    channel: int
    message: int
    settled: bool = False


class DiscordApprovals:
    """Shows waiting calls and handles decisions about them.

    `resume` continues the request of a decided call. `show_pending` shows a call that has no message yet,
    because the process ended before, or because a subagent requested it.
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
        self._resume = resume
        self._show_pending = show_pending
        self._is_busy = is_busy
        self._start = start
        self._open: dict[tuple[str, str], PostedApproval] = {}  # by call and request
        self._wake = anyio.Event()

    async def show(self, progress: ProgressMessage, pending: Pending, packet_id: str) -> None:
        """Replace the progress message by the question and its buttons, for one of the waiting requests."""
        content, enclosed = render_approval(pending)
        view = build_buttons("approve", "reject", pending_id=pending.pending_id)
        channel, shown = progress.message.channel.id, progress.message.id
        posted = PostedApproval(
            pending_id=pending.pending_id, packet_id=packet_id, channel=channel, message=shown
        )
        # Stored before it is shown, so that no buttons stay unknown if the process ends in between.
        await self._store_posted(posted)
        files = [each.to_discord() for each in enclosed]
        message = await progress.replace_content(content, view=view, files=files)
        if message.id != posted.message:
            posted = replace(posted, channel=message.channel.id, message=message.id)
            await self._store_posted(posted)
        self._open[pending.pending_id, packet_id] = posted

    async def _restore_message(self, pending: Pending, posted: PostedApproval) -> None:
        """Restore the message after a restart. The process may have ended before the buttons were added."""
        channel = await self._channel(posted.channel)
        if channel is None:
            return
        try:
            message = await channel.fetch_message(posted.message)
        except discord.NotFound:
            return  # it is posted again, like any call without a message
        content, _ = render_approval(pending)
        view = build_buttons("approve", "reject", pending_id=pending.pending_id)
        await message.edit(content=content, view=view, allowed_mentions=NO_MENTIONS)
        self._open[pending.pending_id, posted.packet_id] = posted

    async def show_decision(self, channel: Channel, pending: Pending, posted: PostedApproval) -> None:
        """Show who decided, and disable the buttons."""
        view = build_buttons("approve", "reject", pending_id=pending.pending_id, disabled=True)
        try:
            message = await channel.fetch_message(posted.message)
            await message.edit(content=render_decided(pending), view=view, allowed_mentions=NO_MENTIONS)
        except discord.HTTPException as error:  # the message was deleted; the request continues
            log.info("the decision about %s could not be shown: %s", pending.pending_id, error)

    async def mark_settled(self, posted: PostedApproval) -> None:
        """Record that everything after the decision is done."""
        await self._store_posted(replace(posted, settled=True))

    async def _store_posted(self, posted: PostedApproval) -> None:
        key = _build_key(posted.pending_id, posted.packet_id)
        await self._router.store.cache.put(POSTED_CACHE, key, to_json(posted), ttl=POSTED_TTL_S)

    async def handle_press(
        self, interaction: Interaction, person: DiscordPerson, action: ButtonAction, pending_id: str
    ) -> None:
        """Handle a button press."""
        pending = await self._router.calls.approvals.get(pending_id)
        refusal = self._explain_refusal(interaction, person, action, pending)
        if refusal is not None or pending is None:
            await _reply_privately(interaction, refusal or "This call is not known any more.")
            self._wake.set()
            return
        if action == "approve" and (pending.effect is Effect.DESTROY or needs_private_view(pending)):
            await _confirm_call(interaction, pending)
            return
        if action == "reject":
            await interaction.response.send_modal(build_reason_form(pending_id))
            return
        decided = await self._record_decision(interaction, person, pending_id, Decision.APPROVED)
        if decided is not None and action == "confirm":
            await interaction.edit_original_response(content=describe_decision(decided), view=None)

    async def handle_rejection(
        self, interaction: Interaction, person: DiscordPerson, pending_id: str, reason: str
    ) -> None:
        """Record a rejection with an optional reason."""
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
            decided = await self._router.calls.decide(pending_id, decision, by=person.caller, reason=reason)
        except FingerpostError as error:
            log.warning("%s could not be decided: %s", pending_id, error)
            text = "The decision could not be saved. Please press again."
            await interaction.followup.send(text, ephemeral=True)
            return None
        self._wake.set()
        return decided

    def _explain_refusal(
        self, interaction: Interaction, person: DiscordPerson, action: ButtonAction, pending: Pending | None
    ) -> str | None:
        """Return why this press is refused, or None."""
        channel = interaction.channel_id
        if pending is None or channel is None or pending.conversation != build_conversation_id(channel):
            return "This call is not known any more."
        # Users may always reject their own calls.
        allowed = action == "reject" and pending.caller == person.caller
        why = None if allowed else explain_no_approval(self._settings, person, asker=pending.caller)
        if why is None and pending.decision is not Decision.WAITING:
            return describe_decision(pending)
        return why

    async def watch_decisions(self) -> None:
        """Watch for decisions, also of other processes, and resume their requests. Runs until cancelled."""
        try:
            await self._restore_posted()
        except (StoreError, discord.HTTPException, aiohttp.ClientError) as error:
            log.warning("not all pending calls could be restored: %s", scrub(str(error)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen_for_decisions)
            while True:
                try:
                    await self._check_decisions()
                except StoreError as error:  # the store may recover
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
        """Load the messages of unsettled calls from before the restart."""
        for pending in await self._router.store.approvals.list_recent(limit=PENDING_LOOK_BACK):
            for posted in await self._find_posted(pending):
                if pending.decision is Decision.WAITING:
                    await self._restore_message(pending, posted)
                else:
                    self._open[pending.pending_id, posted.packet_id] = posted

    async def _find_posted(self, pending: Pending) -> list[PostedApproval]:
        """Return the unsettled messages of a call."""
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
                self._start(self._resume, pending, posted)
        for pending in waiting.values():
            if parse_channel_id(pending.conversation) is None or self._is_busy(pending.conversation or ""):
                continue
            for packet_id in pending.packets:
                if (pending.pending_id, packet_id) not in self._open:
                    await self._show_pending(pending, packet_id)


def _build_key(pending_id: str, packet_id: str) -> str:
    return f"{pending_id}:{packet_id}"


async def _confirm_call(interaction: Interaction, pending: Pending) -> None:
    """Show the exact call to the user who pressed the button, and ask for confirmation."""
    shown = render_exact_call(pending)
    if shown is None:
        text = "It is too long to be shown here. Decide it in the console or a terminal."
        await _reply_privately(interaction, text)
        return
    text, enclosed = shown
    await interaction.response.send_message(
        text,
        view=build_buttons("confirm", pending_id=pending.pending_id),
        files=[each.to_discord() for each in enclosed],
        ephemeral=True,
        allowed_mentions=NO_MENTIONS,
    )


async def _reply_privately(interaction: Interaction, text: str) -> None:
    """Reply so that only the user who pressed the button sees it."""
    await interaction.response.send_message(text, ephemeral=True, allowed_mentions=NO_MENTIONS)
