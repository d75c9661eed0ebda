"""Profiles change while Fingerpost runs, and everybody hears of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from mcp import Client as McpClient

from fingerpost import Router
from fingerpost.errors import ConfigError
from fingerpost.events import MemorySink, ProfilesChanged
from fingerpost.records import CallContext, ErrorKind, Principal, ToolCall
from fingerpost.settings import Loaded, load
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from tests.kit.gateway_methods import ALL, Client, Crowd, OpenMethods, profile, request
from tests.kit.gateways import serve_gateway
from tests.kit.profiles import servers, settings, until, write
from tests.requirements import proves

DESK = 'description = "Help desk"\nservers = ["tickets"]\n'
TOOLS = "notifications/tools/list_changed"


@dataclass
class Running:
    """A gateway whose profiles are files."""

    folder: Path
    router: Router
    house: OpenMethods
    events: MemorySink

    @property
    def told(self) -> list[ProfilesChanged]:
        return [event for event in self.events.events if isinstance(event, ProfilesChanged)]

    async def write(self, name: str, text: str | None) -> ProfilesChanged:
        """Change a file (None: remove it), and wait until it was taken up."""
        path, before = self.folder / "profiles" / f"{name}.toml", len(self.told)
        if text is None:
            path.unlink()
        else:
            write(path, text)
        await until(lambda: len(self.told) > before)
        return self.told[-1]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "desk.toml").write_text(DESK)
    (tmp_path / "fingerpost.toml").touch()
    return load(config=tmp_path / "fingerpost.toml", environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@pytest.fixture
async def running(tmp_path: Path, loaded: Loaded) -> AsyncGenerator[Running]:
    assert loaded.profile_files is not None
    given = settings(tmp_path).model_copy(update={"profiles": loaded.settings.profiles})
    events, crowd = MemorySink(), Crowd()
    weather, tickets = servers()
    async with (
        Router([weather.spec(), tickets.spec()], settings=given, sinks=[events]) as router,
        open_methods(router, audience=crowd) as methods,
    ):
        router.follow_profiles(loaded.profile_files, every=0.02)
        await router.connect()
        yield Running(tmp_path, router, OpenMethods(router, methods, crowd, events), events)


async def names(running: Running, at: str) -> list[str]:
    return [name for name in await running.house.names(at=profile(at)) if "__" in name]


@proves("U14")
async def test_a_changed_file_holds_at_once_and_clients_hear_that_their_tools_changed(running: Running):
    house = running.house
    desk, everybody = request("x", at=profile("desk"), session="desk"), request("x", session="all")
    house.crowd.listeners += [desk, everybody]
    assert await names(running, "desk") == ["tickets__find_ticket"]
    assert len(await house.names(at=ALL)) == 3
    event = await running.write("desk", 'servers = ["weather"]')
    assert (event.changed, event.problems) == (("desk",), ())
    assert running.router.profiles.version == event.profiles_version
    await until(lambda: house.crowd.of("desk") == [TOOLS])
    assert await names(running, "desk") == ["weather__get_forecast"]
    assert house.crowd.of("all") == []
    denied = await running.router.call("tickets/find_ticket", {}, profile="desk")
    assert denied.error is ErrorKind.DENIED
    assert (await running.router.call("weather/get_forecast", {}, profile="desk")).success


@proves("U14")
async def test_rules_of_a_profile_are_judged_by_as_they_are_now(running: Running):
    assert (await running.router.call("tickets/find_ticket", {}, profile="desk")).success
    await running.write(
        "desk", f'{DESK}[[policy]]\nverdict = "deny"\ntool = "tickets/*"\nreason = "closed"\n'
    )
    denied = await running.router.call("tickets/find_ticket", {}, profile="desk")
    assert denied.error is ErrorKind.DENIED
    assert "closed" in denied.content
    assert (await running.router.call("tickets/find_ticket", {})).success  # its rules are its own
    await running.write("desk", DESK)
    assert (await running.router.call("tickets/find_ticket", {}, profile="desk")).success


@proves("U14")
async def test_a_broken_file_leaves_its_profile_as_it_was_and_is_told_of(
    running: Running, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, logger="fingerpost.router"):
        event = await running.write("desk", 'servers = "tickets"')
    assert event.changed == ()
    assert "profiles/desk.toml:1: profiles.desk.servers: must be a list" in event.problems[0]
    assert "write servers" in event.problems[0]
    assert running.router.profiles.problems == event.problems
    assert "desk.toml:1" in caplog.text
    assert await names(running, "desk") == ["tickets__find_ticket"]
    added = await running.write("other", 'servers = ["weather"]')  # neighbours go on
    assert added.changed == ("other",)
    assert added.problems == event.problems
    mended = await running.write("desk", 'servers = ["weather"]')
    assert (mended.changed, mended.problems) == (("desk",), ())


@proves("U14")
async def test_nothing_may_be_used_under_a_profile_that_was_taken_away(running: Running):
    await running.write("desk", None)
    with pytest.raises(ConfigError, match="no profile 'desk'"):
        await running.router.call("tickets/find_ticket", {}, profile="desk")
    context = CallContext(call_id="cal_1", profile="desk")  # a request that is on its way
    late = await running.router.calls.call(ToolCall(name="tickets/find_ticket", arguments={}), context)
    assert late.error is ErrorKind.DENIED
    with pytest.raises(JsonRpcError, match="no profile 'desk'"):
        await running.house.methods.answer(request("tools/list", at=profile("desk")), Client())


@proves("U14", "B10")
async def test_a_new_profile_for_somebody_is_theirs_at_once(running: Running):
    house, dana, eve = running.house, Principal(name="dana"), Principal(name="eve")
    house.crowd.listeners += [request("x", by=dana, session="dana")]
    assert len(await house.names(by=dana)) == 3
    await running.write("danas", 'users = ["dana"]\ndefault = true\nservers = ["weather"]')
    await until(lambda: house.crowd.of("dana") == [TOOLS])
    assert await house.names(by=dana) == ["weather__get_forecast", "read_result"]
    assert len(await house.names(by=eve)) == 3
    with pytest.raises(JsonRpcError, match="no profile"):
        await house.names(by=eve, at=profile("danas"))
    with pytest.raises(JsonRpcError, match="Unknown tool"):
        await house.call("tickets__find_ticket", by=dana)


@proves("U14")
async def test_a_running_gateway_has_an_address_for_a_new_profile_and_none_for_one_that_is_gone(
    running: Running,
):
    async with serve_gateway(running.router) as address, httpx2.AsyncClient(base_url=address) as plain:
        assert (await plain.post("/mcp/p/new", json={})).status_code == 404
        await running.write("new", 'servers = ["weather"]\ninstructions = "Speak of the weather."\n')
        async with McpClient(f"{address}/mcp/p/new") as client:
            assert "Speak of the weather." in (client.instructions or "")
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert tools == ["weather__get_forecast", "read_result"]
        await running.write("new", None)
        assert (await plain.post("/mcp/p/new", json={})).status_code == 404
