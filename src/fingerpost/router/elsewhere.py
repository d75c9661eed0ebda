"""What other processes change in the store we share, taken over here a moment later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from fingerpost.errors import StoreError

log = logging.getLogger("fingerpost.router")

READ_AGAIN_S: Final = 3.0


async def keep_up(*readers: Callable[[], Awaitable[None]]) -> None:
    """Read again every few seconds, until cancelled. A store that cannot be read now may be later."""
    while True:
        await anyio.sleep(READ_AGAIN_S)
        for read in readers:
            try:
                await read()
            except StoreError as error:
                log.warning("what other processes changed could not be read: %s", error)
