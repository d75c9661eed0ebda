"""Our side of Discord's gateway: which messages are meant for us, and from whom."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import discord
from anyio.abc import TaskGroup
from discord.http import Route

from fingerpost.router import Router
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord.buttons import ButtonAction, DecisionButton, Interaction, parse_form
from fingerpost.surfaces.discord.connector import DiscordConnector, IncomingMessage
from fingerpost.surfaces.discord.library import use_gateway
from fingerpost.surfaces.discord.note import EDIT_INTERVAL_S, NO_MENTIONS, Channel
from fingerpost.surfaces.discord.people import DiscordPerson, build_conversation_id, is_allowed

log = logging.getLogger("fingerpost.discord")

MAX_SERVERS: Final = 25  # looked through for somebody who writes in private
MEMBERSHIP_TTL_S: Final = 300.0
MAX_REMEMBERED: Final = 1_000
_MESSAGE_TYPES: Final = (discord.MessageType.default, discord.MessageType.reply)


class DiscordBot(discord.Client):
    """The client. Caches nobody and no messages: what comes with a message says enough."""

    def __init__(
        self,
        router: Router,
        settings: DiscordSettings,
        tasks: TaskGroup,
        *,
        interval: float = EDIT_INTERVAL_S,
    ) -> None:
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = intents.message_content = True
        super().__init__(
            intents=intents,
            allowed_mentions=NO_MENTIONS,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            max_messages=None,
        )
        self._settings = settings
        self.connector = DiscordConnector(
            router, settings, tasks, channel=self.find_channel, interval=interval
        )
        self.arrived = anyio.Event()
        self._known: OrderedDict[int, tuple[bool, float]] = OrderedDict()

    async def setup_hook(self) -> None:
        self.add_dynamic_items(DecisionButton)
        if self._settings.api_url is not None:
            told: dict[str, Any] = await self.http.request(Route("GET", "/gateway"))
            use_gateway(told["url"])

    async def on_connect(self) -> None:
        self.arrived.set()

    async def find_channel(self, channel: int) -> Channel | None:
        """The channel of this id, if we can write there."""
        try:
            found = self.get_channel(channel) or await self.fetch_channel(channel)
        except discord.HTTPException as error:
            log.info("channel %s is out of reach: %s", channel, error)
            return None
        return found if isinstance(found, discord.abc.Messageable) else None

    # -- messages -----------------------------------------------------------------------------------

    async def on_message(self, message: discord.Message) -> None:
        if message.author.bot or message.webhook_id is not None or message.type not in _MESSAGE_TYPES:
            return
        self.connector.start(self._handle_message, message)

    async def _handle_message(self, message: discord.Message) -> None:
        person = build_person(message.author, message.guild)
        if not await self._is_addressed(message, person) or not await self._is_answered(person, message):
            return
        await self.connector.answer_message(
            IncomingMessage(message=message, person=person, text=self._get_text(message))
        )

    async def _is_addressed(self, message: discord.Message, person: DiscordPerson) -> bool:
        """In private always; else by a mention, or by who asked before in a thread of ours."""
        if message.guild is None:
            return True
        own = self.user
        if own is None:
            return False
        if any(user.id == own.id for user in message.mentions):
            return True
        thread = message.channel
        if not isinstance(thread, discord.Thread) or thread.owner_id != own.id:
            return False
        if message.mentions or message.role_mentions or message.reference is not None:
            return False  # it is for somebody else
        talk = await self.connector.conversations.load(build_conversation_id(thread.id))
        return person.caller in talk.askers

    async def _is_answered(self, person: DiscordPerson, message: discord.Message) -> bool:
        if is_allowed(self._settings, person):
            return True
        if message.guild is not None:
            return False
        known, until = self._known.get(person.user, (False, 0.0))
        if until < time.monotonic():
            known = await self._is_allowed_member(person.user)
            self._known[person.user] = known, time.monotonic() + MEMBERSHIP_TTL_S
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def _is_allowed_member(self, user: int) -> bool:
        """Whether somebody who writes in private is one we answer on a server we share."""
        settings = self._settings
        if not settings.servers and not settings.roles:
            return False
        shared = [guild for guild in self.guilds if not settings.servers or str(guild.id) in settings.servers]
        for guild in shared[:MAX_SERVERS]:
            try:
                member = await guild.fetch_member(user)
            except discord.HTTPException:  # not there
                continue
            if is_allowed(settings, build_person(member, guild)):
                return True
        return False

    def _get_text(self, message: discord.Message) -> str:
        """What was said, without our name, and with names in place of ids."""
        text = message.content
        for user in message.mentions:
            own = self.user is not None and user.id == self.user.id
            for written in (f"<@{user.id}>", f"<@!{user.id}>"):
                text = text.replace(written, "" if own else f"@{user.name}")
        return text.strip()

    # -- buttons ------------------------------------------------------------------------------------

    async def handle_press(self, interaction: Interaction, action: ButtonAction, pending_id: str) -> None:
        """A button under a call that waits."""
        person = build_person(interaction.user, interaction.guild, server=interaction.guild_id)
        await self.connector.approvals.handle_press(interaction, person, action, pending_id)

    async def on_interaction(self, interaction: Interaction) -> None:
        """A submitted form; buttons are heard by themselves."""
        if interaction.type is not discord.InteractionType.modal_submit:
            return
        if (given := parse_form(cast("Mapping[str, Any]", interaction.data or {}))) is not None:
            person = build_person(interaction.user, interaction.guild, server=interaction.guild_id)
            self.connector.start(self.connector.approvals.handle_rejection, interaction, person, *given)


def build_person(
    user: discord.User | discord.Member, guild: discord.Guild | None, *, server: int | None = None
) -> DiscordPerson:
    """Somebody, with the roles they have there."""
    roles = [] if not isinstance(user, discord.Member) else user.roles
    return DiscordPerson(
        user=user.id,
        server=server if guild is None else guild.id,
        roles=frozenset(role.id for role in roles),
    )
