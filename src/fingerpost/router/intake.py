"""What servers offer, taken into the catalog, and the pins of it into the store."""

from __future__ import annotations

import logging

import anyio

from fingerpost.catalog import Catalog
from fingerpost.catalog.cards import RefusedDefinition
from fingerpost.errors import StoreUnavailable
from fingerpost.records import Listing, ToolCard
from fingerpost.store import Store
from fingerpost.tasks import run_in_thread

log = logging.getLogger("fingerpost.router")

SAVE_RETRY_S = 1.0
MANY_TOOLS = 100  # tools whose cards take the event loop too long


class CatalogSync:
    """Keeps the catalog at what the servers list, and the store at what the catalog has pinned."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog = catalog
        self._store = store
        self._taken: dict[str, Listing] = {}
        self._studied: dict[str, tuple[Listing, tuple[ToolCard | RefusedDefinition, ...]]] = {}
        self._unsaved = anyio.Event()

    async def prepare_listing(self, listing: Listing) -> None:
        """Before a listing is taken: where it is long, calls go on while its cards are made."""
        if len(listing.definitions) > MANY_TOOLS:
            self._studied[listing.server] = listing, await run_in_thread(self._catalog.build_cards, listing)

    def apply_listing(self, listing: Listing) -> None:
        """What a server offers now, unless that is in the catalog already."""
        before, studied = self._studied.pop(listing.server, (None, None))
        if listing is not self._taken.get(listing.server):
            self._taken[listing.server] = listing
            self._catalog.replace_server(listing, studied if listing is before else None)
            self._unsaved.set()

    def remove_server(self, server: str) -> None:
        """It is no longer configured."""
        self._taken.pop(server, None)
        self._studied.pop(server, None)
        self._catalog.remove_server(server)

    async def keep_saving(self) -> None:
        """Store new pins as they come, until cancelled."""
        while True:
            await self._unsaved.wait()
            self._unsaved = anyio.Event()
            if not await self.save_pins():
                self._unsaved.set()
                await anyio.sleep(SAVE_RETRY_S)

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
