"""Waiting for what people do in the console: decide about a pending call, or sign in to a server. The URLs of
the pages for it.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from typing import Final
from urllib.parse import quote

import anyio

from fingerpost.errors import StoreError
from fingerpost.events import ApprovalDecided
from fingerpost.records import Decision
from fingerpost.router import Router

CHECK_INTERVAL_S: Final = 1.0  # decisions in other processes are found only by polling
SIGN_IN_CHECK_INTERVAL_S: Final = 5.0  # sign-ins in other processes, too
SIGN_IN_LINK_SECONDS: Final = 600.0
_LINK_PATTERN = re.compile(r"([0-9a-f]{8,12})-[0-9a-f]{16}-[0-9a-f]{32}")


async def wait_for_decision(router: Router, pending_id: str, seconds: float) -> bool:
    """Wait until the call is decided or expired. Return whether that happened within `seconds`."""
    decided = False
    with anyio.move_on_after(seconds), router.live.subscribe() as events:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                nonlocal decided
                async for event in events:
                    if isinstance(event, ApprovalDecided) and event.pending_id == pending_id:
                        decided = True
                        tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            while not await _is_decided(router, pending_id):  # noqa: ASYNC110 - other processes send no event
                await anyio.sleep(CHECK_INTERVAL_S)
            decided = True
            tasks.cancel_scope.cancel()
    return decided


async def _is_decided(router: Router, pending_id: str) -> bool:
    try:
        pending = await router.store.approvals.get(pending_id)
    except StoreError:  # the store may recover before the timeout
        return False
    return pending is None or pending.decision is not Decision.WAITING


def build_approval_url(address: str, pending_id: str) -> str:
    """Return the URL of the console page where a person decides about a waiting call."""
    return f"{address.rstrip('/')}/#/approvals/{pending_id}"


async def wait_for_sign_in(router: Router, server: str, user: str, seconds: float) -> bool:
    """Wait until this user is signed in to the server. Return whether that happened within `seconds`."""
    done = anyio.Event()

    def note(name: str, who: str) -> None:
        if (name, who) == (server, user):
            done.set()

    stop = router.servers.subscribe_to_sign_ins(note)
    try:
        with anyio.move_on_after(seconds):
            while not done.is_set() and not await router.servers.has_user_token(server, user):
                with anyio.move_on_after(SIGN_IN_CHECK_INTERVAL_S):
                    await done.wait()
            return True
        return False
    finally:
        stop()


class SignInLinks:
    """Links to the console page where one user signs in to one server. They name neither, are made by any
    instance with the same secret, and expire.
    """

    def __init__(self, secret: bytes, *, seconds: float = SIGN_IN_LINK_SECONDS) -> None:
        self._seconds = seconds
        self._key = hmac.digest(secret, b"fingerpost/sign-in-link/1", "sha256")

    def create_id(self, user: str, server: str) -> str:
        head = f"{int(time.time() + self._seconds):08x}-{secrets.token_hex(8)}"
        return f"{head}-{self._sign(head, user, server)}"

    def is_valid(self, link: str, user: str, server: str) -> bool:
        """Return whether the link was made for this user and this server, and has not expired."""
        parts = _LINK_PATTERN.fullmatch(link)
        if parts is None or int(parts[1], 16) < time.time():
            return False
        head, _, mac = link.rpartition("-")
        return hmac.compare_digest(mac, self._sign(head, user, server))

    def _sign(self, head: str, user: str, server: str) -> str:
        text = f"{head}\n{server}\n{user}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256").hex()[:32]


def build_sign_in_url(page: str, server: str, link: str) -> str:
    """Return the URL where a user signs in to a server. `page` is that of all sign-ins."""
    return f"{page}/{quote(server, safe='')}?link={link}"
