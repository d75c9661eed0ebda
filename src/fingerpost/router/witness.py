"""Who wants to know what happens to one packet, while it happens."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from fingerpost.events import Event

OnPacketEvent: TypeAlias = Callable[[Event], None]


class PacketSubscriptions:
    """A sink that hands each event to those who watch its packet."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[OnPacketEvent]] = {}

    def emit(self, event: Event) -> None:
        if event.packet_id is not None:
            for watcher in self._watchers.get(event.packet_id, ()):
                watcher(event)

    @contextmanager
    def watch(self, packet_id: str, watcher: OnPacketEvent) -> Generator[None]:
        """Call `watcher` with every event of this packet until the block ends."""
        watchers = self._watchers.setdefault(packet_id, [])
        watchers.append(watcher)
        try:
            yield
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(packet_id, None)
