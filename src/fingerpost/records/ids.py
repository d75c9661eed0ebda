"""Identifiers that sort by the time they were made (UUID version 7)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime


def new_id(prefix: str) -> str:
    """`pkt_019a…`: 48 bits of milliseconds, then 74 random bits; text order is time order."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & ((1 << 48) - 1)) << 80 | random
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return f"{prefix}_{value:032x}"


def utc_now() -> datetime:
    """The time, always with its zone."""
    return datetime.now(UTC)
