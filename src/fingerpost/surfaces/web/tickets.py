"""One-time sign-in tickets for the operator's console session, without a key.

A program that can write to the store could create a key with every right, so write access to the store
is the proof: the store keeps the hash of a ticket, which opens one session within a few minutes. Neither
a file nor an environment variable holds anything that a tool could read and use.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Final

from fingerpost.records import Grant, utc_now
from fingerpost.store import Store

TICKET_LIFETIME_S: Final = 600.0

_TICKETS_KEY: Final = "console_tickets"
_SERVING_KEY: Final = "serving"
_ADDRESS_KEY: Final = "address"


async def create_ticket(store: Store) -> str:
    """A text that opens one session of the operator. It is the only copy there will ever be."""
    ticket = secrets.token_urlsafe(32)
    await store.cache.put(_TICKETS_KEY, _hash_ticket(ticket), b"operator", ttl=TICKET_LIFETIME_S)
    return ticket


async def redeem_ticket(store: Store, ticket: str) -> bool:
    """Whether the ticket is good. It never is again, in this process or another on the same store."""
    mark = _hash_ticket(ticket)
    if await store.cache.get(_TICKETS_KEY, mark) is None:
        return False
    now = utc_now()
    use = Grant(
        grant_id=f"gnt_{mark[:32]}",
        granted_by="console: leave to use one ticket",
        granted_at=now,
        expires=now + timedelta(seconds=2 * TICKET_LIFETIME_S),  # outlives the ticket
        call_fingerprint=f"ticket {mark}",
    )
    return await store.grants.add_and_spend(use, now=now)


def build_sign_in_url(address: str, ticket: str) -> str:
    """Where the ticket is used. It stands behind the `#`, which browsers send to no server."""
    return f"{address.rstrip('/')}/#/sign-in/{ticket}"


async def save_address(store: Store, address: str) -> None:
    """Keep where people reach the console, for the command that prints a link to it."""
    await store.cache.put(_SERVING_KEY, _ADDRESS_KEY, address.encode())


async def read_address(store: Store) -> str | None:
    """Where the console was last served on this store."""
    kept = await store.cache.get(_SERVING_KEY, _ADDRESS_KEY)
    return kept.decode() if kept else None


def _hash_ticket(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
