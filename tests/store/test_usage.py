from __future__ import annotations

import math
import random

import anyio
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.store.learning import RELATIVE_ERROR, compute_quantile, get_bucket, get_bucket_value
from tests.kit.store_samples import NOON, minutes, sample
from tests.kit.stores import OpenStore
from tests.requirements import proves


def exact(values: list[float], share: float) -> float:
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


@proves("H18", "H4")
async def test_calls_of_two_processes_add_up_to_one_profile(open_store: OpenStore) -> None:
    chance = random.Random(7)
    times = [chance.lognormvariate(5, 1) for _ in range(400)]
    sizes = [chance.randrange(0, 3000) for _ in range(400)]
    async with open_store() as one, open_store() as two:
        for number, (ms, tokens) in enumerate(zip(times, sizes, strict=True)):
            store = one if number % 2 else two
            store.usage.record_soon(
                sample(ms=ms, tokens=tokens, success=number % 10 != 0, at=NOON + minutes(number))
            )
        await one.usage.record(sample("git/diff", ms=12.0, tokens=3))
        await two.journal.flush()
        profiles = await one.usage.get_profiles()
    assert list(profiles) == ["git/diff", "git/log"]
    profile = profiles["git/log"]
    assert (profile.calls, profile.failures, profile.last_used) == (400, 40, NOON + minutes(399))
    assert math.isclose(profile.typical_ms, exact(times, 0.5), rel_tol=RELATIVE_ERROR)
    assert math.isclose(profile.slow_ms, exact(times, 0.95), rel_tol=RELATIVE_ERROR)
    assert math.isclose(profile.typical_tokens, exact([*map(float, sizes)], 0.5), rel_tol=0.05)
    assert math.isclose(profile.large_tokens, exact([*map(float, sizes)], 0.95), rel_tol=0.05)
    assert (profiles["git/diff"].typical_tokens, profiles["git/diff"].large_tokens) == (3, 3)


async def test_unawaited_writes_are_written_soon_and_at_the_latest_when_the_store_closes(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        store.usage.record_soon(sample())
        with anyio.fail_after(30):
            while "git/log" not in await store.usage.get_profiles():  # noqa: ASYNC110 - it is the database that changes
                await anyio.sleep(0.05)
        store.usage.record_soon(sample())
    async with open_store() as store:
        assert (await store.usage.get_profiles())["git/log"].calls == 2


async def test_an_older_call_that_arrives_late_does_not_move_the_last_use_back(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.usage.record(sample(at=NOON))
        await store.usage.record(sample(at=NOON - minutes(5)))
        assert (await store.usage.get_profiles())["git/log"].last_used == NOON


@proves("H18")
@given(
    values=st.lists(st.floats(min_value=1e-3, max_value=1e12), min_size=1, max_size=300),
    share=st.sampled_from([0.5, 0.95]),
)
def test_a_counted_quantile_is_within_the_stated_error(values: list[float], share: float) -> None:
    counts: dict[int, int] = {}
    for value in values:
        counts[get_bucket(value)] = counts.get(get_bucket(value), 0) + 1
    assert math.isclose(
        compute_quantile(counts, share), exact(values, share), rel_tol=RELATIVE_ERROR * (1 + 1e-6)
    )


@given(tokens=st.integers(min_value=0, max_value=10**9))
def test_a_number_of_tokens_is_within_five_percent_after_rounding(tokens: int) -> None:
    assert math.isclose(round(get_bucket_value(get_bucket(tokens))), tokens, rel_tol=0.05)


@given(value=st.one_of(st.floats(), st.integers(min_value=-(10**30), max_value=10**30)))
def test_any_number_at_all_has_a_bucket(value: float) -> None:
    assert 0 <= get_bucket_value(get_bucket(value)) <= 1.1e12
