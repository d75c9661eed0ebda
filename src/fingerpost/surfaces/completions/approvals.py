"""Holding a request while a person decides, and what a caller reads when that takes too long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import anyio

from fingerpost.errors import StoreError
from fingerpost.events import ApprovalDecided
from fingerpost.records import Decision, Message, Pending
from fingerpost.router import Router
from fingerpost.surfaces.completions.messages import Talk, split
from fingerpost.surfaces.web.links import approval_page

LOOK_EVERY_S: Final = 1.0  # a decision made in another process is told to nobody here
_NOTE = re.compile(r"\(approval (?P<id>apr_[0-9a-f]{32})\)\s*$")


def note_for(pending: Pending, address: str) -> str:
    """What the caller reads while a call waits. Its end is how the conversation is recognised later."""
    return (
        f"{pending.tool} needs a person's approval before it runs: {pending.reason}. "
        f"Approve or reject it at {approval_page(address, pending.pending_id)} and send any message: "
        f"I go on from there. (approval {pending.pending_id})"
    )


def before_note(talk: Talk) -> tuple[Talk, str | None]:
    """The conversation as it was when the last answer spoke of a waiting call, and that call's id.

    Where it did not, the conversation as it is. What was said since then is no request of its own.
    """
    pending_id: str | None = None
    while not talk.since and (found := _note_in(talk.history)) is not None:
        at, named = found
        if pending_id not in (None, named):
            break
        pending_id = named
        talk = split(talk.history[:at])
    return talk, pending_id


def _note_in(history: Sequence[Message]) -> tuple[int, str] | None:
    """Where the last answer stands, and what it waits for, if it is such a note."""
    for at in range(len(history) - 1, -1, -1):
        message = history[at]
        if message.role == "assistant" and not message.tool_calls:
            found = _NOTE.search(message.text)
            return None if found is None or at == 0 else (at, found["id"])
        if message.role not in ("system", "developer"):
            return None
    return None


async def decided(router: Router, pending_id: str, seconds: float) -> bool:
    """Whether the call is decided about (or its time is over) within so many seconds."""
    found = False
    with anyio.move_on_after(seconds), router.live.subscribe() as events:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                nonlocal found
                async for event in events:
                    if isinstance(event, ApprovalDecided) and event.pending_id == pending_id:
                        found = True
                        tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            while not await _stands(router, pending_id):  # noqa: ASYNC110 - other processes tell nobody
                await anyio.sleep(LOOK_EVERY_S)
            found = True
            tasks.cancel_scope.cancel()
    return found


async def _stands(router: Router, pending_id: str) -> bool:
    try:
        pending = await router.store.approvals.get(pending_id)
    except StoreError:  # it may be back before the time is over
        return False
    return pending is None or pending.decision is not Decision.WAITING
