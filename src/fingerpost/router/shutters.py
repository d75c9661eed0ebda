"""Tools and servers that are switched off while we run: here, in the store, and in every other process.

What is off is not in the catalog, so nothing finds it, lists it or calls it, on any
surface; a server that is off is disconnected besides. The store holds the truth. Each
process reads it when it starts and every few seconds, so a change made elsewhere holds
here a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio

from fingerpost.catalog import Catalog
from fingerpost.events import Fanout, ServerSwitched, ToolSwitched
from fingerpost.records import utc_now
from fingerpost.servers import Servers
from fingerpost.store import Shut, Shutter, Store


class Shutters:
    """Switches tools and servers off and on, and keeps up with what others switch."""

    def __init__(self, *, store: Store, catalog: Catalog, servers: Servers, events: Fanout) -> None:
        self._store = store
        self._catalog = catalog
        self._servers = servers
        self._events = events
        self._closed: dict[tuple[Shut, str], Shutter] = {}
        self._changing = anyio.Lock()

    def of(self, what: Shut, name: str) -> Shutter | None:
        """Who switched this off, when and why; None: nobody did."""
        return self._closed.get((what, name))

    async def read(self) -> None:
        """Take over what the store says."""
        async with self._changing:
            await self._apply()

    async def switch_tool(self, key: str, *, on: bool, by: str, reason: str = "") -> bool:
        """Switch a tool, by its key. False when it was like that already."""
        return await self._switch(Shut.TOOL, key, on=on, by=by, reason=reason)

    async def switch_server(self, name: str, *, on: bool, by: str, reason: str = "") -> bool:
        """Switch a server, by its name. False when it was like that already."""
        return await self._switch(Shut.SERVER, name, on=on, by=by, reason=reason)

    async def _switch(self, what: Shut, name: str, *, on: bool, by: str, reason: str) -> bool:
        async with self._changing:
            if on:
                changed = await self._store.shutters.open(what, name)
            else:
                shutter = Shutter(what=what, name=name, by=by, at=utc_now(), reason=reason)
                changed = await self._store.shutters.close(shutter)
            if changed:
                self._tell(what, name, on=on, by=by, reason=reason)
            await self._apply()
        await self._store.journal.flush()
        return changed

    def _tell(self, what: Shut, name: str, *, on: bool, by: str, reason: str) -> None:
        if what is Shut.TOOL:
            self._events.emit(ToolSwitched(tool=name, on=on, by=by, reason=reason))
        else:
            self._events.emit(ServerSwitched(server=name, on=on, by=by, reason=reason))

    async def _apply(self) -> None:
        closed = {(shutter.what, shutter.name): shutter for shutter in await self._store.shutters.all()}
        changed = closed != self._closed
        self._closed = closed
        off = {what: _sentences(closed.values(), what) for what in Shut}
        if changed:
            self._catalog.shut_off(off[Shut.TOOL], off[Shut.SERVER])
        if changed or off[Shut.SERVER]:
            with anyio.CancelScope(shield=True):  # who asked may leave: what is written holds
                await self._switch_servers(off[Shut.SERVER])

    async def _switch_servers(self, off: Mapping[str, str]) -> None:
        for status in self._servers.statuses:
            if (reason := off.get(status.name)) is None:
                self._servers.switch_on(status.name)
            else:
                await self._servers.switch_off(status.name, reason)


def _sentences(closed: Iterable[Shutter], what: Shut) -> dict[str, str]:
    return {shutter.name: shutter.sentence() for shutter in closed if shutter.what is what}
