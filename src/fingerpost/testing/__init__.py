"""The test kit: servers from plain records, servers with faults, and a scripted model.

Names are imported on first use, so that a faulty program starts without the MCP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fingerpost.testing.faults.http import http_fault
    from fingerpost.testing.models import HANG, ScriptedModel, calls, playbook
    from fingerpost.testing.servers import MemoryTokens, ToolServer, served, stdio_fault, tool_server

_NAMES = {
    "faults.http": "http_fault",
    "models": "HANG ScriptedModel calls playbook",
    "servers": "MemoryTokens ToolServer served stdio_fault tool_server",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "HANG",
    "MemoryTokens",
    "ScriptedModel",
    "ToolServer",
    "calls",
    "http_fault",
    "playbook",
    "served",
    "stdio_fault",
    "tool_server",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fingerpost.testing.{_MODULES[name]}"), name)
