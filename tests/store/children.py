"""Programs the tests start as processes of their own: `python -m tests.store.children NAME URL ANCHOR …`."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread

from fingerpost.errors import StoreUnavailable
from fingerpost.records import create_id
from fingerpost.store import RetentionLimits, Store
from tests.kit.store_samples import NOON, create_audited_event, eventually, ordinary

Say = Callable[[str], None]


async def append_for_ever(url: str, anchor: Path, say: Say) -> None:
    """Append from three tasks at once; say each event's id once its write is acknowledged."""

    async def go_on() -> None:
        while True:
            events = (create_audited_event(), ordinary())
            await store.journal.append(*events)
            for event in events:
                say(event.event_id)

    async with Store.open(url, anchor=anchor) as store, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(go_on)


async def append_and_prune(url: str, anchor: Path, say: Say) -> None:
    """Append events and say them once they are acknowledged, while a thousand old ones are pruned."""

    async def append() -> None:
        while True:
            event = create_audited_event()
            await store.journal.append(event)
            say(event.event_id)

    async with Store.open(url, anchor=anchor) as store, anyio.create_task_group() as tasks:
        if await store.journal.get_last_seq() == 0:
            old = (create_audited_event() for _ in range(1000))
            await store.journal.append(*(replace(event, at=NOON - timedelta(days=900)) for event in old))
        instance = create_id("ins")
        tasks.start_soon(append)
        while True:
            await store.instances.renew_lease(instance, lease_s=1)
            await store.retention.prune(
                RetentionLimits(keep_days=30, audit_days=30), instance=instance, by="child"
            )


async def append_some(url: str, anchor: Path, say: Say, count: str) -> None:
    """Append audited events one after the other; every append is a transaction of its own."""
    async with Store.open(url, anchor=anchor) as store:
        for _ in range(int(count)):
            event = create_audited_event()
            await store.journal.append(event)
            say(event.event_id)


async def spend_all(url: str, anchor: Path, say: Say, count: str) -> None:
    """Try to spend a grant for each of the calls; say which ones this process got."""

    async def spend(number: int) -> None:
        grant = await store.grants.spend(call_fingerprint=f"call-{number}", now=NOON)
        if grant is not None:
            say(grant.grant_id)

    async with Store.open(url, anchor=anchor) as store:
        say("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)  # all begin together
        async with anyio.create_task_group() as tasks:
            for number in range(int(count)):
                tasks.start_soon(spend, number)


async def fill_the_disk(url: str, anchor: Path, say: Say) -> None:
    """Write until the files may not grow further, then with room again."""
    async with Store.open(url, anchor=anchor, flush_ms=0) as store:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            while True:
                event = create_audited_event("x" * 20_000)
                await store.journal.append(event)
                say(f"acknowledged {event.event_id}")
        except StoreUnavailable as error:
            say(f"error {error} | {error.hint}")
        emitted = create_audited_event("y" * 2_000_000)
        store.journal.emit(emitted)
        await eventually(lambda: store.statistics.failed_commits >= 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await store.journal.flush()
        say(f"acknowledged {emitted.event_id}")


async def open_unprivileged(url: str, anchor: Path, say: Say) -> None:
    """Open as a user who may not write there."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        async with Store.open(url, anchor=anchor):
            say("opened")
    except StoreUnavailable as error:
        say(f"error {error} | {error.hint}")


async def open_without_psycopg(url: str, anchor: Path, say: Say) -> None:
    sys.modules["psycopg"] = None  # pyright: ignore[reportArgumentType] - how Python marks a module as missing
    try:
        async with Store.open(url, anchor=anchor):
            say("opened")
    except StoreUnavailable as error:
        say(f"error {error} | {error.hint}")


async def hold_slots(url: str, anchor: Path, say: Say) -> None:
    """Hold two slots of dana and say how many."""
    async with Store.open(url, anchor=anchor) as store:
        await store.instances.renew_lease("ins_child", lease_s=600)
        say(str(await store.quotas.take_slots("user dana", "ins_child", needed=2, limit=2)))
        await anyio.sleep_forever()


PROGRAMS: dict[str, Callable[..., Awaitable[None]]] = {
    "append_for_ever": append_for_ever,
    "append_and_prune": append_and_prune,
    "append_some": append_some,
    "spend_all": spend_all,
    "hold_slots": hold_slots,
    "fill_the_disk": fill_the_disk,
    "open_unprivileged": open_unprivileged,
    "open_without_psycopg": open_without_psycopg,
}


async def main(name: str, url: str, anchor: str, rest: list[str]) -> None:
    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    await PROGRAMS[name](url, Path(anchor), say, *rest)


if __name__ == "__main__":
    _, program, database, file, *more = sys.argv
    anyio.run(main, program, database, file, more)
