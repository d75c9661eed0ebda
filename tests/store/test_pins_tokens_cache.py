"""Pins, tokens and the cache."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fingerpost.store import CacheLimits
from tests.kit.store_samples import NOON, pin
from tests.kit.stores import OpenStore
from tests.requirements import proves

ODD_NAMES = ["plain/tool", "nul\x00/tool", "back\\slash/0000", "half\ud800/tool", "עברית/כלי", "", "a/b c\n"]


@proves("H4")
async def test_pins_are_kept_by_key_and_replaced(open_store: OpenStore) -> None:
    old, new, other = pin("b/x", "f1"), pin("b/x", "f2"), pin("a/y", "f3")
    async with open_store() as store:
        await store.pins.put(old, other)
        await store.pins.put(pin("b/x", "f0"), new)
    async with open_store() as store:
        assert await store.pins.list_all() == {"a/y": other, "b/x": new}
        assert list(await store.pins.list_all()) == ["a/y", "b/x"]
        assert await store.pins.remove("a/y")
        assert not await store.pins.remove("a/y")
        assert await store.pins.list_all() == {"b/x": new}
        await store.pins.put()


@proves("H4")
async def test_odd_names_come_back_exactly(open_store: OpenStore) -> None:
    async with open_store() as store:
        for number, name in enumerate(ODD_NAMES):
            await store.pins.put(replace(pin(f"tool {number}"), accepted_by=None))
            await store.tokens.put(name, name.encode("utf-8", "surrogatepass"))
            await store.cache.put(name, name, b"value")
        for name in ODD_NAMES:
            assert await store.tokens.get(name) == name.encode("utf-8", "surrogatepass")
            assert await store.cache.get(name, name) == b"value"


@proves("H4")
async def test_tokens_are_kept_per_server(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.tokens.get("github") is None
        await store.tokens.put("github", b"\x00\xffold")
        await store.tokens.put("github", b"\x00\xffnew")
    async with open_store() as store:
        assert await store.tokens.get("github") == b"\x00\xffnew"
        assert await store.tokens.remove("github")
        assert not await store.tokens.remove("github")
        assert await store.tokens.get("github") is None


@proves("H4")
async def test_the_cache_keeps_values_until_they_expire(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.cache.put("listing", "a", b"1", ttl=60, now=NOON)
        await store.cache.put("listing", "b", b"2", now=NOON)
        await store.cache.put("other", "a", b"3", now=NOON)
        minute = NOON + timedelta(seconds=60)
        assert await store.cache.get("listing", "a", now=NOON) == b"1"
        assert await store.cache.get("listing", "a", now=minute) is None
        assert await store.cache.get("listing", "b", now=minute) == b"2"
        assert await store.cache.get("other", "a", now=minute) == b"3"
        await store.cache.put("listing", "b", b"4", now=minute)
        assert await store.cache.get("listing", "b", now=minute) == b"4"


async def test_beyond_the_bound_of_entries_the_least_recently_used_goes(open_store: OpenStore) -> None:
    async with open_store(cache=CacheLimits(entries=3)) as store:
        for second, key in enumerate("abc"):
            await store.cache.put("s", key, b"value", now=NOON + timedelta(seconds=second))
        assert await store.cache.get("s", "a", now=NOON + timedelta(seconds=10))
        await store.cache.put("s", "d", b"value", now=NOON + timedelta(seconds=11))
        kept = [key for key in "abcd" if await store.cache.get("s", key)]
    assert kept == ["a", "c", "d"]


async def test_beyond_the_bound_of_bytes_the_least_recently_used_goes(open_store: OpenStore) -> None:
    async with open_store(cache=CacheLimits(size=100)) as store:
        for second, key in enumerate("abc"):
            await store.cache.put("s", key, bytes(30), now=NOON + timedelta(seconds=second))
        await store.cache.put("s", "d", bytes(60), now=NOON + timedelta(seconds=5))
        kept = [key for key in "abcd" if await store.cache.get("s", key)]
        assert kept == ["c", "d"]


async def test_a_value_larger_than_the_cache_is_not_kept_and_displaces_only_itself(
    open_store: OpenStore,
) -> None:
    async with open_store(cache=CacheLimits(size=100)) as store:
        await store.cache.put("s", "a", bytes(40))
        await store.cache.put("s", "b", bytes(40))
        await store.cache.put("s", "b", bytes(101))
        assert await store.cache.get("s", "a") == bytes(40)
        assert await store.cache.get("s", "b") is None
