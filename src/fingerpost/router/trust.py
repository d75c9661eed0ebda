"""Which definitions are trusted: the store's pins, in the catalog.

A person accepts a changed definition in one process, and forgets a pin in another: the
store holds the truth, and each process takes it over when it starts and whenever it changed.
"""

from __future__ import annotations

from fingerpost.catalog import Catalog
from fingerpost.router.intake import CatalogSync
from fingerpost.store import Store


class PinSync:
    """Keeps the catalog at the pins of the store."""

    def __init__(self, *, store: Store, catalog: Catalog, intake: CatalogSync) -> None:
        self._pins = store.pins
        self._catalog = catalog
        self._intake = intake

    async def refresh(self) -> None:
        """Take over what changed since the last time. What became new by it is pinned as it is now."""
        news = await self._pins.take_changes()
        if news is not None:
            self._catalog.use_pins(news.changed, news.gone)
            await self._intake.save_pins()
