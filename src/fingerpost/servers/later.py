"""How long a server asks to be left alone: its `Retry-After`, in seconds or as a date."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from fingerpost.records import utc_now

MAX_RETRY_AFTER = 10 * 365 * 24 * 3600.0  # whoever says more means never


def parse_retry_after(retry_after: str | None) -> float | None:
    """Seconds from now on; None where nothing was asked that can be understood."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, _get_seconds_until(when)), MAX_RETRY_AFTER)


def _get_seconds_until(when: datetime) -> float:
    return (when - utc_now()).total_seconds()
