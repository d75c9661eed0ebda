"""What a server offers besides tools: resources, templates and prompts, read in the background.

Nobody waits for these lists: a server is ready when its tools are. They are
read where the server says it has them, entry by entry, and again when it says
they changed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import anyio
from mcp_types import METHOD_NOT_FOUND
from pydantic_core import to_json

from fingerpost.errors import FingerpostError, ServerReplyInvalid, ToolFailed
from fingerpost.records import JsonObject, ServerResources, check_json
from fingerpost.servers.backoff import compute_delay
from fingerpost.servers.connection import ServerConnection
from fingerpost.servers.lifeline import RetryPace
from fingerpost.settings.model import LimitSettings

logger = logging.getLogger("fingerpost.servers")

ResourceKind = Literal["resources", "prompts"]
AskServer = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]

RESOURCE_KINDS: tuple[ResourceKind, ...] = ("resources", "prompts")
CHANGED_METHODS: dict[str, ResourceKind] = {
    f"notifications/{kind}/list_changed": kind for kind in RESOURCE_KINDS
}
DEBOUNCE_SECONDS = 0.1
MAX_ATTEMPTS = 6  # for a list that cannot be read; a later announcement starts anew


class ServerResourceCache:
    """The materials of one server, kept while it is down."""

    def __init__(self, server: str, limits: LimitSettings, on_change: Callable[[ResourceKind], None]) -> None:
        self._server = server
        self._limits = limits
        self._changed = on_change
        self._stale: set[ResourceKind] = set()
        self._wake = anyio.Event()
        self.materials: ServerResources | None = None
        self.loaded = anyio.Event()  # everything was read once, or could not be

    def start(self, connection: ServerConnection) -> None:
        """A server came up: what it can do is known at once, what it has is to be read."""
        known = self.materials or ServerResources(server=self._server)
        self.materials = replace(known, capabilities=connection.capabilities)
        for kind in RESOURCE_KINDS:
            if kind in connection.capabilities or self._has(kind):
                self.mark_stale(kind)
        if not self._stale:
            self.loaded.set()

    def _has(self, kind: ResourceKind) -> bool:
        known = self.materials
        if known is None:
            return False
        return bool(known.prompts if kind == "prompts" else known.resources or known.templates)

    def mark_stale(self, kind: ResourceKind) -> None:
        """This list is said to have changed."""
        self._stale.add(kind)
        self._wake.set()

    async def refresh_stale(self, connection: ServerConnection) -> None:
        """Read what is stale, for as long as the connection lasts."""
        failures = 0
        while True:
            await self._wake.wait()
            if failures == 0:
                await anyio.sleep(DEBOUNCE_SECONDS)
            self._wake = anyio.Event()
            failed: set[ResourceKind] = set()
            while self._stale:
                kind = self._stale.pop()
                try:
                    await self._read(kind, connection)
                except FingerpostError as error:
                    logger.debug("%s: its %s could not be listed: %s", self._server, kind, error)
                    failed.add(kind)
                except Exception:
                    logger.exception("%s: its %s could not be listed", self._server, kind)
                    failed.add(kind)
            self.loaded.set()
            failures = failures + 1 if failed else 0
            if failed and failures < MAX_ATTEMPTS:
                await anyio.sleep(
                    compute_delay(failures, pace=RetryPace.SOON, max_delay=self._limits.reconnect_max)
                )
                for kind in failed:
                    self.mark_stale(kind)
            else:
                failures = 0

    async def _read(self, kind: ResourceKind, connection: ServerConnection) -> None:
        assert self.materials is not None
        before = self.materials
        ask = connection.fetch if kind in connection.capabilities else _return_nothing
        if kind == "prompts":
            prompts = await self._list(ask, "prompts/list", "prompts", "name")
            self.materials = replace(self.materials, prompts=prompts)
        else:
            resources = await self._list(ask, "resources/list", "resources", "uri")
            templates = await self._list(ask, "resources/templates/list", "resourceTemplates", "uriTemplate")
            self.materials = replace(self.materials, resources=resources, templates=templates)
        if self.materials != before:
            self._changed(kind)

    async def _list(self, ask: AskServer, method: str, field: str, key: str) -> tuple[JsonObject, ...]:
        """All entries, page by page; a bad one drops only itself."""
        entries: dict[str, JsonObject] = {}
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._limits.list_pages):
            try:
                page = await ask(method, {} if cursor is None else {"cursor": cursor})
            except ToolFailed as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            listed: object = page.get(field)
            if not isinstance(listed, list):
                message = f"{self._server} answered {method} without a list"
                raise ServerReplyInvalid(message, server=self._server)
            for entry in cast("list[object]", listed):
                if len(entries) >= self._limits.tools_per_server:
                    return tuple(entries.values())
                if (name := self._get_entry_name(entry, key)) is not None:
                    entries.setdefault(name, cast("JsonObject", entry))
            following: object = page.get("nextCursor")
            if not isinstance(following, str) or not following or following in seen:
                break
            seen.add(following)
            cursor = following
        return tuple(entries.values())

    def _get_entry_name(self, entry: object, key: str) -> str | None:
        """What identifies an entry that can be used; None for one that cannot."""
        if not isinstance(entry, Mapping):
            return None
        entry = cast("Mapping[str, object]", entry)
        name = entry.get(key)
        if not isinstance(name, str) or not name:
            return None
        if check_json(entry, max_depth=self._limits.schema_depth) is not None:
            return None
        return name if len(to_json(entry)) <= self._limits.definition_bytes else None


async def _return_nothing(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    raise ToolFailed(method, server="", code=METHOD_NOT_FOUND)
