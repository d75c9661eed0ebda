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
from fingerpost.servers import ServerPool
from fingerpost.store import DisabledEntry, DisabledKind, Store


class DisabledTools:
    """Switches tools and servers off and on, and keeps up with what others switch."""

    def __init__(self, *, store: Store, catalog: Catalog, servers: ServerPool, events: Fanout) -> None:
        self._store = store
        self._catalog = catalog
        self._servers = servers
        self._events = events
        self._closed: dict[tuple[DisabledKind, str], DisabledEntry] = {}
        self._changing = anyio.Lock()

    def find_entry(self, kind: DisabledKind, name: str) -> DisabledEntry | None:
        """Who switched this off, when and why; None: nobody did."""
        return self._closed.get((kind, name))

    async def refresh(self) -> None:
        """Take over what the store says."""
        async with self._changing:
            await self._apply()

    async def set_tool_enabled(self, key: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Switch a tool, by its key. False when it was like that already."""
        return await self._set_enabled(DisabledKind.TOOL, key, on=enabled, by=by, reason=reason)

    async def set_server_enabled(self, name: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Switch a server, by its name. False when it was like that already."""
        return await self._set_enabled(DisabledKind.SERVER, name, on=enabled, by=by, reason=reason)

    async def _set_enabled(self, kind: DisabledKind, name: str, *, on: bool, by: str, reason: str) -> bool:
        async with self._changing:
            if on:
                changed = await self._store.disabled.enable(kind, name)
            else:
                shutter = DisabledEntry(what=kind, name=name, by=by, at=utc_now(), reason=reason)
                changed = await self._store.disabled.disable(shutter)
            if changed:
                self._emit_switched(kind, name, on=on, by=by, reason=reason)
            await self._apply()
        await self._store.journal.flush()
        return changed

    def _emit_switched(self, kind: DisabledKind, name: str, *, on: bool, by: str, reason: str) -> None:
        if kind is DisabledKind.TOOL:
            self._events.emit(ToolSwitched(tool=name, on=on, by=by, reason=reason))
        else:
            self._events.emit(ServerSwitched(server=name, on=on, by=by, reason=reason))

    async def _apply(self) -> None:
        closed = {(shutter.what, shutter.name): shutter for shutter in await self._store.disabled.list_all()}
        changed = closed != self._closed
        self._closed = closed
        off = {what: _build_sentences(closed.values(), what) for what in DisabledKind}
        if changed:
            self._catalog.set_disabled(off[DisabledKind.TOOL], off[DisabledKind.SERVER])
        if changed or off[DisabledKind.SERVER]:
            with anyio.CancelScope(shield=True):  # who asked may leave: what is written holds
                await self._apply_to_servers(off[DisabledKind.SERVER])

    async def _apply_to_servers(self, off: Mapping[str, str]) -> None:
        for status in self._servers.statuses:
            if (reason := off.get(status.name)) is None:
                self._servers.enable(status.name)
            else:
                await self._servers.disable(status.name, reason)


def _build_sentences(closed: Iterable[DisabledEntry], kind: DisabledKind) -> dict[str, str]:
    return {shutter.name: shutter.describe() for shutter in closed if shutter.what is kind}
