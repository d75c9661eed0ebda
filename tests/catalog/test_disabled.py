"""What a person switches off while we run is not in the catalog, whatever else happens to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fingerpost.catalog import Catalog
from fingerpost.events import CatalogChanged, MemorySink
from fingerpost.records import Listing
from tests.requirements import proves

SERVERS = ("a", "b")
NAMES = ("x", "y")
KEYS = tuple(f"{server}/{name}" for server in SERVERS for name in NAMES)

some_tools = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1))
some_keys = st.sets(st.sampled_from(KEYS))
some_servers = st.sets(st.sampled_from(SERVERS))


class Switching(RuleBasedStateMachine):
    """Listings come and change, tools and servers are switched, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.events = MemorySink()
        self.catalog = Catalog(events=self.events)
        self.listed: dict[str, dict[str, int]] = {}
        self.first: dict[str, int] = {}  # the text that was pinned
        self.off: set[str] = set()
        self.servers_off: set[str] = set()

    @rule(server=st.sampled_from(SERVERS), tools=some_tools)
    def list_tools(self, server: str, tools: dict[str, int]) -> None:
        definitions: tuple[dict[str, Any], ...] = tuple(
            {"name": name, "description": f"text {text}", "inputSchema": {"type": "object"}}
            for name, text in tools.items()
        )
        self.catalog.replace_server(Listing(server=server, definitions=definitions))
        self.listed[server] = tools
        for name, text in tools.items():
            self.first.setdefault(f"{server}/{name}", text)

    @rule(tools=some_keys, servers=some_servers)
    def switch(self, tools: set[str], servers: set[str]) -> None:
        before = set(self._present())
        count = len(self._changes())
        self.catalog.set_disabled(dict.fromkeys(tools, "off"), dict.fromkeys(servers, "off"))
        self.off, self.servers_off = tools, servers
        assert len(self._changes()) - count == (before != set(self._present()))

    @invariant()
    def only_what_is_on_is_there(self) -> None:
        assert [card.key for card in self.catalog.snapshot.cards] == self._present()
        shut = [card.key for card in self.catalog.disabled.cards]
        assert shut == sorted(key for key in self._list_names() if self._is_off(key))
        assert all(self.catalog.get_disabled_reason(card) for card in self.catalog.disabled.cards)
        assert not any(self.catalog.get_disabled_reason(card) for card in self.catalog.snapshot.cards)

    def _list_names(self) -> list[str]:
        return [f"{server}/{name}" for server, tools in self.listed.items() for name in tools]

    def _is_off(self, key: str) -> bool:
        return key in self.off or key.partition("/")[0] in self.servers_off

    def _present(self) -> list[str]:
        as_pinned = (
            key
            for key in self._list_names()
            if self.listed[key.partition("/")[0]][key.partition("/")[2]] == self.first[key]
        )
        return sorted(key for key in as_pinned if not self._is_off(key))

    def _changes(self) -> list[Any]:
        return [event for event in self.events.events if isinstance(event, CatalogChanged)]


TestSwitching = pytest.mark.slow(proves("I7")(Switching.TestCase))
TestSwitching.settings = settings(max_examples=20, stateful_step_count=12)
