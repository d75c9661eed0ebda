"""Callers on this machine: programs Fingerpost started, and one-time sign-in tickets of the operator."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.records import Grant, utc_now
from fingerpost.records.access import DECIDING_RIGHTS, Principal
from fingerpost.settings.validation import is_loopback
from fingerpost.store import Store

MARK: Final = "FINGERPOST_COMMAND"  # as in `servers/watchdog.py`; that package is slow to import

_PROC: Final = Path("/proc")
_MAX_PARENTS: Final = 64
_MAX_REMEMBERED: Final = 1000  # connections
_known_peers: OrderedDict[Peer, bool] = OrderedDict()


@frozen(kw_only=False)
class Peer:
    """Both ends of a TCP connection."""

    host: str
    port: int
    own_host: str
    own_port: int

    @classmethod
    def from_addresses(cls, client: tuple[str, int] | None, server: tuple[str, int] | None) -> Peer | None:
        """Return the local connection of an ASGI request (`scope["client"]`, `scope["server"]`), or None."""
        if not client or not server:
            return None
        # A connection from this machine to its own external address has the same host at both ends.
        is_local = client[0] == server[0] or is_loopback(client[0])
        return cls(client[0], client[1], server[0], server[1]) if is_local else None


async def drop_decision_rights(principal: Principal, peer: Peer | None) -> Principal:
    """Return the principal, without rights to decide if a program that Fingerpost started sent this."""
    if DECIDING_RIGHTS.isdisjoint(principal.rights) or not await is_tool_peer(peer):
        return principal
    return replace(
        principal, rights=tuple(right for right in principal.rights if right not in DECIDING_RIGHTS)
    )


async def is_tool_peer(peer: Peer | None) -> bool:
    """Return whether the program at the other end was started by Fingerpost. Looked up once, in a thread."""
    if peer is None or sys.platform != "linux":
        return False
    known = _known_peers.get(peer)
    if known is None:
        known = await anyio.to_thread.run_sync(_is_opened_by_tool, peer)
        _known_peers[peer] = known
        if len(_known_peers) > _MAX_REMEMBERED:
            _known_peers.popitem(last=False)
    return known


def is_started_by_tool() -> bool:
    """Return whether this process was started by Fingerpost, directly or through other processes."""
    return MARK in os.environ or is_tool_process(os.getpid())


def is_tool_process(process: int) -> bool:
    """Return whether the process or one of its parents has our marker."""
    for _ in range(_MAX_PARENTS):
        if _is_marked(process):
            return True
        process = _get_parent(process)
        if process <= 1:
            return False
    return False


def _is_opened_by_tool(peer: Peer) -> bool:
    inode = _find_inode(peer)
    if inode is None:
        return False
    wanted = f"socket:[{inode}]"
    # Several processes may share a socket. One tool among them is enough.
    return any(is_tool_process(process) for process in _find_holders(wanted))


def _find_inode(peer: Peer) -> str | None:
    """Return the inode of the client's socket from the kernel's table."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        theirs, ours = (
            _format_socket_address(peer.host, peer.port, family),
            _format_socket_address(peer.own_host, peer.own_port, family),
        )
        if theirs is None or ours is None:
            continue
        try:
            rows = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[1:3] == [theirs, ours]:
                return fields[9]
    return None


def _format_socket_address(host: str, port: int, family: socket.AddressFamily) -> str | None:
    """Return `address:port` as in /proc, such as `0100007F:21C2` (address words in host byte
    order).
    """
    address = ip_address(host.partition("%")[0])
    if family == socket.AF_INET6 and address.version == 4:
        address = ip_address(f"::ffff:{address}")
    if (address.version == 6) is not (family == socket.AF_INET6):
        return None
    words = struct.unpack(f"!{len(address.packed) // 4}I", address.packed)
    return f"{struct.pack(f'={len(words)}I', *words).hex().upper()}:{port:04X}"


def _find_holders(wanted: str) -> Iterator[int]:
    """Yield the processes that have this socket open, as far as we may see them."""
    for process in (name for name in _list_folder(str(_PROC)) if name.isdigit()):
        handles = f"{_PROC}/{process}/fd"
        if any(_read_link(f"{handles}/{handle}") == wanted for handle in _list_folder(handles)):
            yield int(process)


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - thousands of names, in a hurry
    except OSError:  # the process ended, or belongs to another user
        return []


def _read_link(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - as above
    except OSError:  # closed meanwhile
        return ""


def _is_marked(process: int) -> bool:
    try:
        environment = (_PROC / str(process) / "environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(f"{MARK}=".encode()) for entry in environment.split(b"\0"))


def _get_parent(process: int) -> int:
    """Return the parent's process id, or 0 if it is unknown."""
    try:
        stat = (_PROC / str(process) / "stat").read_bytes()
    except OSError:
        return 0
    fields = stat[stat.rfind(b")") + 1 :].split()  # the process name before it may contain any character
    return int(fields[1]) if len(fields) > 1 else 0


TICKET_LIFETIME_S: Final = 600.0

_TICKETS_CACHE: Final = "console_tickets"
_SERVING_CACHE: Final = "serving"
_ADDRESS_KEY: Final = "address"


async def create_ticket(store: Store) -> str:
    """Create a ticket that opens one session of the operator. It is not stored in readable form."""
    ticket = secrets.token_urlsafe(32)
    await store.cache.put(_TICKETS_CACHE, _hash_ticket(ticket), b"operator", ttl=TICKET_LIFETIME_S)
    return ticket


async def redeem_ticket(store: Store, ticket: str) -> bool:
    """Use up the ticket. Return whether it was valid: once, for all processes on the same store."""
    mark = _hash_ticket(ticket)
    if await store.cache.get(_TICKETS_CACHE, mark) is None:
        return False
    now = utc_now()
    use = Grant(
        grant_id=f"gnt_{mark[:32]}",
        granted_by="console: leave to use one ticket",
        granted_at=now,
        expires=now + timedelta(seconds=2 * TICKET_LIFETIME_S),  # longer than the ticket
        call_fingerprint=f"ticket {mark}",
    )
    return await store.grants.add_and_spend(use, now=now)


def build_sign_in_url(address: str, ticket: str) -> str:
    """Return the sign-in URL. The ticket is in the fragment, which browsers do not send to servers."""
    return f"{address.rstrip('/')}/#/sign-in/{ticket}"


async def save_address(store: Store, address: str) -> None:
    """Store the console's address, for the command that prints a link to it."""
    await store.cache.put(_SERVING_CACHE, _ADDRESS_KEY, address.encode())


async def read_address(store: Store) -> str | None:
    """Return where the console was last served on this store."""
    kept = await store.cache.get(_SERVING_CACHE, _ADDRESS_KEY)
    return kept.decode() if kept else None


def _hash_ticket(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
