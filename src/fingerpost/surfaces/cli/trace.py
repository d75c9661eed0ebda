"""`fingerpost trace ID`: the journey of one call or packet, drawn as a tree; `fingerpost breakers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.events import BreakerMoved, SubagentBegan, encode
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.house import with_store
from fingerpost.surfaces.cli.journey import draw
from fingerpost.surfaces.cli.screen import output, plain, print_json, table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from fingerpost.events import Event
    from fingerpost.settings import Settings
    from fingerpost.store import Store

PAGE = 1_000
DEEPEST = 5  # subagents of subagents
MOST_CHILDREN = 50  # drawn with their own journeys; the others are named


def show_trace(*, identity: str, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Draw the journey of one call (cal_…) or packet (pkt_…): repairs, rulings, waits, attempts, cuts."""

    async def work(store: Store, _: Settings) -> int:
        # The router takes seconds to import; `breakers` does not need it.
        from fingerpost.router.elsewhere import record_interrupted

        await record_interrupted(store)
        events = await events_of(store, identity)
        if not events:
            click.echo(f"Nothing is recorded under {identity}.", err=True)
            return 1
        if as_json:
            click.echo("[" + ",\n ".join(encode(event).decode() for event in events) + "]")
            return 0

        output().print(draw(identity, events, await children_of(store, events)))
        return 0

    return with_store(config, servers, work)


def show_breakers(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Show the circuit breaker of every server that ever had one move, newest state first."""

    async def work(store: Store, _: Settings) -> int:
        recorded = _read(store, kinds=("breaker_moved",))
        newest = {event.server: event async for event in recorded if isinstance(event, BreakerMoved)}
        moved = sorted(newest.values(), key=lambda event: event.at, reverse=True)
        if as_json:
            print_json([to_plain(event) for event in moved])
            return 0
        made = table(f"{len(moved)} breakers have moved", "server", "state", "since", "because")
        for event in moved:
            made.add_row(
                plain(event.server), event.state, f"{event.at:%Y-%m-%d %H:%M:%S}", plain(event.reason)
            )
        output().print(made)
        return 0

    return with_store(config, servers, work)


async def events_of(store: Store, identity: str) -> list[Event]:
    """All events under this id; a call inside a packet is found by its own id, too."""
    found = [event async for event in _read(store, packet_id=identity)]
    if found:
        return found
    async for event in _read(store, kinds=("call_received",)):
        if getattr(event, "call_id", None) == identity:
            whole = _read(store, packet_id=event.packet_id)
            return [one async for one in whole if getattr(one, "call_id", None) == identity]
    return []


async def children_of(store: Store, events: Sequence[Event]) -> dict[str, Sequence[Event]]:
    """The events of every subagent these tell of, and of theirs, by packet: as many as are drawn."""
    found: dict[str, Sequence[Event]] = {}
    level: Sequence[Event] = events
    for _ in range(DEEPEST):
        begun = dict.fromkeys(event.child for event in level if isinstance(event, SubagentBegan))
        new = [child for child in begun if child not in found][: MOST_CHILDREN - len(found)]
        for child in new:
            found[child] = [event async for event in _read(store, packet_id=child)]
        level = [event for child in new for event in found[child]]
    return found


async def _read(
    store: Store, *, packet_id: str | None = None, kinds: tuple[str, ...] | None = None
) -> AsyncGenerator[Event]:
    """The journal from its beginning, a page at a time."""
    seq = 0
    while page := await store.journal.events(packet_id=packet_id, kinds=kinds, after_seq=seq, limit=PAGE):
        for entry in page:
            yield entry.event
        seq = page[-1].seq
