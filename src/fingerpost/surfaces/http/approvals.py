"""Waiting for the decision about a pending call, and the URL of its console page."""

from __future__ import annotations

from typing import Final

import anyio

from fingerpost.errors import StoreError
from fingerpost.events import ApprovalDecided
from fingerpost.records import Decision
from fingerpost.router import Router

CHECK_INTERVAL_S: Final = 1.0  # decisions in other processes are found only by polling


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
