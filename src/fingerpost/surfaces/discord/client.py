"""The Discord client: which messages are addressed to the bot, and the connection until it is stopped."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import aiohttp
import anyio
import discord
from anyio.abc import TaskGroup
from discord.http import Route

from fingerpost.catalog import escape_invisible_except
from fingerpost.errors import ConfigError, FingerpostError, ServerUnavailable
from fingerpost.frozen import frozen
from fingerpost.redaction import register_secret, scrub
from fingerpost.router import Router
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord import use_api_url, use_gateway
from fingerpost.surfaces.discord.approvals import (
    ButtonAction,
    DecisionButton,
    DiscordPerson,
    Interaction,
    build_conversation_id,
    is_allowed,
    parse_form,
)
from fingerpost.surfaces.discord.connector import DiscordConnector, IncomingMessage
from fingerpost.surfaces.discord.messages import EDIT_INTERVAL_S, NO_MENTIONS, Channel

log = logging.getLogger("fingerpost.discord")

MAX_SERVERS: Final = 25  # searched for the sender of a direct message
MEMBERSHIP_TTL_S: Final = 300.0
MAX_REMEMBERED: Final = 1_000
_MESSAGE_TYPES: Final = (discord.MessageType.default, discord.MessageType.reply)


class DiscordBot(discord.Client):
    """The client. It caches no members and no messages, because each message contains what is needed."""

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
        find = self.find_channel
        self.connector = DiscordConnector(router, settings, tasks, channel=find, interval=interval)
        self.arrived = anyio.Event()
        self._known: OrderedDict[int, tuple[bool, float]] = OrderedDict()

    async def setup_hook(self) -> None:
        self.add_dynamic_items(DecisionButton)
        if self._settings.api_url is not None:
            response: dict[str, Any] = await self.http.request(Route("GET", "/gateway"))
            use_gateway(response["url"])

    async def on_connect(self) -> None:
        self.arrived.set()

    async def find_channel(self, channel: int) -> Channel | None:
        """Return the channel with this id if the bot can write there."""
        try:
            found = self.get_channel(channel) or await self.fetch_channel(channel)
        except discord.HTTPException as error:
            log.info("channel %s is out of reach: %s", channel, error)
            return None
        return found if isinstance(found, discord.abc.Messageable) else None

    async def on_message(self, message: discord.Message) -> None:
        if message.author.bot or message.webhook_id is not None or message.type not in _MESSAGE_TYPES:
            return
        self.connector.start(self._handle_message, message)

    async def _handle_message(self, message: discord.Message) -> None:
        person = build_person(message.author, message.guild)
        if not await self._is_addressed(message, person) or not await self._is_answered(person, message):
            return
        text = message.content
        for user in message.mentions:
            own = self.user is not None and user.id == self.user.id
            for written in (f"<@{user.id}>", f"<@!{user.id}>"):
                text = text.replace(written, "" if own else f"@{user.name}")
        incoming = IncomingMessage(message=message, person=person, text=text.strip())
        await self.connector.answer_message(incoming)

    async def _is_addressed(self, message: discord.Message, person: DiscordPerson) -> bool:
        """Return whether it is a direct message, mentions the bot, or continues a caller's thread with it."""
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
            return False  # addressed to another user
        conversation = await self.connector.conversations.load(build_conversation_id(thread.id))
        return person.caller in conversation.askers

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
        """Return whether the sender of a direct message is allowed on a server shared with the bot."""
        settings = self._settings
        if not settings.servers and not settings.roles:
            return False
        shared = [guild for guild in self.guilds if not settings.servers or str(guild.id) in settings.servers]
        for guild in shared[:MAX_SERVERS]:
            try:
                member = await guild.fetch_member(user)
            except discord.HTTPException:  # not a member
                continue
            if is_allowed(settings, build_person(member, guild)):
                return True
        return False

    async def handle_press(self, interaction: Interaction, action: ButtonAction, pending_id: str) -> None:
        """Handle a button press for a waiting call."""
        person = build_person(interaction.user, interaction.guild, server=interaction.guild_id)
        await self.connector.approvals.handle_press(interaction, person, action, pending_id)

    async def on_interaction(self, interaction: Interaction) -> None:
        """Handle a submitted form. Button presses have their own handler."""
        if interaction.type is not discord.InteractionType.modal_submit:
            return
        if (given := parse_form(cast("Mapping[str, Any]", interaction.data or {}))) is not None:
            person = build_person(interaction.user, interaction.guild, server=interaction.guild_id)
            self.connector.start(self.connector.approvals.handle_rejection, interaction, person, *given)


def build_person(
    user: discord.User | discord.Member, guild: discord.Guild | None, *, server: int | None = None
) -> DiscordPerson:
    """Return the user with the roles on that server."""
    roles = [] if not isinstance(user, discord.Member) else user.roles
    return DiscordPerson(
        user=user.id, server=server if guild is None else guild.id, roles=frozenset(role.id for role in roles)
    )


CLOSE_TIMEOUT_S: Final = 5.0
MAX_LINE_LENGTH: Final = 500
PORTAL_URL: Final = "https://discord.com/developers/applications"


class OneLineHandler(logging.Handler):
    """Formats log records of the library on one line, without tracebacks and secrets.

    `write` shows a line to the operator of the connector.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        why = f" ({type(error).__name__}: {error})" if error is not None else ""
        line = " ".join(scrub(f"{record.getMessage()}{why}").split())
        self._write(escape_invisible_except(line)[:MAX_LINE_LENGTH])


@frozen
class BotConnection:
    """An open connection. `lost` is set when it has ended permanently; `errors` then contains the reason."""

    own: discord.ClientUser
    servers: int
    lost: anyio.Event
    errors: list[FingerpostError]


@asynccontextmanager
async def connect_bot(
    router: Router, settings: DiscordSettings, *, interval: float = EDIT_INTERVAL_S
) -> AsyncGenerator[BotConnection]:
    """Log in and listen. Raises `ConfigError` or `ServerUnavailable`."""
    token = get_token(settings)
    if settings.profile is not None:
        router.profiles.get_profile(settings.profile)  # raises if it does not exist
    lost, errors, connected = anyio.Event(), list[FingerpostError](), False
    with use_api_url(settings.api_url):
        async with anyio.create_task_group() as connection_tasks:
            # Requests end before the connection, because each may have to send a shutdown message.
            async with anyio.create_task_group() as tasks:
                bot = DiscordBot(router, settings, tasks, interval=interval)

                async def listen() -> None:
                    try:
                        await bot.start(token)
                    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
                        errors.append(explain_error(error))
                    finally:
                        lost.set()
                        bot.arrived.set()
                        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                            await bot.close()

                connection_tasks.start_soon(listen)
                try:
                    await bot.arrived.wait()
                    if bot.user is not None and not errors:
                        connected = True
                        tasks.start_soon(bot.connector.approvals.watch_decisions)
                        yield BotConnection(own=bot.user, servers=len(bot.guilds), lost=lost, errors=errors)
                finally:
                    tasks.cancel_scope.cancel()
            connection_tasks.cancel_scope.cancel()
    if not connected:
        closed = ServerUnavailable("Discord closed the connection", server="discord", hint="try again")
        raise errors[0] if errors else closed


def get_token(settings: DiscordSettings) -> str:
    """Return the bot's token and register it as a secret. Raises `ConfigError` if there is none."""
    token = (settings.token or "").strip().removeprefix("Bot ").strip()
    if not token or token.startswith("${"):  # variables are expanded only in the settings of servers
        raise ConfigError(
            "the Discord token is missing",
            hint=f"make an application with a bot at {PORTAL_URL}, and put the bot's token into the "
            "environment variable FINGERPOST_DISCORD__TOKEN; docs/how-to/discord.md has every step",
        )
    register_secret(token)
    return token


def explain_error(error: Exception) -> FingerpostError:
    """Convert a connection error to one that says what to do."""
    if isinstance(error, discord.LoginFailure):
        message = "Discord does not accept the bot's token"
        return ConfigError(message, hint=f"reset the token at {PORTAL_URL} (Bot), and set discord.token anew")
    if isinstance(error, discord.PrivilegedIntentsRequired):
        message = "Discord does not let this bot read messages"
        return ConfigError(
            message,
            hint=f"enable the Message Content Intent at {PORTAL_URL} (Bot, Privileged Gateway Intents)",
        )
    message = f"Discord cannot be reached: {scrub(str(error))[:300] or type(error).__name__}"
    return ServerUnavailable(message, server="discord", hint="try again in a few minutes")
