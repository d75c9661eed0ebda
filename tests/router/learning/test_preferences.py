"""What one person is used to decides between equals, for that person alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost import Router
from fingerpost.narrow.feedback import Preferences
from fingerpost.records import Choice, utc_now
from fingerpost.testing import tool_server
from tests.kit.learning import definition, first, why
from tests.kit.routers import build_settings
from tests.requirements import proves

NOW = datetime(2026, 11, 15, tzinfo=UTC)
# The same thing from two houses, described alike.
PLACES = {
    "alpha": [definition("word_meaning", "Look up a word in the dictionary and give its meaning.")],
    "beta": [definition("meaning_word", "Look up a word in the dictionary and give its meaning.")],
    "gamma": [definition("play_music", "Play a song or an album in the living room.")],
}
REQUEST = "what is the meaning of a word in the dictionary"


def create_router(folder: Path, *, on: bool = True) -> Router:
    specs = [tool_server(name, tools).spec() for name, tools in PLACES.items()]
    return Router(specs, settings=build_settings(folder, flags={"preferences": on, "learned_use": True}))


async def uses(router: Router, person: str, tool: str, times: int = 8) -> None:
    for number in range(times):  # of other words than the one asked later: a habit is not a likeness
        choice = Choice(request=f"errand {number}", tool=tool, worked=True, at=utc_now(), caller=person)
        await router.store.choices.record(choice)


@proves("L5", "E11", "B10")
async def test_each_person_gets_the_one_they_are_used_to(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        await router.connect()
        plain = first(await router.narrow(REQUEST))
        other = {"alpha/word_meaning": "beta/meaning_word", "beta/meaning_word": "alpha/word_meaning"}[plain]
        await uses(router, "dana", other)
        await uses(router, "kim", "gamma/play_music")
    async with create_router(tmp_path) as router:
        await router.connect()
        dana = await router.narrow(REQUEST, caller="dana")
        kim = await router.narrow(REQUEST, caller="kim")
        anonymous = await router.narrow(REQUEST)
    assert first(dana) == other
    points, note = why(dana, other)["preference"]
    assert 0 < points <= 0.05
    assert note == "what dana usually takes"
    assert first(kim) == first(anonymous) == plain, "a habit lifts nothing that suits less"
    assert all("preference" not in why(found, plain) for found in (kim, anonymous))


@pytest.mark.slow
@proves("L5")
async def test_off_it_changes_nothing_and_it_can_be_forgotten_for_one(tmp_path: Path) -> None:
    async with create_router(tmp_path, on=False) as router:
        await router.connect()
        plain = first(await router.narrow(REQUEST))
        other = {"alpha/word_meaning": "beta/meaning_word", "beta/meaning_word": "alpha/word_meaning"}[plain]
        await uses(router, "dana", other)
        await uses(router, "kim", other)
    async with create_router(tmp_path, on=False) as router:
        await router.connect()
        assert first(await router.narrow(REQUEST, caller="dana")) == plain
    async with create_router(tmp_path) as router:
        await router.connect()
        assert first(await router.narrow(REQUEST, caller="dana")) == other
        await router.learning.forget("preferences", by="dana", person="dana")
        assert first(await router.narrow(REQUEST, caller="dana")) == plain
        assert first(await router.narrow(REQUEST, caller="kim")) == other
        shown = await router.learning.build_overview()
    assert {one.person for one in shown.preferences} == {"kim"}


_CHOICES = st.lists(
    st.builds(
        Choice,
        request=st.just("x"),
        tool=st.sampled_from(["a/x", "b/y", "c/z"]),
        worked=st.booleans(),
        at=st.integers(0, 1000).map(lambda days: NOW - timedelta(days=days)),
        caller=st.sampled_from(["dana", "kim", None]),
    ),
    max_size=30,
)


@proves("L5")
@given(_CHOICES)
def test_habits_belong_to_one_caller(choices: list[Choice]) -> None:
    def learnt(some: list[Choice]) -> Preferences:
        made = Preferences()
        made.learn(some, (), now=NOW, half_life=timedelta(days=90), marks={})
        return made

    every = learnt(choices)
    assert every.get_for(None) == {}
    for person in ("dana", "kim"):
        alone = learnt([choice for choice in choices if choice.caller == person])
        assert every.get_for(person) == alone.get_for(person)
        assert all(weight > 0 for weight in every.get_for(person).values())
