"""Fingerpost: the intelligent router between language models and tools.

    from fingerpost import Router, Server

    async with Router([Server.stdio("time", ["mcp-server-time"])]) as router:
        await router.connect()
        for card in router.tools.cards:
            print(card.key, card.effect.value)

Names are loaded when they are first used, so that `import fingerpost` costs next to nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the cost of importing typing
if TYPE_CHECKING:
    from fingerpost.catalog import Catalog, Snapshot
    from fingerpost.errors import ConfigError, FingerpostError
    from fingerpost.events import Event, EventSink
    from fingerpost.records import (
        Effect,
        Narrowing,
        Packet,
        ServerSpec,
        ServerState,
        ServerStatus,
        ToolCard,
    )
    from fingerpost.router import Router
    from fingerpost.servers import Server
    from fingerpost.settings import Settings, load
    from fingerpost.store import Store

__version__ = "0.1.0"

_HOMES = {
    "Catalog": "catalog",
    "ConfigError": "errors",
    "Effect": "records",
    "Event": "events",
    "EventSink": "events",
    "FingerpostError": "errors",
    "Narrowing": "records",
    "Packet": "records",
    "Router": "router",
    "Server": "servers",
    "ServerSpec": "records",
    "ServerState": "records",
    "ServerStatus": "records",
    "Settings": "settings",
    "Snapshot": "catalog",
    "Store": "store",
    "ToolCard": "records",
    "load": "settings",
}

__all__ = [
    "Catalog",
    "ConfigError",
    "Effect",
    "Event",
    "EventSink",
    "FingerpostError",
    "Narrowing",
    "Packet",
    "Router",
    "Server",
    "ServerSpec",
    "ServerState",
    "ServerStatus",
    "Settings",
    "Snapshot",
    "Store",
    "ToolCard",
    "load",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'fingerpost' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"fingerpost.{home}"), name)
