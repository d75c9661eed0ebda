"""What servers offer, taken into the catalog, and the pins of it into the store."""

from __future__ import annotations

import logging

import anyio

from fingerpost.catalog import Catalog
from fingerpost.errors import StoreUnavailable
from fingerpost.records import Listing
from fingerpost.store import Store

log = logging.getLogger("fingerpost.router")

SAVE_AGAIN_S = 1.0


class Intake:
    """Keeps the catalog at what the servers list, and the store at what the catalog has pinned."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog = catalog
        self._store = store
        self._taken: dict[str, Listing] = {}
        self._unsaved = anyio.Event()

    def take(self, listing: Listing) -> None:
        """What a server offers now, unless that is in the catalog already."""
        if listing is not self._taken.get(listing.server):
            self._taken[listing.server] = listing
            self._catalog.replace_server(listing)
            self._unsaved.set()

    def forget(self, server: str) -> None:
        """It is no longer configured."""
        self._taken.pop(server, None)
        self._catalog.remove_server(server)

    async def keep_saving(self) -> None:
        """Store new pins as they come, until cancelled."""
        while True:
            await self._unsaved.wait()
            self._unsaved = anyio.Event()
            if not await self.save_pins():
                self._unsaved.set()
                await anyio.sleep(SAVE_AGAIN_S)

    async def save_pins(self) -> bool:
        """Whether nothing is left to save. A store that cannot write now may do so later: pins wait."""
        pins = self._catalog.take_new_pins()
        try:
            await self._store.pins.put(*pins)
        except BaseException as failure:
            self._catalog.return_new_pins(pins)
            if not isinstance(failure, StoreUnavailable):
                raise
            log.warning("%d new pins are not stored yet: %s", len(pins), failure)
            return False
        return True
