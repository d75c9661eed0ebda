"""Identifiers that sort by the time they were made (UUID version 7)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from random import Random
from typing import Final

_random = Random()  # noqa: S311 - unique, not secret
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)  # or parent and child would count out the same ids
_VERSION_AND_VARIANT: Final = 0x7 << 76 | 0x2 << 62
_RANDOM_MASK: Final = (1 << 80) - 1 & ~(0xF << 76 | 0x3 << 62)


def create_id(prefix: str) -> str:
    """`pkt_019a…`: 48 bits of milliseconds, then 74 random bits; text order is time order.

    Unique, not secret: an id opens nothing. Asking the operating system for each
    would give up the interpreter's lock, and with a busy writer thread wait for it.
    """
    milliseconds = time.time_ns() // 1_000_000
    return (
        f"{prefix}_{milliseconds << 80 | _random.getrandbits(80) & _RANDOM_MASK | _VERSION_AND_VARIANT:032x}"
    )


def get_random_bits(count: int) -> int:
    """A number nobody else is likely to have. Not secret, for the same reason."""
    return _random.getrandbits(count)


def utc_now() -> datetime:
    """The time, always with its zone."""
    return datetime.now(UTC)
