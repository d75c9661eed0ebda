"""Connected to Discord, until it is told to stop."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import anyio
import discord

from fingerpost.catalog import escape_invisible_except
from fingerpost.errors import ConfigError, FingerpostError, ServerUnavailable
from fingerpost.frozen import frozen
from fingerpost.redaction import register_secret, scrub
from fingerpost.router import Router
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord.client import DiscordBot
from fingerpost.surfaces.discord.library import use_api_url
from fingerpost.surfaces.discord.note import EDIT_INTERVAL_S

CLOSE_TIMEOUT_S: Final = 5.0
MAX_LINE_LENGTH: Final = 500
PORTAL_URL: Final = "https://discord.com/developers/applications"


class OneLineHandler(logging.Handler):
    """What the library has to say, on one line each: no traceback of its own, no secret.

    `tell` shows a line to whoever runs the connector.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = write

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        why = f" ({type(error).__name__}: {error})" if error is not None else ""
        self._tell(
            escape_invisible_except(" ".join(scrub(f"{record.getMessage()}{why}").split()))[:MAX_LINE_LENGTH]
        )


@frozen
class BotConnection:
    """We are there. `lost` is set when the connection has ended for good, and `why` then says why."""

    own: discord.ClientUser
    servers: int
    lost: anyio.Event
    why: list[FingerpostError]


@asynccontextmanager
async def connect_bot(
    router: Router, settings: DiscordSettings, *, interval: float = EDIT_INTERVAL_S
) -> AsyncGenerator[BotConnection]:
    """The bot, logged in and listening. Raises `ConfigError` or `ServerUnavailable` where it cannot be."""
    token = get_token(settings)
    if settings.profile is not None:
        router.profiles.get_profile(settings.profile)  # raises where there is none
    lost, why, talked = anyio.Event(), list[FingerpostError](), False
    with use_api_url(settings.api_url):
        async with anyio.create_task_group() as line:
            # Requests end before the line does: each of them may have to say goodbye on it.
            async with anyio.create_task_group() as tasks:
                bot = DiscordBot(router, settings, tasks, interval=interval)

                async def listen() -> None:
                    try:
                        await bot.start(token)
                    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
                        why.append(explain_error(error))
                    finally:
                        lost.set()
                        bot.arrived.set()
                        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                            await bot.close()

                line.start_soon(listen)
                try:
                    await bot.arrived.wait()
                    if bot.user is not None and not why:
                        talked = True
                        tasks.start_soon(bot.connector.approvals.watch_decisions)
                        yield BotConnection(own=bot.user, servers=len(bot.guilds), lost=lost, why=why)
                finally:
                    tasks.cancel_scope.cancel()
            line.cancel_scope.cancel()
    if not talked:
        raise why[0] if why else ServerUnavailable("Discord hung up", server="discord", hint="try again")


def get_token(settings: DiscordSettings) -> str:
    """The bot's token, masked everywhere from now on. Raises `ConfigError` where there is none."""
    token = (settings.token or "").strip().removeprefix("Bot ").strip()
    if not token or token.startswith("${"):  # variables are replaced in the entries of servers alone
        message = "there is no token for Discord"
        raise ConfigError(
            message,
            hint=f"make an application with a bot at {PORTAL_URL}, and put the bot's token into the "
            "environment variable FINGERPOST_DISCORD__TOKEN; docs/discord.md has every step",
        )
    register_secret(token)
    return token


def explain_error(error: Exception) -> FingerpostError:
    """What went wrong with the connection, and what to do."""
    if isinstance(error, discord.LoginFailure):
        message = "Discord does not accept the bot's token"
        return ConfigError(message, hint=f"reset the token at {PORTAL_URL} (Bot), and set discord.token anew")
    if isinstance(error, discord.PrivilegedIntentsRequired):
        message = "Discord does not let this bot read messages"
        return ConfigError(
            message,
            hint=f"switch on the Message Content Intent at {PORTAL_URL} (Bot, Privileged Gateway Intents)",
        )
    message = f"Discord cannot be reached: {scrub(str(error))[:300] or type(error).__name__}"
    return ServerUnavailable(message, server="discord", hint="try again in a few minutes")
