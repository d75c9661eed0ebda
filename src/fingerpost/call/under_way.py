"""What is being done for callers, so that it can be ended before what it needs is taken away.

A call that outlives the store it is recorded in, or the connection it was sent on, ends as something
it is not: a write that happened as a server that cannot be reached. Ended from here, it ends as if its
caller had given up: what was sent and not answered is `unknown`, and that is on record.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel

from fingerpost.errors import FingerpostError
from fingerpost.tasks import create_cancel_scope

log = logging.getLogger("fingerpost.call")

END_TIMEOUT_S: Final = 5.0  # for what was ended, to record how


class InFlightWork:
    """The requests and calls that run now."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._closing = False
        self._over = anyio.Event()

    @asynccontextmanager
    async def track(self) -> AsyncGenerator[None]:
        """Do this until it is done or everything is ended; then an error says so to whoever waits for it.

        One may stand in another: a request makes calls.
        """
        if self._closing:
            raise _build_closed_error()
        with create_cancel_scope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
                if self._closing and not self._scopes:
                    self._over.set()
        if scope.cancelled_caught:
            await anyio.lowlevel.checkpoint_if_cancelled()  # who stands around it ends as well, and speaks
            raise _build_closed_error() from None

    async def end_all(self) -> None:
        """End everything, let nothing more begin, and wait until all of it has recorded how it ended."""
        self._closing = True
        if not self._scopes:
            return
        for scope in tuple(self._scopes):
            scope.cancel()
        with anyio.move_on_after(END_TIMEOUT_S, shield=True):
            await self._over.wait()
            return
        log.warning("%d requests did not end within %g s of closing", len(self._scopes), END_TIMEOUT_S)


def _build_closed_error() -> FingerpostError:
    message = "the router was closed before this was over"
    hint = (
        "Let requests end before the `async with` block does. "
        "A tool that was being called may have done its work: check before you repeat it."
    )
    return FingerpostError(message, hint=hint)
