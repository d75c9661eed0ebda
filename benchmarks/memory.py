"""How quickly something is remembered and found again, against how much is remembered."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from fingerpost import Router, Settings
from fingerpost.builtin import open_router
from fingerpost.catalog.words import parse_word_set
from fingerpost.records import create_id, utc_now
from fingerpost.store import Memory

TOOL = "memory/memory_operations"
SIZES = (100, 1_000, 5_000)
SEARCHES = 60
WORDS = sorted(
    parse_word_set(
        "prefers likes dislikes meeting project deadline garden kitchen invoice address birthday colleague "
        "train Oslo Rome Berlin tea coffee bread green blue quarterly report budget draft server release "
        "customer contract Monday Tuesday morning evening weekly hiking swimming allergic peanuts glasses "
        "doctor school"
    )
)


def run() -> None:
    """Print the table."""
    print("memory: milliseconds through the whole call path, one person's memories, words and meaning")
    print(f"{'count':>6} {'first search':>13} {'p50':>7} {'worst':>7} {'after a change':>15} {'store':>7}")
    for size in SIZES:
        anyio.run(_measure, size)


async def _measure(size: int) -> None:
    with TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {"store": {"url": f"sqlite:///{folder}/store.db"}, "builtin": {"enabled": ["memory"]}}
        )
        async with open_router(settings=settings, folder=Path(folder)) as router:
            await router.connect()
            await _fill(router, size)
            chance = random.Random(size)
            first = await _took(lambda: _search(router, chance))
            await anyio.to_thread.run_sync(time.sleep, 1.0)  # meanings are read in the background meanwhile
            searches = sorted([await _took(lambda: _search(router, chance)) for _ in range(SEARCHES)])
            stores, changed = list[float](), list[float]()
            for number in range(8):
                stores.append(await _took(lambda number=number: _store(router, f"fact number {number}")))
                changed.append(await _took(lambda: _search(router, chance)))
        print(
            f"{size:>6,} {first:>13.0f} {median(searches):>7.1f} {searches[-1]:>7.1f} "
            f"{median(changed):>15.0f} {median(stores):>7.1f}"
        )


async def _fill(router: Router, size: int) -> None:
    chance = random.Random(0)
    async with anyio.create_task_group() as tasks:
        for number in range(size):
            text = f"{' '.join(chance.choices(WORDS, k=12))} {number}"
            memory = Memory(memory_id=create_id("mem"), text=text, at=utc_now(), person="dana")
            tasks.start_soon(lambda memory=memory: router.store.memories.add(memory, max_memories=size))


async def _search(router: Router, chance: random.Random) -> None:
    query = " ".join(chance.choices(WORDS, k=4))
    found = await router.call(TOOL, {"operation": "search", "query": query}, caller="dana")
    assert found.success, found.content


async def _store(router: Router, text: str) -> None:
    stored = await router.call(TOOL, {"operation": "store", "text": text}, caller="dana")
    assert stored.success, stored.content


async def _took(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000
