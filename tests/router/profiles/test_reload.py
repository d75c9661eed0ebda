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
from tests.kit.gateway_methods import ALL, OpenMethods, RecordingAudience, SilentClient, profile, request
from tests.kit.gateways import serve_gateway
from tests.kit.profiles import servers, until, write
from tests.kit.routers import build_settings
from tests.requirements import proves

DESK = 'description = "Help desk"\nservers = ["tickets"]\n'
TOOLS = "notifications/tools/list_changed"


@dataclass
class ReloadingGateway:
    """A gateway whose profiles are files."""

    folder: Path
    router: Router
    methods: OpenMethods
    events: MemorySink

    @property
    def reloads(self) -> list[ProfilesChanged]:
        return [event for event in self.events.events if isinstance(event, ProfilesChanged)]

    async def write(self, name: str, text: str | None) -> ProfilesChanged:
        """Change a file (None: remove it), and wait until it was taken up."""
        path, before = self.folder / "profiles" / f"{name}.toml", len(self.reloads)
        if text is None:
            path.unlink()
        else:
            write(path, text)
        await until(lambda: len(self.reloads) > before)
        return self.reloads[-1]


@pytest.fixture
def loaded_settings(tmp_path: Path) -> Loaded:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "desk.toml").write_text(DESK)
    (tmp_path / "fingerpost.toml").touch()
    return load(config=tmp_path / "fingerpost.toml", environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@pytest.fixture
async def gateway(tmp_path: Path, loaded_settings: Loaded) -> AsyncGenerator[ReloadingGateway]:
    assert loaded_settings.profile_files is not None
    given = build_settings(tmp_path).model_copy(update={"profiles": loaded_settings.settings.profiles})
    events, crowd = MemorySink(), RecordingAudience()
    weather, tickets = servers()
    async with (
        Router([weather.spec(), tickets.spec()], settings=given, sinks=[events]) as router,
        open_methods(router, audience=crowd) as methods,
    ):
        router.follow_profiles(loaded_settings.profile_files, every=0.02)
        await router.connect()
        yield ReloadingGateway(tmp_path, router, OpenMethods(router, methods, crowd, events), events)


async def names(gateway: ReloadingGateway, at: str) -> list[str]:
    return [name for name in await gateway.methods.names(at=profile(at)) if "__" in name]


@proves("U14")
async def test_a_changed_file_holds_at_once_and_clients_hear_that_their_tools_changed(
    gateway: ReloadingGateway,
):
    methods = gateway.methods
    desk, everybody = request("x", at=profile("desk"), session="desk"), request("x", session="all")
    methods.audience.listeners += [desk, everybody]
    assert await names(gateway, "desk") == ["tickets__find_ticket"]
    assert len(await methods.names(at=ALL)) == 3
    event = await gateway.write("desk", 'servers = ["weather"]')
    assert (event.changed, event.problems) == (("desk",), ())
    assert gateway.router.profiles.version == event.profiles_version
    await until(lambda: methods.audience.of("desk") == [TOOLS])
    assert await names(gateway, "desk") == ["weather__get_forecast"]
    assert methods.audience.of("all") == []
    denied = await gateway.router.call("tickets/find_ticket", {}, profile="desk")
    assert denied.error is ErrorKind.DENIED
    assert (await gateway.router.call("weather/get_forecast", {}, profile="desk")).success


@proves("U14")
async def test_rules_of_a_profile_are_judged_by_as_they_are_now(gateway: ReloadingGateway):
    assert (await gateway.router.call("tickets/find_ticket", {}, profile="desk")).success
    await gateway.write(
        "desk", f'{DESK}[[policy]]\nverdict = "deny"\ntool = "tickets/*"\nreason = "closed"\n'
    )
    denied = await gateway.router.call("tickets/find_ticket", {}, profile="desk")
    assert denied.error is ErrorKind.DENIED
    assert "closed" in denied.content
    assert (await gateway.router.call("tickets/find_ticket", {})).success  # its rules are its own
    await gateway.write("desk", DESK)
    assert (await gateway.router.call("tickets/find_ticket", {}, profile="desk")).success


@proves("U14")
async def test_a_broken_file_leaves_its_profile_as_it_was_and_is_told_of(
    gateway: ReloadingGateway, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, logger="fingerpost.router"):
        event = await gateway.write("desk", 'servers = "tickets"')
    assert event.changed == ()
    assert "profiles/desk.toml:1: profiles.desk.servers: must be a list" in event.problems[0]
    assert "write servers" in event.problems[0]
    assert gateway.router.profiles.problems == event.problems
    assert "desk.toml:1" in caplog.text
    assert await names(gateway, "desk") == ["tickets__find_ticket"]
    added = await gateway.write("other", 'servers = ["weather"]')  # neighbours go on
    assert added.changed == ("other",)
    assert added.problems == event.problems
    mended = await gateway.write("desk", 'servers = ["weather"]')
    assert (mended.changed, mended.problems) == (("desk",), ())


@proves("U14")
async def test_nothing_may_be_used_under_a_profile_that_was_taken_away(gateway: ReloadingGateway):
    await gateway.write("desk", None)
    with pytest.raises(ConfigError, match="no profile 'desk'"):
        await gateway.router.call("tickets/find_ticket", {}, profile="desk")
    context = CallContext(call_id="cal_1", profile="desk")  # a request that is on its way
    late = await gateway.router.calls.call(ToolCall(name="tickets/find_ticket", arguments={}), context)
    assert late.error is ErrorKind.DENIED
    with pytest.raises(JsonRpcError, match="no profile 'desk'"):
        await gateway.methods.methods.answer(request("tools/list", at=profile("desk")), SilentClient())


@proves("U14", "B10")
async def test_a_new_profile_for_a_caller_applies_at_once(gateway: ReloadingGateway):
    methods, dana, eve = gateway.methods, Principal(name="dana"), Principal(name="eve")
    methods.audience.listeners += [request("x", by=dana, session="dana")]
    assert len(await methods.names(by=dana)) == 3
    await gateway.write("danas", 'users = ["dana"]\ndefault = true\nservers = ["weather"]')
    await until(lambda: methods.audience.of("dana") == [TOOLS])
    assert await methods.names(by=dana) == ["weather__get_forecast", "read_result"]
    assert len(await methods.names(by=eve)) == 3
    with pytest.raises(JsonRpcError, match="no profile"):
        await methods.names(by=eve, at=profile("danas"))
    with pytest.raises(JsonRpcError, match="Unknown tool"):
        await methods.call("tickets__find_ticket", by=dana)


@proves("U14")
async def test_a_running_gateway_has_an_address_for_a_new_profile_and_none_for_one_that_is_gone(
    gateway: ReloadingGateway,
):
    async with serve_gateway(gateway.router) as address, httpx2.AsyncClient(base_url=address) as plain:
        assert (await plain.post("/mcp/p/new", json={})).status_code == 404
        await gateway.write("new", 'servers = ["weather"]\ninstructions = "Speak of the weather."\n')
        async with McpClient(f"{address}/mcp/p/new") as client:
            assert "Speak of the weather." in (client.instructions or "")
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert tools == ["weather__get_forecast", "read_result"]
        await gateway.write("new", None)
        assert (await plain.post("/mcp/p/new", json={})).status_code == 404
