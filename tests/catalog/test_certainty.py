"""Only a certain read runs without a question."""

from __future__ import annotations

import pytest

from fingerpost.catalog import Catalog
from fingerpost.errors import ConfigError
from fingerpost.events import MemorySink, ToolTrusted
from fingerpost.records import Effect, Json, JsonObject, Listing, Source, ToolCard
from fingerpost.servers import Server
from fingerpost.servers.spec import get_package
from fingerpost.settings.model import ToolOverride
from tests.catalog.certainty import measure, read_labelled_tools
from tests.kit.catalogs import card, catalog, tool
from tests.kit.tables import table
from tests.requirements import proves


@pytest.mark.slow
@proves("X8")
def test_of_635_labelled_tools_none_that_acts_runs_unasked_and_at_most_one_read_in_twenty_asks() -> None:
    tools = list(read_labelled_tools())
    real = [one for one in tools if not one.invented]
    assert len(real) >= 600
    assert sum(one.held_out for one in real) * 3 >= len(real)
    for held_out in (False, True):
        for invented in (False, True):
            found = measure(held_out=held_out, invented=invented)
            assert found.unasked == []
            assert found.share <= 0.05, found.asking
            assert measure(held_out=held_out, invented=invented, known=False).unasked == []


def schema(*parameters: str) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string"} for name in parameters}}


def build_card(
    name: str, description: str, *parameters: str, hint: bool = False, **origin: object
) -> ToolCard:
    annotations: dict[str, Json] = {"annotations": {"readOnlyHint": True}} if hint else {}
    definition = tool(name, description, inputSchema=schema(*parameters), **annotations)
    (only,) = catalog(Listing(server="shop", definitions=(definition,), **origin)).snapshot.cards  # type: ignore[arg-type]
    return only


@proves("X8")
@table(
    ("name", "description", "parameter"),
    [
        ("query", "Query the database", "sql"),
        ("query_rows", "Query rows", "query"),
        ("fetch_url", "Fetch a page", "url"),
        ("get_page", "Get a page", "pageUrl"),
        ("inspect", "Inspect a program", "code"),
        ("calculate", "Calculate a value", "expression"),
        ("get_reply", "Get the reply of a service", "body"),
        ("get_list", "Get a list", "command"),
        ("read_page", "Read a page", "save_path"),
        ("get_mail", "Get a mail", "mark_as_read"),
        ("get_mail", "", "id"),
        ("get_mail", "Holt eine Nachricht", "id"),
        ("get_mail", "获取邮件", "id"),
        ("retrieve_funds", "Retrieve funds", "account"),
        ("get_rid_of_file", "Get rid of a file", "path"),
    ],
)
def test_what_speaks_against_reading_makes_it_uncertain(name: str, description: str, parameter: str) -> None:
    for hint in (False, True):
        found = build_card(name, description, parameter, hint=hint)
        assert found.effect.value is not Effect.READ or found.doubt
        assert found.effect_of(None) is not Effect.READ
        assert Effect.READ not in found.effects


@proves("X8")
def test_a_hint_counts_only_of_a_server_the_operator_trusts_and_never_for_a_program() -> None:
    words = ("open_nodes", "Open some nodes", "names")
    assert build_card(*words, hint=True).doubt
    assert build_card(*words, hint=True, trust_hints=True).certain
    assert (
        build_card("delete_nodes", "Delete nodes", "names", hint=True, trust_hints=True).effect.value
        is not Effect.READ
    )
    assert build_card("inspect", "Inspect it", "code", hint=True, trust_hints=True).doubt


@proves("X8")
def test_what_is_known_of_a_server_is_found_by_its_entry_and_by_the_parameters_of_the_tool() -> None:
    words = ("fetch", "Fetches a URL from the internet", "url", "raw")
    assert build_card(*words).doubt
    known = build_card(*words, package="mcp-server-fetch")
    assert known.certain
    assert known.effect.source is Source.WRITTEN
    assert build_card(*words, "method", package="mcp-server-fetch").doubt  # a newer one that may post
    assert build_card(*words, package="mcp-server-fetch-pro").doubt


@proves("X8")
@table(
    ("command", "package"),
    [
        (["mcp-server-fetch"], "mcp-server-fetch"),
        (["/opt/venv/bin/mcp-server-fetch", "--x"], "mcp-server-fetch"),
        (["uvx", "mcp-server-fetch@2025.1"], "mcp-server-fetch"),
        (["python3.12", "-m", "mcp_server_fetch"], "mcp-server-fetch"),
        (["npx", "-y", "@modelcontextprotocol/server-memory@1.2"], "@modelcontextprotocol/server-memory"),
        (
            ["node", "/x/node_modules/@modelcontextprotocol/server-memory/dist/index.js"],
            "@modelcontextprotocol/server-memory",
        ),
        (["npx", "evil", "@modelcontextprotocol/server-memory"], "evil"),
        (["npx", "-p", "evil", "@modelcontextprotocol/server-memory"], None),
        (["uvx", "--from", "evil", "mcp-server-fetch"], None),
        (["python", "server.py", "mcp_server_fetch"], None),
        (["sh", "-c", "mcp-server-fetch"], "sh"),
    ],
)
def test_the_package_of_a_server_is_what_its_entry_starts(command: list[str], package: str | None) -> None:
    assert get_package(Server.stdio("x", command)) == package


@proves("X8")
def test_a_person_says_once_that_a_tool_only_reads_and_it_ends_with_the_definition() -> None:
    events = MemorySink()
    definition = tool("fetch_url", "Fetch a page", inputSchema=schema("url"))
    made = catalog(Listing(server="web", definitions=(definition,)), events=events)
    (before,) = made.snapshot.cards
    assert before.doubt
    with pytest.raises(ConfigError):
        made.set_read_only("web/fetch_url", "dana", fingerprint="another")
    pin = made.set_read_only("web/fetch_url", "dana", fingerprint=before.fingerprint)
    (after,) = made.snapshot.cards
    assert after.certain
    assert "dana" in after.effect.reason
    assert any(isinstance(event, ToolTrusted) for event in events.events)

    again = Catalog(events=MemorySink())  # another process on the same store
    again.use_pins({pin.key: pin})
    again.replace_server(Listing(server="web", definitions=(definition,)))
    assert again.snapshot.cards[0].certain

    changed = tool("fetch_url", "Fetch a page", inputSchema=schema("url", "method"))
    again.replace_server(Listing(server="web", definitions=(changed,)))
    assert again.snapshot.cards == ()
    again.accept("web/fetch_url", "dana")
    assert again.snapshot.cards[0].doubt

    made.set_read_only("web/fetch_url", "dana", fingerprint=before.fingerprint, only_reads=False)
    assert made.snapshot.cards[0].doubt


@proves("X8")
def test_what_the_operator_wrote_is_certain() -> None:
    written = ToolOverride(match="shop/query", effect=Effect.READ)
    found = card(tool("query", "Runs a statement", inputSchema=schema("sql")), overrides=[written])
    assert (found.effect.value, found.certain) == (Effect.READ, True)
