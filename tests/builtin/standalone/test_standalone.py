"""`fingerpost builtin`: what there is, and one server alone for any client."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from fingerpost import Router
from fingerpost.builtin import SERVER_NAMES
from fingerpost.errors import ServerUnavailable
from fingerpost.records import ServerState
from fingerpost.servers import Server
from fingerpost.settings import Settings
from tests.kit import warm
from tests.kit.command_line import CommandLine
from tests.kit.standalone import KEY, PATIENCE, StandaloneServer
from tests.requirements import proves

pytestmark = pytest.mark.process

TOOL = "notes/search_knowledge_base"


@proves("U1")
def test_all_servers_are_listed_with_what_is_switched_on(person: CommandLine):
    output = person.reads("builtin")
    assert [each["name"] for each in output] == list(SERVER_NAMES)
    assert [each["name"] for each in output if each["enabled"]] == ["knowledge"]
    assert all(each["tools"] and each["about"] for each in output)
    table = person.runs("builtin")
    assert "search_knowledge_base" in table.stdout and 'enabled = ["workspace"]' in table.stdout


def test_a_server_that_is_none_is_named_with_those_that_are(person: CommandLine):
    done = person.runs("builtin", "nothing")
    assert done.returncode == 2
    assert "there is no server 'nothing'" in done.stderr and "knowledge" in done.stderr


@proves("U3")
def test_the_workspace_is_never_the_whole_disk_or_the_whole_home(person: CommandLine):
    for root, what in (("/", "all of /"), (".", "all of your home directory")):
        on = {"FINGERPOST_BUILTIN__WORKSPACE__ROOT": root, "FINGERPOST_BUILTIN__ENABLED": "workspace"}
        for arguments in (("builtin", "workspace"), ("tools",)):
            done = person.runs(*arguments, extra=on, stdin="")
            assert done.returncode == 2
            assert f"builtin.workspace would be {what}" in done.stderr
            assert "set builtin.workspace.root to a folder" in done.stderr


@proves("U1")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_alone_it_speaks_to_any_client_that_starts_programs(
    person: CommandLine, settings: Settings, era: Any
):
    command = [f"{warm.folder()}/fingerpost", "builtin", "knowledge"]
    if era == "2025-11-25":
        command = person.cold_command("builtin", "knowledge")
    spec = Server.stdio("notes", command, env=person.environment, cwd=str(person.home), era=era)
    async with Router([spec], settings=settings) as router:
        (status,) = await router.connect()
        assert (status.state, status.protocol, status.tools) == (ServerState.READY, era, 6)
        found = await router.call(TOOL, {"query": "boiler pressure"})
        assert "boiler.md:3 · Boiler" in found.content
        written = await router.call("notes/synthesize_kb_information", {"question": "which pressure?"})
        assert "above one bar. [1]" in written.content  # no router, so no model


def test_alone_it_ends_when_it_is_told_to(person: CommandLine):
    process = subprocess.Popen(
        person.command("builtin", "knowledge"),
        cwd=person.home,
        env=person.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    request = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
    )
    process.stdin.write(request)
    process.stdin.flush()
    assert b"fingerpost-knowledge" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.communicate()


@proves("U8", "B9")
@pytest.mark.parametrize(("header", "era"), [("Authorization", "2025-11-25"), ("X-API-Key", "2026-07-28")])
async def test_over_http_a_caller_with_the_key_is_served(
    address: str, settings: Settings, era: Any, header: str
):
    value = f"Bearer {KEY}" if header == "Authorization" else KEY
    spec = Server.http("notes", address, headers={header: value}, era=era, trust_hints=True)
    async with Router([spec], settings=settings) as router:
        (status,) = await router.connect()
        assert (status.state, status.protocol) == (ServerState.READY, era)
        found = await router.call(TOOL, {"query": "boiler pressure"})
        assert found.success and "boiler.md:3" in found.content
        lost = await router.call("notes/read_kb_file", {"path": "nowhere.md"})
        assert not lost.success and "There is no note 'nowhere.md'" in lost.content


@proves("U8", "B9")
async def test_over_http_a_caller_without_the_key_is_refused(address: str, settings: Settings):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": KEY + "x"}):
        async with Router([Server.http("notes", address, headers=headers)], settings=settings) as router:
            (status,) = await router.connect()
            assert status.state is ServerState.DOWN
            with pytest.raises(ServerUnavailable) as refused:
                await router.route("search my notes", server="notes")
            assert "401" in str(refused.value)


@proves("U8")
async def test_over_http_a_refusal_says_why(address: str):
    async with httpx2.AsyncClient() as client:
        bare = await client.post(address, json={})
        assert bare.status_code == 401
        assert bare.headers["www-authenticate"].startswith("Bearer")
        assert "A key is needed" in bare.json()["error"]
        wrong = await client.post(address, json={}, headers={"Authorization": "Bearer x"})
        assert wrong.status_code == 401 and "invalid_token" in wrong.headers["www-authenticate"]
        good = {"Authorization": f"Bearer {KEY}"}
        elsewhere = await client.get(address.removesuffix("/mcp") + "/files", headers=good)
        assert elsewhere.status_code == 404
        rebound = await client.post(address, json={}, headers={**good, "Host": "evil.example"})
        assert rebound.status_code == 403
        page = await client.post(address, json={}, headers={**good, "Origin": "https://evil.example"})
        assert page.status_code == 403


@proves("U8")
def test_over_http_it_does_not_start_without_a_key_worth_the_name(person: CommandLine, tmp_path: Path):
    for extra, arguments in (
        ({}, ()),
        ({"FINGERPOST_BUILTIN_KEY": "short"}, ()),
        ({}, ("--key-file", str(tmp_path / "nowhere"))),
        ({}, ("--host", "0.0.0.0")),
    ):
        done = person.runs("builtin", "knowledge", "--http", "--port", "0", *arguments, extra=extra)
        assert done.returncode == 2, done.stderr
        assert "key" in done.stderr and "fix:" in done.stderr
        assert "short" not in done.stderr.replace("shorter", "")


async def test_over_http_it_ends_in_good_order_while_clients_listen(person: CommandLine, settings: Settings):
    with StandaloneServer(
        person, "builtin", "knowledge", "--http", "--port", "0", "--json",
        extra={"FINGERPOST_BUILTIN_KEY": KEY},
    ) as running:  # fmt: skip
        headers = {"Authorization": f"Bearer {KEY}"}
        spec = Server.http("notes", running.output["address"], headers=headers, era="2025-11-25")
        async with Router([spec], settings=settings) as router:
            await router.connect()
            assert (await router.call(TOOL, {"query": "boiler"})).success
            assert await anyio.to_thread.run_sync(running.stop) == 0


@proves("B9", "U8")
async def test_at_an_address_it_is_served_on_through_the_gateway(
    address: str, person: CommandLine, settings: Settings
):
    person.writes("fingerpost.toml", "[flags]\ndense_scores = false\n")
    person.has("notes", url=address, headers={"Authorization": f"Bearer {KEY}"})
    with StandaloneServer(person, "serve", "--port", "0", "--mode", "all", "--json") as gateway:
        spec = Server.http("all", gateway.output["endpoints"][0])
        async with Router([spec], settings=settings) as router:
            await router.connect()
            (tool,) = [card.key for card in router.tools.cards if card.name.endswith("search_knowledge_base")]
            found = await router.call(tool, {"query": "boiler pressure"})
            assert found.success and "boiler.md:3" in found.content
