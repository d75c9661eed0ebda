"""Connects servers on first use and keeps the catalog up to date with their tool lists."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from fingerpost.call.build import ToolNotFound, resolve_tool
from fingerpost.call.outcomes import READ_RESULT_TOOL_NAME
from fingerpost.call.pipeline import CallPipeline
from fingerpost.catalog import Catalog, Snapshot
from fingerpost.catalog.cards import RefusedDefinition, ScanStopped
from fingerpost.errors import ServerUnavailable, StoreUnavailable
from fingerpost.records import CallContext, KnownServer, Listing, ServerState, ToolCall, ToolCard
from fingerpost.servers import ServerPool
from fingerpost.settings import ToolOverride

if TYPE_CHECKING:
    from fingerpost.store import Store

MAX_REPLACED: Final = 5  # how often a server may be replaced while a call waits for it


class LazyConnector:
    """Connects servers when a request or a call may need their tools."""

    def __init__(
        self,
        servers: ServerPool,
        calls: CallPipeline,
        *,
        get_tools: Callable[[], Snapshot],
        timeout: float,
        request_timeout: float,
    ) -> None:
        """`timeout` applies to one server, `request_timeout` to all servers together."""
        self._servers = servers
        self._calls = calls
        self._get_tools = get_tools
        self._timeout = timeout
        self._request_timeout = request_timeout
        self._has_waited = False  # whether a request has waited for connecting servers
        self._request_lock = anyio.Lock()  # concurrent requests wait for the same servers
        self._connecting = anyio.Lock()

    async def connect_idle(self, server: str | None = None) -> bool:
        """Connect idle servers: all, or only `server`. Return whether there were any.

        Servers that are connecting already are not waited for: a gateway answers with the connected ones.
        """
        async with self._connecting:
            idle = [one.name for one in self._servers.statuses if one.state is ServerState.IDLE]
            names = [name for name in idle if server in (None, name)]
            if names:
                self._servers.start(*names)
                await self._servers.wait_until_settled(timeout=self._request_timeout)
        return bool(names)

    async def connect_for_request(self, server: str | None = None) -> None:
        """Connect idle servers. The first request also waits for servers that are connecting already."""
        async with self._request_lock:
            if not await self.connect_idle(server) and not self._has_waited:
                await self._servers.wait_until_settled(timeout=self._request_timeout)
            self._has_waited = True

    async def connect_for_call(self, tool_call: ToolCall, context: CallContext) -> CallContext:
        """Wait for the server that may have this tool, within the call's timeout. Return the context with the
        remaining time.

        The server is the one whose name is a prefix of the tool name. Without such a prefix, all idle servers
        are connected. Return at once if the tool is known.
        """
        if not self._may_appear(tool_call):
            return context
        began = anyio.current_time()
        with anyio.move_on_after(math.inf if context.seconds is None else context.seconds):
            for _ in range(MAX_REPLACED):
                absence = self._calls.find_absence(tool_call, context)
                if absence is None:
                    await self.connect_idle()
                    break
                if not self._is_connecting(absence.server):
                    break
                try:
                    await self._servers.ensure(absence.server, timeout=self._timeout)
                except ServerUnavailable:  # the call reports this error itself
                    break
                if not self._may_appear(tool_call):
                    break
        if context.seconds is None:
            return context
        return replace(context, seconds=max(0.0, context.seconds - (anyio.current_time() - began)))

    def _may_appear(self, tool_call: ToolCall) -> bool:
        """Return whether the call's tool is not known, so that a server may have it."""
        found = resolve_tool(tool_call, self._get_tools())
        return (
            isinstance(found, ToolNotFound)
            and not found.ambiguous
            and tool_call.name != READ_RESULT_TOOL_NAME
        )

    def _is_connecting(self, server: str) -> bool:
        """Return whether the server is idle or connecting, so that its tools are not known yet."""
        coming = (ServerState.IDLE, ServerState.CONNECTING)
        return any(status.name == server and status.state in coming for status in self._servers.statuses)


log = logging.getLogger("fingerpost.router")

SAVE_RETRY_S = 1.0


async def build_cards_in_thread(
    catalog: Catalog, listing: Listing, stop: Event, limiter: anyio.CapacityLimiter | None = None
) -> tuple[ToolCard | RefusedDefinition, ...]:
    """Build the cards of a listing in a thread. It is cancelled at once: the thread is not waited for, and
    ends before the next definition. Raises `ScanStopped` soon after `stop` is set.
    """
    build = partial(catalog.build_cards, listing, stop=stop)
    try:
        return await anyio.to_thread.run_sync(build, limiter=limiter, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        stop.set()
        raise


class CatalogSync:
    """Updates the catalog from the servers' tool lists, and saves pins and lists to the store."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog = catalog
        self._store = store
        self._applied: dict[str, Listing] = {}
        # By server: the cards of a listing, and the version of the rules that they were made by.
        self._prepared: dict[str, tuple[Listing, int, tuple[ToolCard | RefusedDefinition, ...]]] = {}
        self._scans: dict[str, set[Event]] = {}  # by server: what stops the scans of its listings
        self._scans_instructions = self._has_scanned = False
        self._scan_lock = anyio.Lock()
        self._building = anyio.CapacityLimiter(1)  # of its own: others must not wait while the judge reads
        self._unsaved = anyio.Event()
        self._unsaved_servers: dict[str, tuple[str, KnownServer]] = {}

    def keep_known(self, entry: str, known: KnownServer) -> None:
        """Have the store keep what a connected server lists. `entry` is the hash of its entry."""
        self._unsaved_servers[known.listing.server] = entry, known
        self._unsaved.set()

    async def prepare_listing(self, listing: Listing) -> None:
        """Build the cards of a listing and scan instructions in a thread, so that the event loop stays
        responsive: one suspected sentence can wait for the judge to be loaded.

        It is cancelled at once, and ends early when the server is removed. Nothing of the listing is kept
        then, and the thread stops before the next definition.
        """
        server, stop = listing.server, Event()
        running = self._scans.setdefault(server, set())
        running.add(stop)
        try:
            if self._scans_instructions:
                await self._scan_instructions(listing)
            version = -1
            while version != self._catalog.card_rules_version:  # a person may change a rule meanwhile
                version = self._catalog.card_rules_version
                cards = await build_cards_in_thread(self._catalog, listing, stop, self._building)
                self._prepared[server] = listing, version, cards
            self._apply_judgements(listing)
        except ScanStopped:
            self._prepared.pop(server, None)
        finally:
            running.discard(stop)
            if not running and self._scans.get(server) is running:
                del self._scans[server]

    def _apply_judgements(self, listing: Listing) -> None:
        """Apply what the judge could judge only now, of a listing that is the same as before and
        so will not be applied.
        """
        server = listing.server
        applied = self._applied.get(server)
        if applied is not None and applied is not listing and applied == listing:
            _, _, cards = self._prepared.pop(server)
            if not self._catalog.is_judged(server):
                self._catalog.replace_server(applied, cards)
                self._unsaved.set()

    def apply_listing(self, listing: Listing) -> None:
        """Update the catalog with a server's current listing, unless the catalog has it already."""
        prepared_listing, version, cards = self._prepared.pop(listing.server, (None, -1, ()))
        if listing is not self._applied.get(listing.server):
            self._applied[listing.server] = listing
            is_prepared = listing is prepared_listing and version == self._catalog.card_rules_version
            self._catalog.replace_server(listing, cards if is_prepared else None)
            self._unsaved.set()

    async def scan_instructions(self) -> None:
        """Scan the instructions of all servers in a thread, and of others when they are listed: for services,
        which pass them on. A command reads them rarely, and loads for that what scans.
        """
        self._scans_instructions = True
        async with self._scan_lock:
            if not self._has_scanned:
                for listing in [*self._applied.values()]:
                    await self._scan_instructions(listing)
                self._has_scanned = True

    async def _scan_instructions(self, listing: Listing) -> None:
        work = partial(self._catalog.scan_instructions, listing)
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    def use_overrides(self, overrides: Sequence[ToolOverride]) -> None:
        """Apply changed overrides of the settings to all tools."""
        self._prepared.clear()
        self._catalog.use_overrides(overrides, self._applied.values())

    def remove_server(self, server: str) -> None:
        """Remove a server that is no longer configured. Scanning what it lists ends."""
        for stop in self._scans.get(server, ()):
            stop.set()
        self._applied.pop(server, None)
        self._prepared.pop(server, None)
        self._catalog.remove_server(server)

    async def keep_saving(self) -> None:
        """Save new pins to the store as they appear, until cancelled."""
        while True:
            await self._unsaved.wait()
            self._unsaved = anyio.Event()
            if not await self.save():
                self._unsaved.set()
                await anyio.sleep(SAVE_RETRY_S)

    async def save(self) -> bool:
        """Return whether everything is saved. What the store cannot write now is kept for a later attempt."""
        saved = await self.save_pins()
        unsaved = dict(self._unsaved_servers)
        try:
            await self._store.known_servers.put(*unsaved.values())
        except StoreUnavailable as failure:  # it is only asked again next time
            log.warning("what %s list could not be stored: %s", ", ".join(unsaved), failure)
        # Only now: if this is cancelled when the router closes, they are saved after that.
        self._unsaved_servers = {
            server: item for server, item in self._unsaved_servers.items() if item is not unsaved.get(server)
        }
        return saved

    async def save_pins(self) -> bool:
        """Return whether all pins are saved. Those that cannot be written now are kept for later."""
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
