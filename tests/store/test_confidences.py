from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fingerpost.records import ConfidenceSample
from fingerpost.store.database import resolve_location
from fingerpost.store.learning import MAX_CONFIDENCES
from fingerpost.store.schema import MIGRATION_STEPS, migrate
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore
from tests.requirements import proves


def sample(raw: float = 0.8, tool: str = "git/log", *, right: bool = True) -> ConfidenceSample:
    return ConfidenceSample(raw=raw, right=right, tool=tool)


@proves("H4")
async def test_samples_of_two_processes_come_back_newest_first_and_exactly(open_store: OpenStore) -> None:
    first, second = sample(1 / 3), sample(0.0, "odd\x00name/\ud800", right=False)
    async with open_store() as one, open_store() as two:
        await one.confidences.record(first, NOON)
        await two.confidences.record(second, NOON - timedelta(days=1))  # by arrival, not by clock
        assert await one.confidences.list_recent() == [second, first]
        assert await one.confidences.list_recent(limit=1) == [second]


async def test_noted_samples_are_there_after_a_restart_and_gone_after_clear(open_store: OpenStore) -> None:
    async with open_store() as store:
        for number in range(5):
            store.confidences.record_soon(sample(number / 10), NOON)
    async with open_store() as store:
        assert [found.raw for found in await store.confidences.list_recent(2)] == [0.4, 0.3]
        assert await store.confidences.clear() == 5
        assert await store.confidences.list_recent() == []
        assert await store.confidences.clear() == 0


@pytest.fixture
def older_database(url: str, tmp_path: Path) -> None:
    """As a Fingerpost that knew nothing of confidences left it."""
    (tmp_path / "store").mkdir()
    engine = create_engine(resolve_location(url).url)
    with closing(engine.connect()) as connection, connection.begin():
        assert migrate(connection, MIGRATION_STEPS[:2]) == 2
    engine.dispose()


@proves("H7")
@pytest.mark.usefixtures("older_database")
async def test_a_database_from_before_there_were_samples_gets_a_place_for_them(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.confidences.record(sample(), NOON)
        assert await store.confidences.list_recent() == [sample()]


@pytest.mark.parametrize("raw", [float("nan"), float("inf"), -0.1, 1.1])
async def test_what_is_no_confidence_is_refused_and_spoils_nothing(open_store: OpenStore, raw: float) -> None:
    async with open_store() as store:
        with pytest.raises(ValueError, match="between 0 and 1"):
            store.confidences.record_soon(sample(raw), NOON)
        with pytest.raises(ValueError, match="between 0 and 1"):
            await store.confidences.record(sample(raw), NOON)
        await store.confidences.record(sample(0.5), NOON)
        assert await store.confidences.list_recent() == [sample(0.5)]


async def test_only_the_newest_samples_are_kept(
    open_store: OpenStore, url: str, tamper: Callable[[str], None]
) -> None:
    async with open_store() as store:
        await store.confidences.record(sample(0.1), NOON)
        await store.confidences.record(sample(0.2), NOON)
    skipped = MAX_CONFIDENCES + 1  # the next row gets this number, as if so many had come in between
    tamper(
        f"UPDATE sqlite_sequence SET seq = {skipped - 1} WHERE name = 'confidences'"
        if url.startswith("sqlite")
        else f"ALTER SEQUENCE confidences_seq_seq RESTART WITH {skipped}"
    )
    async with open_store() as store:
        await store.confidences.record(sample(0.9), NOON)
        assert [found.raw for found in await store.confidences.list_recent()] == [0.9, 0.2]
