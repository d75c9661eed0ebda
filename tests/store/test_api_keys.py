"""The gateway's keys as they are kept: hashed, scoped, revocable, the same on both databases."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio.to_thread
import pytest
from sqlalchemy import create_engine, text

from fingerpost.errors import ConfigError
from fingerpost.records import Effect, Scope
from fingerpost.store.database import resolve_location
from fingerpost.store.schema import MIGRATION_STEPS, migrate
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore
from tests.requirements import proves

SCOPE = Scope(servers=("git*",), tools=("files/read",), effects=(Effect.READ,))


@proves("G10")
async def test_a_key_is_found_by_its_text_and_nothing_near_it_is(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        made, key = await store.keys.add("laptop", scope=SCOPE, profiles=("daily",), now=NOON)
    async with open_store() as store:
        found = await store.keys.find(key)
        assert found == made
        assert (made.scope, made.profiles, made.name) == (SCOPE, ("daily",), "laptop")
        other, other_key = await store.keys.add("desk")
        swapped = key[:-43] + other_key[-43:]  # the id of one, the secret of the other
        wrong = (
            swapped,
            key[:-1] + ("A" if key[-1] != "A" else "B"),
            key + "A",
            key[3:],
            "",
            "fp_é",
            key.upper(),
        )
        assert [await store.keys.find(text) for text in wrong] == [None] * len(wrong)
        assert await store.keys.find(other_key) == other


def _rows(url: str) -> str:
    engine = create_engine(resolve_location(url).url)
    with closing(engine.connect()) as connection:
        rows = str(connection.execute(text("SELECT * FROM api_keys")).all())
    engine.dispose()
    return rows


@proves("G10")
async def test_the_database_holds_neither_the_key_nor_its_secret(open_store: OpenStore, url: str) -> None:
    async with open_store() as store:
        _, key = await store.keys.add("laptop")
    rows = await anyio.to_thread.run_sync(_rows, url)
    assert "laptop" in rows
    assert key not in rows
    assert key[-43:] not in rows


@proves("G10")
async def test_a_revoked_key_opens_nothing_also_for_a_process_that_knew_it(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as two:
        made, key = await one.keys.add("laptop")
        assert await two.keys.has_valid()
        assert await two.keys.find(key) is not None
        assert await two.keys.revoke("laptop") is True
        assert await one.keys.find(key) is None
        assert await one.keys.revoke("laptop") is False
        assert await one.keys.revoke("nobody") is False
        assert not await one.keys.has_valid()
        _, again = await one.keys.add("laptop", same_holder=True)  # the old key stays shut
        assert await one.keys.find(again) is not None
        assert await one.keys.find(key) is None
        assert [kept.revoked is None for kept in await one.keys.list_all()] == [False, True]
        assert await one.keys.revoke(made.key_id) is False


@proves("G10")
async def test_a_key_ends_by_itself(open_store: OpenStore) -> None:
    end = NOON + timedelta(days=1)
    async with open_store() as store:
        _, key = await store.keys.add("laptop", expires=end, now=NOON)
        assert await store.keys.find(key, now=end - timedelta(microseconds=1)) is not None
        assert await store.keys.find(key, now=end) is None
        assert not await store.keys.has_valid(now=end)
        await store.keys.add("laptop", now=end, same_holder=True)  # an expired key does not hold its name


async def test_when_a_key_was_last_used_is_kept_and_never_goes_back(open_store: OpenStore) -> None:
    async with open_store() as store:
        made, _ = await store.keys.add("laptop")
        store.keys.note_use(made.key_id, NOON)
        store.keys.note_use(made.key_id, NOON - timedelta(hours=2))
        store.keys.note_use("key_unknown", NOON)
    async with open_store() as store:
        assert [kept.last_used for kept in await store.keys.list_all()] == [NOON]


@pytest.mark.parametrize("name", ["", "local", "a b", "token:me", "-x", "x" * 65, "naïve", "a\n"])
async def test_a_name_that_could_be_mistaken_is_refused(open_store: OpenStore, name: str) -> None:
    async with open_store() as store:
        with pytest.raises(ConfigError):
            await store.keys.add(name)
        assert await store.keys.list_all() == []


async def test_two_live_keys_do_not_share_a_name_and_none_is_made_expired(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as two:
        await one.keys.add("laptop")
        with pytest.raises(ConfigError, match="already"):
            await two.keys.add("laptop")
        with pytest.raises(ConfigError, match="in the past"):
            await one.keys.add("desk", expires=NOON, now=NOON)


@pytest.fixture
def older_database(url: str, tmp_path: Path) -> None:
    """As a Fingerpost that knew nothing of keys left it."""
    (tmp_path / "store").mkdir()
    engine = create_engine(resolve_location(url).url)
    with closing(engine.connect()) as connection, connection.begin():
        assert migrate(connection, MIGRATION_STEPS[:3]) == 3
    engine.dispose()


@proves("H7")
@pytest.mark.usefixtures("older_database")
async def test_a_database_from_before_there_were_keys_gets_a_place_for_them(open_store: OpenStore) -> None:
    async with open_store() as store:
        _, key = await store.keys.add("laptop")
        assert await store.keys.find(key) is not None
