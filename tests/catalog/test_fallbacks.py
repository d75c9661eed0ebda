from __future__ import annotations

from fingerpost.records import Json, Known, Source
from fingerpost.settings.model import ToolOverride
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves

QUERY: Json = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
QUERY_AND_COUNTRY: Json = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "country": {"type": "string"}},
    "required": ["query", "country"],
}


def search(name: str, schema: Json = QUERY) -> dict[str, Json]:
    return tool(name, "Search the web", inputSchema=schema)


@proves("D1")
def test_a_search_on_another_server_stands_in_for_a_search() -> None:
    snapshot = catalog(
        create_listing("brave", search("brave_web_search"), search("brave_local_search")),
        create_listing("exa", search("web_search")),
    ).snapshot
    links = {card.key: card.intelligence.hierarchy for card in snapshot.cards}
    assert links["brave/brave_web_search"].value == ("exa/web_search",)
    assert links["exa/web_search"].value == ("brave/brave_web_search",)
    assert links["exa/web_search"].source is Source.INFERRED
    assert links["brave/brave_local_search"].value == ()


@proves("D1")
@table(
    ("one", "two", "name", "about"),
    [
        ("web-prod", "web-staging", "read_thing", "Read a thing."),
        ("http-a", "http-b", "read_thing", "Read a thing."),  # what they are called says nothing of the tool
        ("search-prod", "search-staging", "web_search", "Search the web"),
        ("web", "web-dev", "web_search", "Search the web"),
    ],
)
def test_what_servers_are_called_makes_none_stand_in_for_another(
    one: str, two: str, name: str, about: str
) -> None:
    made = [create_listing(server, tool(name, about, inputSchema=QUERY)) for server in (one, two)]
    assert [card.intelligence.hierarchy.value for card in catalog(*made).snapshot.cards] == [(), ()]


@proves("D1")
def test_a_stand_in_never_needs_an_argument_the_first_tool_does_not_take() -> None:
    snapshot = catalog(
        create_listing("one", search("web_search")),
        create_listing("two", search("web_search", QUERY_AND_COUNTRY)),
    ).snapshot
    links = {card.key: card.intelligence.hierarchy.value for card in snapshot.cards}
    assert links == {"one/web_search": (), "two/web_search": ("one/web_search",)}


@proves("D1")
@table(
    ("name", "description"),
    [
        ("read_text_file", "Read a file of the filesystem"),
        ("search_messages", "Find messages in a channel"),
        ("list_tables", "Tables of the database"),
        ("create_web_search", "Create a saved web search on the internet"),
    ],
)
def test_private_things_and_tools_that_act_have_no_inferred_stand_in(name: str, description: str) -> None:
    snapshot = catalog(
        create_listing("one", tool(name, description)), create_listing("two", tool(name, description))
    ).snapshot
    assert [card.intelligence.hierarchy.value for card in snapshot.cards] == [(), ()]


@proves("D1")
def test_written_fallbacks_become_keys_of_the_tools_that_are_there() -> None:
    rule = ToolOverride(
        match="a/get_x", hierarchy=("get_y", "c__get_z", "D.get_w", "nowhere"), conflicts=("GetY", "get_x")
    )
    it = catalog(
        create_listing("b", tool("get_y")),
        create_listing("a", tool("get_x"), tool("get_y")),
        create_listing("c", tool("get_z")),
        create_listing("d", tool("get-w")),
        overrides=[rule],
    )
    known = it.snapshot.cards[0].intelligence
    assert known.hierarchy == Known(
        ("a/get_y", "b/get_y", "c/get_z", "d/get-w"),
        Source.WRITTEN,
        "written for 'a/get_x'; not there: nowhere",
    )
    assert known.conflicts.value == ("a/get_y", "b/get_y")


@proves("D1", "H17")
def test_links_follow_servers_that_come_and_go_and_older_snapshots_keep_theirs() -> None:
    it = catalog(create_listing("one", search("web_search")), create_listing("two", search("web_search")))
    both = it.snapshot
    it.remove_server("two")
    assert it.snapshot.cards[0].intelligence.hierarchy.value == ()
    assert both.cards[0].intelligence.hierarchy.value == ("two/web_search",)


@proves("D1")
def test_many_equal_tools_give_a_few_links_best_first() -> None:
    servers = [create_listing(f"s{number:02}", search("web_search")) for number in range(60)]
    rules = [ToolOverride(match="s41/*", priority=99)]
    snapshot = catalog(*servers, overrides=rules).snapshot
    assert snapshot.cards[0].intelligence.hierarchy.value == (
        "s41/web_search",
        "s01/web_search",
        "s02/web_search",
    )
