"""The test kit: servers made from plain records, servers that misbehave on purpose, a scripted model.

Names are loaded on first use, so that a misbehaving program starts without the MCP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fingerpost.testing.faults.http import http_fault
    from fingerpost.testing.faults.specs import stdio_fault
    from fingerpost.testing.playbooks import playbook
    from fingerpost.testing.scripted import HANG, ScriptedModel, calls
    from fingerpost.testing.tokens import MemoryTokens
    from fingerpost.testing.tools import ToolServer, tool_server
    from fingerpost.testing.web import served

_HOMES = {
    "HANG": "fingerpost.testing.scripted",
    "MemoryTokens": "fingerpost.testing.tokens",
    "ScriptedModel": "fingerpost.testing.scripted",
    "ToolServer": "fingerpost.testing.tools",
    "calls": "fingerpost.testing.scripted",
    "http_fault": "fingerpost.testing.faults.http",
    "playbook": "fingerpost.testing.playbooks",
    "served": "fingerpost.testing.web",
    "stdio_fault": "fingerpost.testing.faults.specs",
    "tool_server": "fingerpost.testing.tools",
}

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
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)
