"""The test kit itself: its servers do what they say, and its programs start light."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fingerpost import testing
from fingerpost.servers import Server
from fingerpost.testing import http_fault, served, tool_server
from fingerpost.testing.faults import http, stdio
from tests.kit.server_pools import PATIENCE, arguments_of, names, open_pool, text_of


async def test_a_tool_server_offers_its_records_and_remembers_its_calls():
    async def call(name: str, arguments: dict[str, object]) -> str:
        return f"{name} says {arguments['word']}"

    record = {"name": "say", "description": "Says a word.", "inputSchema": {"type": "object"}}
    server = tool_server("speaker", [record, "plain"], call=call, instructions="Speak up.")
    async with open_pool(server.spec()) as servers:
        assert names(servers, "speaker") == ["say", "plain"]
        listing = servers.get_listing("speaker")
        assert listing is not None
        assert listing.instructions == "Speak up."
        assert (
            text_of(await servers.call("speaker", "say", {"word": "hi"}, timeout=PATIENCE)) == "say says hi"
        )
    assert server.calls == [("say", {"word": "hi"})]


async def test_a_tool_server_answers_an_unknown_tool_with_an_error_result():
    async with open_pool(tool_server("one").spec()) as servers:
        result = await servers.call("one", "two", {}, timeout=PATIENCE)
        assert result["isError"] is True


@pytest.mark.process
async def test_ten_thousand_records_make_a_server():
    many = tool_server("many", [f"t{number}" for number in range(10_000)], page_size=1000)
    async with open_pool(many.spec(connect_timeout=60)) as servers:
        assert len(names(servers, "many")) == 10_000


async def test_two_addresses_serve_at_once():
    one, two = tool_server("one"), tool_server("two")
    async with (
        served(one.server.streamable_http_app()) as first,
        served(two.server.streamable_http_app()) as second,
    ):
        assert first != second


async def test_a_faulty_http_server_without_a_fault_is_sound():
    async with http_fault("none") as server, open_pool(Server.http("sound", server.url)) as servers:
        result = await servers.call("sound", "echo", {"a": 1}, timeout=PATIENCE)
        assert arguments_of(result) == {"a": 1}


@pytest.mark.parametrize("catalogue", [stdio.FAULTS, http.FAULTS])
def test_every_fault_says_what_it_does_and_which_row_it_is(
    catalogue: stdio.FaultRegistry[object] | http.FaultRegistry[object],
):
    for fault in catalogue.faults.values():
        assert fault.summary
        assert 0 <= fault.row <= 50


def test_an_unknown_fault_is_answered_with_those_there_are():
    with pytest.raises(LookupError, match="crash"):
        stdio.FAULTS["nonsense"]


@pytest.mark.process
def test_the_program_lists_its_faults():
    done = subprocess.run(
        [sys.executable, "-m", "fingerpost.testing.faults.stdio"],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert b"ignores_sigterm" in done.stderr


@pytest.mark.process
def test_a_misbehaving_program_starts_without_the_mcp_library():
    program = (
        "import sys, fingerpost.testing.faults.stdio; print('mcp' in sys.modules, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=PATIENCE)
    assert done.stdout.split() == [b"False", b"False"]


def test_the_kit_names_what_it_offers():
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError):
        _ = testing.nonsense
