"""Log messages of servers, in both eras: which clients get them, and which level servers are given."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from fingerpost.records import Era, ServerSpec
from fingerpost.testing import served
from tests.kit.full_server import NOTES, FullServer, Recorder
from tests.kit.gateway_methods import (
    LibraryServer,
    OpenMethods,
    SilentClient,
    open_gateway_methods,
    request,
    until,
)
from tests.requirements import proves

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
ALLOWED: list[dict[str, Any]] = [{"verdict": "allow"}]


class Levelled(FullServer):
    """A server that is given the level from which it logs."""

    def __init__(self) -> None:
        super().__init__()
        self.level = ""
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set)

    async def _set(self, ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.level = params.level
        return types.EmptyResult()


def spec(talkative: FullServer, era: Era) -> ServerSpec:
    return ServerSpec(name="talk", transport="in_process", in_process=talkative.server, era=era)


async def call_and_listen(
    it: OpenMethods, tool: str, *, modern: bool = False, meta: dict[str, Any] | None = None
) -> SilentClient:
    """A client that called this tool, with the notifications it got meanwhile."""
    client = SilentClient()
    params: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": meta or {}}
    await it.methods.answer(request("tools/call", params, modern=modern), client)
    return client


@proves("G8")
@pytest.mark.parametrize("own", ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
async def test_what_the_gateway_asks_for_itself_takes_no_log_message_from_a_caller(
    tmp_path: Path, own: str
) -> None:
    """These messages name no request: they may be about a caller's alone, never about one of ours."""
    talkative = Levelled()
    async with open_gateway_methods(tmp_path, spec(talkative, "2025-11-25"), policy=ALLOWED) as it:
        if own == "logging/setLevel":
            await it.ask(own, {"level": "debug"})
            await until(lambda: talkative.level == "debug")
        else:
            await it.ask("resources/subscribe", {"uri": NOTES})
            await it.ask(own, {"uri": NOTES})
        it.audience.listeners.append(request("initialize"))
        client = await call_and_listen(it, "talk__log_outside")
        await until(lambda: len(client.notifications) + len(it.audience.published) == 1)


@asynccontextmanager
async def at_address(library: LibraryServer) -> AsyncGenerator[tuple[ServerSpec, Recorder]]:
    record = Recorder(library.server.streamable_http_app())
    async with served(record) as base:
        yield ServerSpec(name=library.name, transport="http", url=f"{base}/mcp"), record


@proves("G8")
async def test_a_server_of_the_newer_era_is_not_told_a_level_it_has_no_method_for(tmp_path: Path) -> None:
    old = LibraryServer("old")
    async with (
        at_address(LibraryServer("new")) as (new, record),
        open_gateway_methods(tmp_path, old.spec(), new) as it,
    ):
        assert it.router.servers.get_status("new").protocol == "2026-07-28"
        materials = it.router.servers.get_resources("new")
        assert materials is not None
        assert "logging" in materials.capabilities
        await it.ask("logging/setLevel", {"level": "debug"})
        await until(lambda: old.asked == [("level", "debug")])
        await it.ask("logging/setLevel", {"level": "info"})
        await until(lambda: old.asked[1:] == [("level", "info")])
        assert not record.of("logging/setLevel")


@proves("G8")
async def test_a_server_of_the_newer_era_hears_with_each_request_from_which_level(tmp_path: Path) -> None:
    """A session hears from `info` where it set none; a client without one says itself, or hears nothing."""
    talkative = FullServer()
    async with open_gateway_methods(tmp_path, spec(talkative, "2026-07-28"), policy=ALLOWED) as it:

        async def level(**how: Any) -> str | None:
            client = await call_and_listen(it, "talk__report", **how)
            messages = [method for method, _ in client.notifications if method == "notifications/message"]
            sent: str | None = talkative.metas[-1].get(LOG_LEVEL)
            assert bool(messages) == (sent is not None)
            return sent

        assert await level() == "info"
        assert await level(modern=True) is None
        assert await level(modern=True, meta={LOG_LEVEL: "info"}) == "info"
        await it.ask("logging/setLevel", {"level": "debug"})
        assert await level() == "debug"


async def test_a_session_that_set_no_level_hears_no_less_and_no_more_of_an_older_server(
    tmp_path: Path,
) -> None:
    """What another session wants to hear of a shared server is not for everybody."""
    talkative = Levelled()

    async def log(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        for level in ("debug", "info"):
            message_params = types.LoggingMessageNotificationParams.model_validate(
                {"level": level, "data": "x"}
            )
            await ctx.session.send_notification(
                types.LoggingMessageNotification(params=message_params), ctx.request_id
            )
        return types.CallToolResult(content=[])

    talkative.server.add_request_handler("tools/call", types.CallToolRequestParams, log)
    async with open_gateway_methods(tmp_path, spec(talkative, "2025-11-25"), policy=ALLOWED) as it:
        await it.ask("logging/setLevel", {"level": "debug"}, session="curious")
        await until(lambda: talkative.level == "debug")
        client = await call_and_listen(it, "talk__report")
        await until(lambda: bool(client.notifications))
        assert [params["level"] for _, params in client.notifications] == ["info"]
