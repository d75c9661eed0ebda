"""The Discord connector: mentions and direct messages become requests, threads conversations. This module
loads discord.py, an extra; all others here need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

from fingerpost.errors import ConfigError


def load_library() -> None:
    """Load discord.py. Raises `ConfigError` where it is not installed."""
    try:
        with warnings.catch_warnings():
            # It reaches for a module of Python's own that is deprecated, for voices, which we do not use.
            warnings.simplefilter("ignore", DeprecationWarning)
            library = import_module("discord")
    except ModuleNotFoundError as missing:
        message = "the Discord connector needs discord.py, which is not installed"
        raise ConfigError(message, hint="pip install 'fingerpost[discord]'") from missing
    library.VoiceClient.warn_nacl = library.VoiceClient.warn_dave = False


@contextmanager
def use_api_url(api_url: str | None) -> Generator[None]:
    """Have the library speak to another Discord than Discord's. For the whole process, while this lasts.

    The library keeps both addresses on classes, so there is no other place to say it.
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
    """Where the other Discord has its gateway, as its API says."""
    from discord.gateway import DiscordWebSocket
    from yarl import URL

    DiscordWebSocket.DEFAULT_GATEWAY = URL(url)
