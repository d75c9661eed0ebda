"""Fingerpost's own MCP servers: useful the minute it starts, and called like all others.

Each lives in a folder of its own and is made by its `make(premises)`. In this process they are
opened together with a router (`open_router`); alone, by `fingerpost builtin NAME`.
"""

from fingerpost.builtin.host import BuiltinHost
from fingerpost.builtin.registry import SERVER_NAMES, make_server, open_router

__all__ = ["SERVER_NAMES", "BuiltinHost", "make_server", "open_router"]
