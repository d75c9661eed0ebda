"""Servers need not be connected first: a call waits for the server of its tool, and for no other."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fingerpost import Router, Server
from fingerpost.errors import ServerUnavailable
from fingerpost.records import ErrorKind, ServerSpec, ServerState
from fingerpost.testing import tool_server
from tests.kit.learning import CALENDAR, MAIL, first
from tests.kit.routers import build_settings

SILENT = Server.stdio("silent", [sys.executable, "-c", "import time; time.sleep(3600)"])
GONE = Server.stdio("gone", [sys.executable, "-c", "pass"])


def create_router(folder: Path, *more: ServerSpec) -> Router:
    servers = [tool_server("mail", MAIL), tool_server("calendar", CALENDAR)]
    return Router([*(server.spec() for server in servers), *more], settings=build_settings(folder))


def states(router: Router) -> dict[str, ServerState]:
    return {status.name: status.state for status in router.servers.statuses}


@pytest.mark.parametrize("name", ["mail/search_mail", "mail__search_mail"])
async def test_a_call_connects_the_server_it_names_and_no_other(tmp_path: Path, name: str) -> None:
    async with create_router(tmp_path) as router:
        outcome = await router.call(name, {})
        assert outcome.success
        assert states(router) == {"mail": ServerState.READY, "calendar": ServerState.IDLE}


async def test_a_call_that_names_no_server_finds_its_tool_wherever_it_is(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        assert (await router.call("list_events", {})).success


async def test_a_call_in_the_background_connects_as_well(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        outcome = await router.background.result(router.start("mail/search_mail", {}), timeout=30)
        assert outcome is not None
        assert outcome.success


async def test_a_call_waits_for_a_server_that_is_being_connected(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        router.servers.start()
        assert (await router.call("mail/search_mail", {})).success


@pytest.mark.process
async def test_a_call_of_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    async with create_router(tmp_path, GONE) as router:
        outcome = await router.call("gone/search", {})
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert "its server gone is down" in str(outcome.content)


@pytest.mark.process
async def test_a_call_waits_no_longer_than_it_has_time(tmp_path: Path) -> None:
    async with create_router(tmp_path, SILENT) as router:
        outcome = await router.call("silent/search", {}, seconds=0.2)
        assert "its server silent is still connecting" in str(outcome.content)
        assert states(router)["silent"] is ServerState.CONNECTING


@pytest.mark.process
async def test_a_call_of_an_unknown_tool_connects_no_server_twice(tmp_path: Path) -> None:
    async with create_router(tmp_path, GONE) as router:
        for _ in range(2):
            assert (await router.call("no_such_tool", {})).error is ErrorKind.TOOL_NOT_FOUND


async def test_narrowing_sees_the_tools_of_servers_that_were_not_connected(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        assert first(await router.narrow("search my mailbox for the mail of Kim")) == "mail/search_mail"


async def test_narrowing_within_one_server_connects_that_one(tmp_path: Path) -> None:
    async with create_router(tmp_path) as router:
        found = await router.narrow("search my mailbox for the mail of Kim", server="mail")
        assert first(found) == "mail/search_mail"
        assert states(router) == {"mail": ServerState.READY, "calendar": ServerState.IDLE}


@pytest.mark.process
async def test_narrowing_does_not_wait_for_servers_that_are_being_connected(tmp_path: Path) -> None:
    """A gateway connects them itself, and one that hangs must not hold up its answers."""
    async with create_router(tmp_path, replace(SILENT, connect_timeout=8)) as router:
        await router.connect(timeout=0.5)
        found = await router.narrow("search my mailbox for the mail of Kim")
        assert first(found) == "mail/search_mail"
        assert states(router)["silent"] is ServerState.CONNECTING


@pytest.mark.process
async def test_a_request_for_a_server_that_is_down_names_a_command_that_helps(tmp_path: Path) -> None:
    async with create_router(tmp_path, GONE) as router:
        with pytest.raises(ServerUnavailable, match="gone is down") as down:
            await router.route("search", server="gone")
        assert "`fingerpost doctor`" in (down.value.hint or "")
