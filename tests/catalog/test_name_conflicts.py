"""Tools that keep the names their servers gave them, and never share one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog.tool_names import (
    MAX_EXPOSED_LENGTH,
    RESERVED_NAMES,
    build_exposed_name,
    build_own_name,
)
from fingerpost.records import Listing
from tests.kit.catalogs import catalog, tool
from tests.requirements import proves

NAMES = st.one_of(
    st.sampled_from(["a", "b", "a__b", "b__a", "read_result", "x y", "a__a__b", "é", "n" * 70]),
    st.text("ab_-", min_size=1, max_size=6),
)
SERVERS = st.dictionaries(
    st.sampled_from(["a", "b", "a_b", "c d"]),
    st.tuples(st.booleans(), st.lists(NAMES, min_size=1, max_size=6, unique=True)),
    max_size=4,
)


@pytest.mark.slow
@proves("H15", "G4")
@given(SERVERS)
def test_every_tool_has_a_name_of_its_own_and_prefixed_ones_the_usual(
    servers: dict[str, tuple[bool, list[str]]],
) -> None:
    it = catalog(
        *(
            Listing(server=server, prefix=prefix, definitions=tuple(tool(name) for name in names))
            for server, (prefix, names) in servers.items()
        )
    )
    cards = it.snapshot.cards
    names = [card.exposed_name for card in cards]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= MAX_EXPOSED_LENGTH for name in names)
    assert not RESERVED_NAMES & set(names)
    for card in cards:
        assert it.snapshot.by_exposed_name(card.exposed_name) is card
        if servers[card.server][0]:
            assert card.exposed_name == build_exposed_name(card.server, card.name)


@proves("H15")
def test_names_do_not_depend_on_the_order_in_which_servers_answer() -> None:
    one = Listing(server="one", prefix=False, definitions=(tool("look"), tool("see")))
    two = Listing(server="two", prefix=False, definitions=(tool("look"),))
    first, second = catalog(one, two), catalog(two, one)
    shown = {card.key: card.exposed_name for card in first.snapshot.cards}
    assert shown == {card.key: card.exposed_name for card in second.snapshot.cards}
    assert shown == {"one/look": "look", "one/see": "see", "two/look": "two__look"}
    first.remove_server("one")
    assert first.snapshot.cards[0].exposed_name == "look"


@proves("H15")
def test_a_server_that_gets_its_prefix_back_is_named_anew() -> None:
    it = catalog(Listing(server="one", prefix=False, definitions=(tool("look"),)))
    assert it.snapshot.cards[0].exposed_name == "look"
    it.replace_server(Listing(server="one", definitions=(tool("look"),)))
    assert it.snapshot.cards[0].exposed_name == "one__look"


def test_a_name_that_is_ours_or_unusable_is_prefixed() -> None:
    assert build_own_name("one", "find_tools") == "one__find_tools"
    assert build_own_name("one", "x y").startswith("one__x_y-0")
    assert build_own_name("one", "look") == "look"
