"""Fingerpost's own MCP servers: useful the minute it starts, and called like all others.

Each lives in a folder of its own and is made by its `make(premises)`. In this process they are
opened together with a router (`open_router`); alone, by `fingerpost builtin NAME`.
"""

from fingerpost.builtin.opening import open_router
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.builtin.shelf import SERVER_NAMES, make_server

__all__ = ["SERVER_NAMES", "BuiltinHost", "make_server", "open_router"]
