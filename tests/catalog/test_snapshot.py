from __future__ import annotations

from fingerpost.catalog import Snapshot
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves

SNAPSHOT = catalog(
    create_listing("github", tool("get_issue", "Read one issue"), tool("create_issue", "Open an issue")),
    create_listing(
        "jira", tool("get_issue", "Read one ticket"), tool("list_boards", "Boards with their issues")
    ),
).snapshot


@proves("C9", "H17")
def test_a_snapshot_puts_its_cards_in_order_by_itself() -> None:
    assert Snapshot(cards=tuple(reversed(SNAPSHOT.cards))).cards == SNAPSHOT.cards


@proves("H17")
@table(
    ("text", "key"),
    [
        ("github/get_issue", "github/get_issue"),
        ("jira__get_issue", "jira/get_issue"),
        ("list_boards", "jira/list_boards"),
        ("get_issue", None),
        ("github", None),
        ("", None),
    ],
)
def test_a_tool_is_found_by_key_exposed_name_or_unique_bare_name(text: str, key: str | None) -> None:
    found = SNAPSHOT.find(text)
    assert (found.key if found else None) == key


@table(
    ("text", "key"),
    [
        ("get_isue", "github/get_issue"),
        ("jira/getissue", "jira/get_issue"),
        ("boards_list", "jira/list_boards"),
        ("GITHUB__CREATE_ISSUES", "github/create_issue"),
    ],
)
def test_the_nearest_name_comes_first(text: str, key: str) -> None:
    assert SNAPSHOT.near(text)[0] == key


def test_near_gives_no_more_than_asked_and_survives_anything() -> None:
    assert len(SNAPSHOT.near("issue", n=2)) == 2
    assert SNAPSHOT.near("\u05e9\u05dc\u05d5\u05dd") == ()
    assert SNAPSHOT.near("") == ()
    assert SNAPSHOT.near("x" * 1_000_000) == ()


def test_a_search_matches_every_word_and_puts_names_before_descriptions() -> None:
    assert [card.key for card in SNAPSHOT.search("ISSUE")] == [
        "github/create_issue",
        "github/get_issue",
        "jira/get_issue",
        "jira/list_boards",
    ]
    assert [card.key for card in SNAPSHOT.search("ticket jira")] == ["jira/get_issue"]
    assert SNAPSHOT.search("issue ticket board") == ()
    assert SNAPSHOT.search("") == SNAPSHOT.cards


def test_the_tools_of_one_server_are_given_in_order() -> None:
    assert [card.name for card in SNAPSHOT.by_server("jira")] == ["get_issue", "list_boards"]
    assert SNAPSHOT.by_server("gitlab") == ()
