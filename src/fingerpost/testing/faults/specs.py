"""Misbehaving programs as entries for `Servers`."""

from __future__ import annotations

import sys

from fingerpost.records import ServerSpec


def stdio_fault(
    fault: str, *arguments: str, name: str | None = None, connect_timeout: float = 10.0
) -> ServerSpec:
    """A stdio server with this fault (see `python -m fingerpost.testing.faults.stdio` for the list)."""
    return ServerSpec(
        name=name or fault,
        transport="stdio",
        command=sys.executable,
        args=("-m", "fingerpost.testing.faults.stdio", fault, *arguments),
        connect_timeout=connect_timeout,
    )
