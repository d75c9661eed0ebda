"""Tickets: how the person whose installation this is signs in to the console without a key.

Whoever can write to the store could make a key with every right. So they show just that: a ticket, of
which the store keeps a hash, opens one session within a few minutes. Nothing that opens anything lies
in a file or in an environment, where a tool could read it.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Final

from fingerpost.records import Grant, utc_now
from fingerpost.store import Store

TICKET_S: Final = 600.0

_TICKETS: Final = "console_tickets"
_SERVING: Final = "serving"
_ADDRESS: Final = "address"


async def make_ticket(store: Store) -> str:
    """A text that opens one session of the operator. It is the only copy there will ever be."""
    ticket = secrets.token_urlsafe(32)
    await store.cache.put(_TICKETS, _mark(ticket), b"operator", ttl=TICKET_S)
    return ticket


async def use_ticket(store: Store, ticket: str) -> bool:
    """Whether the ticket is good. It never is again, in this process or another on the same store."""
    mark = _mark(ticket)
    if await store.cache.get(_TICKETS, mark) is None:
        return False
    now = utc_now()
    use = Grant(
        grant_id=f"gnt_{mark[:32]}",
        granted_by="console: leave to use one ticket",
        granted_at=now,
        expires=now + timedelta(seconds=2 * TICKET_S),  # outlives the ticket
        call_fingerprint=f"ticket {mark}",
    )
    return await store.grants.first_use(use, now=now)


def sign_in_page(address: str, ticket: str) -> str:
    """Where the ticket is used. It stands behind the `#`, which browsers send to no server."""
    return f"{address.rstrip('/')}/#/sign-in/{ticket}"


async def note_address(store: Store, address: str) -> None:
    """Keep where people reach the console, for the command that prints a link to it."""
    await store.cache.put(_SERVING, _ADDRESS, address.encode())


async def noted_address(store: Store) -> str | None:
    """Where the console was last served on this store."""
    kept = await store.cache.get(_SERVING, _ADDRESS)
    return kept.decode() if kept else None


def _mark(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
