"""The state a client carries: whatever is done to it, it opens as it was made or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.store import Store
from fingerpost.surfaces.gateway.elicitation.request_state import (
    STATE_PREFIX,
    InvalidRequestState,
    RequestStateCipher,
    StateBinding,
    is_own_state,
)
from tests.kit.elicitation import EVE, request
from tests.requirements import proves

SECRET = bytes(range(32))
SEAL = RequestStateCipher(SECRET, clock=lambda: 1_000_000.0)
BINDING = StateBinding(caller="dana", call="delete")


def seal(**more: Any) -> str:
    return SEAL.seal("further", "apr_1", BINDING, seconds=60, **more)[0]


STATE = seal(carried={"state": "of the server"})


@proves("G7")
@given(st.text())
def test_what_is_carried_comes_back_as_it_was(inner: str) -> None:
    opened = SEAL.open(seal(carried={"state": inner}), BINDING)
    assert (opened.kind, opened.subject, opened.carried) == ("further", "apr_1", {"state": inner})


def test_half_a_character_comes_back_too() -> None:
    assert SEAL.open(seal(carried={"state": "\ud83d"}), BINDING).carried == {"state": "\ud83d"}


@proves("G7")
@given(st.data())
def test_any_altered_byte_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(STATE) - 1))
    other = data.draw(st.characters(max_codepoint=0x2FF).filter(lambda character: character != STATE[place]))
    with pytest.raises(InvalidRequestState, match="changed on its way"):
        SEAL.open(STATE[:place] + other + STATE[place + 1 :], BINDING)


@proves("G7")
@given(st.data())
def test_any_missing_or_added_part_is_refused(data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(STATE)), st.integers(0, len(STATE)))))
    added = data.draw(st.text(alphabet="AZaz09-_=", max_size=8))
    changed = STATE[:start] + added + STATE[end:]
    if changed != STATE:
        with pytest.raises(InvalidRequestState, match="changed on its way"):
            SEAL.open(changed, BINDING)


def test_a_state_has_one_spelling() -> None:
    """The last letter of base64 has bits to spare: other letters there would decode to the same bytes."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for extra in range(4):  # of every length modulo three, one with spare bits
        state = seal(carried={"state": "x" * extra})
        for letter in letters.replace(state[-1], ""):
            with pytest.raises(InvalidRequestState):
                SEAL.open(state[:-1] + letter, BINDING)


@given(st.text())
def test_junk_is_refused(junk: str) -> None:
    for state in (junk, STATE_PREFIX + junk):
        with pytest.raises(InvalidRequestState):
            SEAL.open(state, BINDING)


def test_two_states_of_the_same_are_never_equal_and_show_nothing() -> None:
    one, other = seal(carried={"state": "secret"}), seal(carried={"state": "secret"})
    assert one != other
    assert is_own_state(one)
    assert not is_own_state("of a server")
    assert not is_own_state(None)
    assert "apr_1" not in one


@proves("G7")
def test_another_installation_cannot_open_it() -> None:
    with pytest.raises(InvalidRequestState, match="not made by this gateway"):
        RequestStateCipher(bytes(32)).open(seal(), BINDING)


@proves("G7", "F36")
def test_it_expires_and_a_clock_set_back_does_not_prolong_it() -> None:
    now = 1_000_000.0
    seal = RequestStateCipher(SECRET, clock=lambda: now)
    state, _ = seal.seal("approval", "apr_1", BINDING, seconds=60)
    now += 59
    seal.open(state, BINDING)
    now += 2
    with pytest.raises(InvalidRequestState, match="expired"):
        seal.open(state, BINDING)
    now -= 3600
    with pytest.raises(InvalidRequestState, match="expired"):
        seal.open(state, BINDING)


def test_the_binding_sees_every_part_of_the_call() -> None:
    base = StateBinding.from_request(request())
    assert base == StateBinding.from_request(request(answers={"a": 1}, state="x", meta={"progressToken": 1}))
    others = [
        request(principal=EVE),
        request(name="notes__read_note"),
        request(arguments={}),
        request(arguments={"path": "/tmp/a.txt", "more": None}),
        request(arguments={"path": ["/tmp/a.txt"]}),
    ]
    assert all(StateBinding.from_request(other) != base for other in others)
    one, text = request(arguments={"n": 1}), request(arguments={"n": "1"})
    assert StateBinding.from_request(one) != StateBinding.from_request(text)
    assert StateBinding.from_request(request(arguments={"a": 1, "b": 2})) == StateBinding.from_request(
        request(arguments={"b": 2, "a": 1})
    )


@pytest.mark.anyio
async def test_an_installation_keeps_its_secret(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with Store.open(url) as store, Store.open(url) as second:
        secret = await store.secret.load()
        assert await second.secret.load() == secret
        assert len(secret) == 32
    assert (tmp_path / "s.db").stat().st_mode & 0o077 == 0
    async with Store.open(url) as store:
        assert await store.secret.load() == secret
    async with Store.open(f"sqlite:///{tmp_path}/other.db") as store:
        assert await store.secret.load() != secret
