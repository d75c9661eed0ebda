from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog import build_exposed_name, build_tool_key, escape_invisible_except
from fingerpost.catalog.tool_names import escape_invisible
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")

any_text = st.text(min_size=1, max_size=90)
# Names made of few characters meet each other far more often than random Unicode does.
crowded = st.text(alphabet="aA_-./ \u0430\u200b0", min_size=1, max_size=6)
pairs = st.tuples(crowded | any_text, crowded | any_text)


@proves("H15")
@given(pairs)
def test_an_exposed_name_is_one_that_every_provider_accepts(pair: tuple[str, str]) -> None:
    assert ACCEPTED.fullmatch(build_exposed_name(*pair))


@proves("H15", "F20")
@given(st.sets(st.tuples(crowded, crowded), min_size=2, max_size=40))
def test_different_tools_have_different_keys_and_exposed_names(tools: set[tuple[str, str]]) -> None:
    assert len({build_tool_key(*pair) for pair in tools}) == len(tools)
    assert len({build_exposed_name(*pair) for pair in tools}) == len(tools)


@proves("H15")
@given(pairs)
def test_no_tool_can_be_named_like_the_escaped_name_of_another(pair: tuple[str, str]) -> None:
    taken = build_exposed_name(*pair)
    server, _, forged = taken.partition("__")
    if (server, forged) != pair:
        assert build_exposed_name(server, forged) != taken


@proves("H15")
def test_an_ordinary_name_is_exposed_as_it_is() -> None:
    assert build_exposed_name("github", "get_issue") == "github__get_issue"
    assert build_exposed_name("my-server", "searchCode") == "my-server__searchCode"
    assert build_exposed_name("notion", "list-categories") == "notion__list-categories"


@proves("H15")
def test_the_place_where_server_and_tool_meet_is_never_ambiguous() -> None:
    spellings = [
        ("a__b", "c"),
        ("a", "b__c"),
        ("a_", "_b"),
        ("a", "__b"),
        ("a__", "b"),
        ("a_", "b"),
        ("a", "_b"),
    ]
    assert len({build_exposed_name(*pair) for pair in spellings}) == len(spellings)


@proves("H15", "F20")
def test_a_slash_in_a_server_name_does_not_move_the_border_between_server_and_tool() -> None:
    snapshot = catalog(create_listing("a/b", tool("c")), create_listing("a", tool("b/c"))).snapshot
    assert [(card.key, card.server, card.name) for card in snapshot.cards] == [
        ("a/b/c", "a", "b/c"),
        ("a\\x2fb/c", "a/b", "c"),
    ]


@proves("H15")
def test_a_long_name_keeps_its_beginning_and_stays_unique() -> None:
    first = build_exposed_name("warehouse", "list_everything_" * 8 + "1")
    second = build_exposed_name("warehouse", "list_everything_" * 8 + "2")
    assert first != second
    assert first.startswith("warehouse__list_everything_")
    assert len(first) == len(second) == 64


@proves("H15")
def test_names_do_not_change_when_other_tools_come_or_go() -> None:
    odd = tool("read.file")
    alone = catalog(create_listing("box", odd)).snapshot
    crowd = catalog(
        create_listing("box", tool("read_file"), odd, tool("read/file")), create_listing("box_", odd)
    ).snapshot
    assert {card.key: card.exposed_name for card in alone.cards}.items() <= {
        card.key: card.exposed_name for card in crowd.cards
    }.items()


@proves("F22")
@table(
    ("name", "shown"),
    [
        ("read\u200bfile", "read\\u200bfile"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("line\nbreak", "line\\x0abreak"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("blank\u3164", "blank\\u3164"),
        ("קרא_קובץ", "קרא_קובץ"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_an_odd_name_is_reachable_and_shown_with_what_it_hides(name: str, shown: str) -> None:
    snapshot = catalog(create_listing("box", tool(name))).snapshot
    (card,) = snapshot.cards
    assert card.key == f"box/{shown}"
    assert card.name == name
    assert ACCEPTED.fullmatch(card.exposed_name)
    assert snapshot.find(card.exposed_name) is snapshot.find(card.key) is snapshot.find(name) is card


@proves("F22")
def test_a_name_that_only_looks_like_another_gets_a_name_that_looks_different() -> None:
    snapshot = catalog(
        create_listing("box", tool("read_file"), tool("re\u0430d_file"), tool("read_file\u200b"))
    ).snapshot
    exposed = {card.name: card.exposed_name for card in snapshot.cards}
    assert exposed["read_file"] == "box__read_file"
    assert exposed["re\u0430d_file"].startswith("box__re_d_file-")
    assert exposed["read_file\u200b"].startswith("box__read_file-")


@proves("F22")
@given(st.text(max_size=30), st.text(max_size=30))
def test_the_visible_form_hides_nothing_and_confuses_nothing(one: str, other: str) -> None:
    assert escape_invisible_except(one).isprintable()
    assert (escape_invisible_except(one) == escape_invisible_except(other)) == (one == other)


@proves("F22")
@given(any_text, any_text)
def test_a_key_is_printable_and_its_first_slash_separates(server: str, name: str) -> None:
    key = build_tool_key(server, name)
    assert key.isprintable()
    assert key.partition("/")[2] == escape_invisible_except(name)


@table("before", [0, 1, 2, 16_382, 16_383, 16_384, 40_000])
def test_what_is_unseen_is_written_out_wherever_in_a_long_text_it_stands(before: int) -> None:
    """Text is searched in steps; a mark that belongs to the picture before it may be in the next one."""
    rest = "x" * 40_000
    text = f"{rest[:before]}\u2600\ufe0f \u200b\x1b\ufe0f\n{rest}\x7f"
    assert escape_invisible(text) == f"{rest[:before]}\u2600\ufe0f \\u200b\\x1b\\ufe0f\n{rest}\\x7f"
