from __future__ import annotations

import random
import socket
from dataclasses import FrozenInstanceError
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fingerpost.catalog import Catalog
from fingerpost.events import CatalogChanged, MemorySink, ToolDropped
from fingerpost.records import DroppedTool, Effect, Json, Listing
from fingerpost.records.codec import from_json, to_json
from fingerpost.records.tools import ToolCard
from fingerpost.settings.model import FlagSettings, ToolOverride
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves


@pytest.mark.slow
@proves("C9", "H17")
@given(st.randoms(use_true_random=False))
def test_the_order_is_the_same_whatever_order_things_arrive_in(shuffler: random.Random) -> None:
    servers = {name: [tool(f"get_{part}") for part in "abcd"] for name in ("b", "a", "a-b", "B")}
    reference = catalog(*(create_listing(name, *tools) for name, tools in servers.items())).snapshot.cards
    names = list(servers)
    shuffler.shuffle(names)
    for tools in servers.values():
        shuffler.shuffle(tools)
    cards = catalog(*(create_listing(name, *servers[name]) for name in names)).snapshot.cards
    assert cards == reference
    assert [card.key for card in cards] == sorted(card.key for card in cards)


@proves("H17")
def test_a_snapshot_stays_as_it_was_and_is_reused_until_something_changes() -> None:
    it = catalog(create_listing("shop", tool("get_price")))
    before = it.snapshot
    it.replace_server(create_listing("shop", tool("get_price")))
    assert it.snapshot is before
    it.replace_server(create_listing("shop", tool("get_price"), tool("get_stock")))
    assert [card.key for card in before.cards] == ["shop/get_price"]
    assert it.snapshot is not before
    assert it.snapshot.version == before.version + 1
    with pytest.raises(FrozenInstanceError):
        before.version = 7  # pyright: ignore[reportAttributeAccessIssue] - the point of the test


@proves("H17")
def test_every_change_is_one_event_with_its_difference() -> None:
    events = MemorySink()
    it = catalog(events=events, flags=FlagSettings(pins=False))
    it.replace_server(create_listing("shop", tool("get_b"), tool("get_a")))
    it.replace_server(create_listing("shop", tool("get_b"), tool("get_a")))
    it.replace_server(create_listing("shop", tool("get_b", "Look at it differently"), tool("get_c")))
    it.remove_server("shop")
    it.remove_server("shop")
    listed = [event for event in events.events if isinstance(event, CatalogChanged)]
    assert [(event.catalog_version, event.added, event.removed, event.changed) for event in listed] == [
        (1, ("shop/get_a", "shop/get_b"), (), ()),
        (2, ("shop/get_c",), ("shop/get_a",), ("shop/get_b",)),
        (3, (), ("shop/get_b", "shop/get_c"), ()),
    ]


@proves("H17")
def test_the_definition_is_kept_unmodified_and_a_card_survives_json() -> None:
    definition = tool("get_price", _meta={"x": [1, None]}, icons=[{"src": "data:,"}], anything={"new": True})
    (card,) = catalog(create_listing("shop", definition)).snapshot.cards
    assert card.definition is definition
    assert from_json(ToolCard, to_json(card)) == card


@proves("D1")
def test_a_tool_a_person_switched_off_is_not_listed_and_says_why() -> None:
    events = MemorySink()
    off = [ToolOverride(match="shop/*", enabled=False), ToolOverride(match="shop/get_price", enabled=True)]
    tools = (tool("get_price"), tool("get_stock"), tool("get_more"))
    it = catalog(create_listing("shop", *tools), overrides=off, events=events)
    assert [card.key for card in it.snapshot.cards] == ["shop/get_price"]
    assert [(drop.name, drop.reason) for drop in it.dropped] == [
        ("get_stock", "switched off: written for 'shop/*'"),
        ("get_more", "switched off: written for 'shop/*'"),
    ]
    assert not any(isinstance(event, ToolDropped) for event in events.events)


@proves("F20")
def test_of_two_tools_with_one_name_in_one_server_the_first_stays() -> None:
    it = catalog(create_listing("shop", tool("get_price", "the first"), tool("get_price", "the second")))
    assert [card.description for card in it.snapshot.cards] == ["the first"]
    assert [(drop.name, drop.reason) for drop in it.dropped] == [
        ("get_price", "has the same name as an earlier tool")
    ]


@proves("F20")
def test_the_same_name_on_two_servers_is_two_tools() -> None:
    snapshot = catalog(create_listing("a", tool("search")), create_listing("b", tool("search"))).snapshot
    assert [card.exposed_name for card in snapshot.cards] == ["a__search", "b__search"]
    assert snapshot.find("search") is None
    assert [card.key for card in snapshot.resolve("search").cards] == ["a/search", "b/search"]


def nest_objects(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth):
        value = {"items": value}
    return value


@proves("F22")
@table(
    ("bad", "reason"),
    [
        ({"description": "nameless"}, "has no name"),
        ({"name": ""}, "has no name"),
        ({"name": " \t\n"}, "has no name"),
        ({"name": 7}, "has no name"),
        ({"name": "x" * 1025}, "has a name of more than 1024 characters"),
        ({"name": "half \ud800"}, "holds text that is not valid Unicode"),
        ({"name": "deep", "inputSchema": nest_objects(10_000)}, "is nested more than 100 levels deep"),
        ({"name": "nan", "inputSchema": {"default": float("nan")}}, "holds nan, which JSON cannot represent"),
        ("not even an object", "is not an object"),
    ],
)
def test_a_definition_that_cannot_be_taken_is_dropped_alone_with_the_reason(bad: Json, reason: str) -> None:
    events = MemorySink()
    wrong = Listing(server="shop", definitions=(bad, tool("get_price")))  # pyright: ignore[reportArgumentType] - a server may send anything
    it = catalog(wrong, wrong, events=events)
    assert [card.key for card in it.snapshot.cards] == ["shop/get_price"]
    assert [drop.reason for drop in it.dropped] == [reason]
    listed = [event.reason for event in events.events if isinstance(event, ToolDropped)]
    assert listed == [reason]


@proves("F22")
def test_the_name_of_a_dropped_tool_is_shown_with_what_it_hides() -> None:
    it = catalog(create_listing("shop", {"name": "half \ud800\u202e"}))
    assert [drop.name for drop in it.dropped] == ["half \\ud800\\u202e"]


def test_what_was_dropped_while_listing_is_shown_and_not_told_twice() -> None:
    events = MemorySink()
    drop = DroppedTool(server="shop", name="broken", reason="its schema is not an object")
    it = catalog(Listing(server="shop", dropped=(drop,)), events=events)
    assert it.dropped == (drop,)
    assert events.events == ()
    it.remove_server("shop")
    assert it.dropped == ()


@proves("F16")
def test_a_schema_that_refers_to_itself_is_listed_as_it_is() -> None:
    schema: Json = {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}, "y": {"$ref": "#"}}}
    it = catalog(create_listing("shop", tool("get_loop", inputSchema=schema, outputSchema={"$ref": "#"})))
    (card,) = it.snapshot.cards
    assert card.definition["inputSchema"] == schema
    assert card.intelligence.parameters.optional == ("x", "y")


@proves("F18")
def test_a_reference_into_the_network_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema: Json = {
            "type": "object",
            "properties": {"x": {"$ref": address}},
            "allOf": [{"$ref": address}],
        }
        it = catalog(create_listing("shop", tool("get_far", inputSchema=schema)))
        assert [card.key for card in it.snapshot.cards] == ["shop/get_far"]
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.slow
@proves("F21")
def test_ten_thousand_tools_of_one_server_are_all_reachable() -> None:
    tools = ({"name": f"get_thing_{number:05}"} for number in range(10_000))
    flags = FlagSettings(scan_definitions=False, inferred_intelligence=False)
    read = ToolOverride(match="big/*", effect=Effect.READ)  # nothing to be judged ten thousand times
    snapshot = catalog(create_listing("big", *tools), overrides=[read], flags=flags).snapshot
    assert len(snapshot.cards) == 10_000
    for number in (0, 4_999, 9_999):
        name = f"get_thing_{number:05}"
        found = snapshot.by_exposed_name(f"big__{name}")
        assert found is snapshot.get(f"big/{name}") is snapshot.find(name)
        assert found is not None
    assert snapshot.near("get_thng_04999")[0] == "big/get_thing_04999"


class Churn(RuleBasedStateMachine):
    """Servers and tools come, change and go in any order; the catalog keeps its promises throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.events = MemorySink()
        self.catalog = Catalog(events=self.events)
        self.pinned: dict[str, str] = {}
        self.offered: dict[str, dict[str, str]] = {}

    servers = st.sampled_from(["a", "b"])
    tools = st.dictionaries(st.sampled_from(["get_x", "get_y", "z"]), st.sampled_from(["one", "two"]))

    @rule(server=servers, offer=tools)
    def lists(self, server: str, offer: dict[str, str]) -> None:
        self._offer(server, offer)
        self.catalog.replace_server(
            create_listing(server, *(tool(name, text) for name, text in offer.items()))
        )

    @rule(server=servers)
    def leaves(self, server: str) -> None:
        self._offer(server, {})
        self.catalog.remove_server(server)

    @rule()
    def accepts(self) -> None:
        for entry in self.catalog.quarantined:
            self.pinned[entry.card.key] = str(entry.card.definition["description"])
            self.catalog.accept(entry.card.key, "dana")

    def _offer(self, server: str, offer: dict[str, str]) -> None:
        self.offered[server] = {f"{server}/{name}": text for name, text in offer.items()}
        for key, text in self.offered[server].items():
            self.pinned.setdefault(key, text)

    @invariant()
    def lists_what_is_offered_as_pinned_and_quarantines_the_rest(self) -> None:
        offered = {key: text for server in self.offered.values() for key, text in server.items()}
        trusted = {key: text for key, text in offered.items() if self.pinned[key] == text}
        assert {card.key: card.description for card in self.catalog.snapshot.cards} == trusted
        assert {entry.card.key for entry in self.catalog.quarantined} == offered.keys() - trusted.keys()

    @invariant()
    def the_events_add_up_to_the_snapshot(self) -> None:
        keys: set[str] = set()
        version = 0
        for event in self.events.events:
            if isinstance(event, CatalogChanged):
                assert event.catalog_version == version + 1
                assert not keys & set(event.added)
                assert keys >= {*event.removed, *event.changed}
                keys = (keys | set(event.added)) - set(event.removed)
                version = event.catalog_version
        assert keys == {card.key for card in self.catalog.snapshot.cards}
        assert version == self.catalog.snapshot.version


Churn.TestCase.settings = settings(max_examples=20, stateful_step_count=20)
TestChurn = pytest.mark.slow(proves("H17", "F24")(Churn.TestCase))


class _Colour(Enum):
    RED = "red"


@pytest.mark.parametrize("value", [UUID(int=1), _Colour.RED, object()])
def test_what_only_python_can_say_is_no_part_of_a_definition(value: Any) -> None:
    strange = {"name": "get", "inputSchema": {"type": "object", "default": value}}
    (drop,) = catalog(create_listing("shop", strange)).dropped
    assert "which JSON cannot represent" in drop.reason
