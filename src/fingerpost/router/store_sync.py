"""Synchronisation with the shared store: other processes, pins, disabled tools, model capabilities."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from fingerpost.catalog import Catalog
from fingerpost.errors import StoreError
from fingerpost.events import (
    CallFinished,
    CallReceived,
    Event,
    Fanout,
    RouteBegan,
    RouteEnded,
    RouteResumed,
    ServerSwitched,
    ToolSwitched,
)
from fingerpost.records import (
    DisabledEntry,
    DisabledKind,
    ErrorKind,
    Principal,
    RouteOutcome,
    User,
    combine_rights,
    get_sign_in_user,
    utc_now,
)
from fingerpost.router.catalog_sync import CatalogSync
from fingerpost.servers import ServerPool

if TYPE_CHECKING:
    from fingerpost.store import Store
    from fingerpost.store.cache import Cache
    from fingerpost.store.callers import UserStore
    from fingerpost.store.credentials import ApiKeyStore
    from fingerpost.store.store import Instance

log = logging.getLogger("fingerpost.router")

POLL_INTERVAL_S: Final = 3.0
HEARTBEATS_PER_LEASE: Final = 5  # several heartbeats may be late
CLAIM_POLL_INTERVAL_S: Final = 0.1
_WINDOW: Final = 5_000  # journal entries read at a time
_WORK_KINDS: Final = tuple(
    one.kind for one in (RouteBegan, RouteResumed, RouteEnded, CallReceived, CallFinished)
)


CHANGED_TOPIC: Final = "changed"


async def poll_store(store: Store, *readers: Callable[[], Awaitable[None]]) -> None:
    """Call the readers when another process says that it changed something, and every few seconds, until
    cancelled. Store errors are logged and retried.
    """
    changed = anyio.Event()
    stop = store.messages.subscribe(CHANGED_TOPIC, lambda _: changed.set())
    try:
        while True:
            with anyio.move_on_after(POLL_INTERVAL_S):
                await changed.wait()
            changed = anyio.Event()
            for read in readers:
                try:
                    await read()
                except StoreError as error:
                    log.warning("changes of other processes could not be read: %s", error)
    finally:
        stop()


async def renew_lease(store: Store, instance: str, *, lease_s: float) -> None:
    """Renew this process's lease and record the interrupted work of dead processes, until cancelled."""
    while True:
        try:
            await store.instances.renew_lease(instance, lease_s=lease_s)
            await record_interrupted(store)
        except StoreError as error:
            log.warning("the lease of this process could not be renewed: %s", error)
        await anyio.sleep(lease_s / HEARTBEATS_PER_LEASE)


@asynccontextmanager
async def hold_claim(store: Store, name: str, instance: str) -> AsyncGenerator[None]:
    """Wait for the claim on `name` and hold it. The journal is flushed before the release."""
    claimed = False
    while not claimed:
        # A claim that its holder does not know of would never be released.
        with anyio.CancelScope(shield=True):
            claimed = await store.instances.claim(name, instance)
        if not claimed:
            await anyio.sleep(CLAIM_POLL_INTERVAL_S)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await store.journal.flush()
            finally:
                await store.instances.release(name, instance)


async def record_interrupted(store: Store) -> None:
    """Record the end of work that dead processes left unfinished. Otherwise it would appear to run for ever.

    A process that was only paused records its own end later, which then takes precedence.
    """
    for instance in await store.instances.list_expired():
        events = await _build_interrupted_events(store, instance)
        await store.journal.append(*events)  # recorded once, even if two processes do this
        await store.instances.end(instance.instance_id)


async def _build_interrupted_events(store: Store, instance: Instance) -> list[Event]:
    """Return end events for everything that this process started and did not finish."""
    running: dict[str, Event] = {}
    last, after = await store.journal.get_last_seq(), instance.since_seq
    while after < last:
        end = min(after + _WINDOW, last)
        for entry in await store.journal.list_events(
            kinds=_WORK_KINDS, after_seq=after, up_to_seq=end, limit=_WINDOW
        ):
            event = entry.event
            assert event.packet_id is not None
            if isinstance(event, RouteBegan | RouteResumed | CallReceived):
                bare = not isinstance(event, CallReceived) or event.packet_id == event.call_id
                if bare and event.instance == instance.instance_id:
                    running[event.packet_id] = event
                elif bare:  # another process continues it
                    running.pop(event.packet_id, None)
            elif isinstance(event, RouteEnded) or getattr(event, "call_id", None) == event.packet_id:
                running.pop(event.packet_id, None)
        after = end
    return [_build_interrupted_event(event) for event in running.values()]


def _build_interrupted_event(start_event: Event) -> Event:
    event_id = f"evt_interrupted_{start_event.event_id}"
    ended: Any = {"event_id": event_id, "packet_id": start_event.packet_id, "milliseconds": 0.0}
    if isinstance(start_event, CallReceived):
        detail = "the process that made the call ended; whether the call took effect is unknown"
        call_id, tool, error = start_event.call_id, start_event.name, ErrorKind.UNKNOWN
        return CallFinished(**ended, call_id=call_id, tool=tool, success=False, error=error, detail=detail)
    return RouteEnded(**ended, outcome=RouteOutcome.INTERRUPTED)


CAPABILITY_SPACE: Final = "capabilities"
CAPABILITY_TTL_S: Final = 7 * 86_400.0  # servers are upgraded, so capabilities expire


class StoredCapabilities:
    """A `CapabilityMemory` in the store."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def get(self, key: str) -> bytes | None:
        return await self._cache.get(CAPABILITY_SPACE, key)

    async def put(self, key: str, value: bytes) -> None:
        await self._cache.put(CAPABILITY_SPACE, key, value, ttl=CAPABILITY_TTL_S)


async def refresh_pins(store: Store, catalog: Catalog, catalog_sync: CatalogSync) -> None:
    """Apply the pins that changed since the last refresh. Tools that became new are pinned as they are."""
    changes = await store.pins.take_changes()
    if changes is not None:
        catalog.use_pins(changes.changed, changes.gone)
        await catalog_sync.save_pins()


class UserDirectory:
    """Users as they are in the store, with the changes of other processes."""

    def __init__(self, store: UserStore, keys: ApiKeyStore) -> None:
        self._store = store
        self._keys = keys
        self._users: dict[str, User] = {}
        self._owners: dict[str, str] = {}  # of keys that have another name, by that name

    async def refresh(self) -> None:
        """Read the users again."""
        self._users = {user.name: user for user in await self._store.list_all()}
        self._owners = await self._keys.list_owners()

    def get_user_name(self, caller: str) -> str:
        """Return the user behind a caller of this name: the owner of a key, the subject of a token."""
        return self._owners.get(caller) or get_sign_in_user(caller)

    def apply(self, principal: Principal) -> Principal | None:
        """Return the principal with the roles of its user, or None if the user is disabled."""
        if principal.kind == "key" and principal.user:  # made since the last refresh
            self._owners[principal.name] = principal.user
        user = self._users.get(principal.user_name) if principal.kind != "local" else None
        if user is None:
            return principal
        if user.disabled:
            return None
        if principal.kind != "token" or not user.roles:
            return principal
        return replace(principal, rights=combine_rights(user.roles, principal.rights))


class DisabledTools:
    """Enables and disables tools and servers, and applies changes of other processes."""

    def __init__(self, *, store: Store, catalog: Catalog, servers: ServerPool, events: Fanout) -> None:
        self._store = store
        self._catalog = catalog
        self._servers = servers
        self._events = events
        self._disabled: dict[tuple[DisabledKind, str], DisabledEntry] = {}
        self._changing = anyio.Lock()

    def find_entry(self, kind: DisabledKind, name: str) -> DisabledEntry | None:
        """Return who disabled this, when and why, or None if it is enabled."""
        return self._disabled.get((kind, name))

    async def refresh(self) -> None:
        """Apply the store's current entries."""
        async with self._changing:
            await self._apply()

    async def set_tool_enabled(self, key: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Enable or disable a tool by key. Return False if nothing changed."""
        return await self._set_enabled(DisabledKind.TOOL, key, on=enabled, by=by, reason=reason)

    async def set_server_enabled(self, name: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Enable or disable a server by name. Return False if nothing changed."""
        return await self._set_enabled(DisabledKind.SERVER, name, on=enabled, by=by, reason=reason)

    async def _set_enabled(self, kind: DisabledKind, name: str, *, on: bool, by: str, reason: str) -> bool:
        async with self._changing:
            if on:
                changed = await self._store.disabled.enable(kind, name)
            else:
                entry = DisabledEntry(what=kind, name=name, by=by, at=utc_now(), reason=reason)
                changed = await self._store.disabled.disable(entry)
            if changed:
                if kind is DisabledKind.TOOL:
                    self._events.emit(ToolSwitched(tool=name, on=on, by=by, reason=reason))
                else:
                    self._events.emit(ServerSwitched(server=name, on=on, by=by, reason=reason))
                self._store.messages.publish(CHANGED_TOPIC, {})
            await self._apply()
        await self._store.journal.flush()
        return changed

    async def _apply(self) -> None:
        disabled = {(entry.what, entry.name): entry for entry in await self._store.disabled.list_all()}
        changed = disabled != self._disabled
        self._disabled = disabled
        off = {what: _describe_entries(disabled.values(), what) for what in DisabledKind}
        if changed:
            self._catalog.set_disabled(off[DisabledKind.TOOL], off[DisabledKind.SERVER])
        if changed or off[DisabledKind.SERVER]:
            # Must complete even if the caller is cancelled: the change is stored.
            with anyio.CancelScope(shield=True):
                await self._apply_to_servers(off[DisabledKind.SERVER])

    async def _apply_to_servers(self, off: Mapping[str, str]) -> None:
        for status in self._servers.statuses:
            if (reason := off.get(status.name)) is None:
                self._servers.enable(status.name)
            else:
                await self._servers.disable(status.name, reason)


def _describe_entries(entries: Iterable[DisabledEntry], kind: DisabledKind) -> dict[str, str]:
    return {entry.name: entry.describe() for entry in entries if entry.what is kind}
