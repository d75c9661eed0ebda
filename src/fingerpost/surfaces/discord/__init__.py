"""The Discord connector: mentions and direct messages become requests, threads become conversations.

This module imports discord.py, which is an optional dependency.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

from fingerpost.errors import ConfigError


def load_library() -> None:
    """Import discord.py. Raises `ConfigError` if it is not installed."""
    try:
        with warnings.catch_warnings():
            # It imports a deprecated standard module for voice, which is not used here.
            warnings.simplefilter("ignore", DeprecationWarning)
            library = import_module("discord")
    except ModuleNotFoundError as missing:
        message = "the Discord connector needs discord.py, which is not installed"
        raise ConfigError(message, hint="pip install 'fingerpost[discord]'") from missing
    library.VoiceClient.warn_nacl = library.VoiceClient.warn_dave = False


@contextmanager
def use_api_url(api_url: str | None) -> Generator[None]:
    """Make the library use another Discord server, in the whole process, for the duration of the block.

    The library keeps both URLs as class attributes, so they cannot be set per client.
    """
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

    kept = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    if api_url is not None:
        Route.BASE = api_url.rstrip("/")
    try:
        yield
    finally:
        Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = kept


def use_gateway(url: str) -> None:
    """Set the gateway URL of the other Discord server, as its API reports it."""
    from discord.gateway import DiscordWebSocket
    from yarl import URL

    DiscordWebSocket.DEFAULT_GATEWAY = URL(url)
