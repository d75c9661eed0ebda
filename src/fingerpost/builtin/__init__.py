"""Fingerpost's built-in MCP servers, called like all others.

Each is created by the `make(host)` function of its module. `open_router` opens them together with a router in
this process; `fingerpost builtin NAME` runs one alone.
"""

from fingerpost.builtin.registry import SERVER_NAMES, make_server, open_router
from fingerpost.builtin.toolkit import BuiltinHost

__all__ = ["SERVER_NAMES", "BuiltinHost", "make_server", "open_router"]
