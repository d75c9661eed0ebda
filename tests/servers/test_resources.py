"""Resources and prompts of a server: read in the background, cached, and followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from fingerpost.records import JsonObject, ServerState
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.testing import served
from tests.kit.full_server import NOTES, FullServer, serve_full_server
from tests.kit.plain_http import PlainHttp
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, open_pool
from tests.kit.tables import table
from tests.requirements import proves

ERAS = ["2025-11-25", "2026-07-28"]
UPDATED = "notifications/resources/updated"


class NotificationRecorder:
    """Everything that was heard outside of requests."""

    def __init__(self, servers: ServerPool) -> None:
        self.notifications: list[tuple[str, str, JsonObject]] = []
        self.stop: Callable[[], None] = servers.subscribe_to_notifications(self._hear)

    def _hear(self, server: str, method: str, params: JsonObject, caller: str | None) -> None:
        del caller
        self.notifications.append((server, method, params))

    def of(self, method: str) -> list[JsonObject]:
        return [params for _, method_name, params in self.notifications if method_name == method]


def _names(servers: ServerPool, field: str = "prompts", key: str = "name") -> list[Any]:
    materials = servers.get_resources("talk")
    return [] if materials is None else [entry[key] for entry in getattr(materials, field)]


@proves("G8")
@pytest.mark.parametrize("era", ERAS)
async def test_resources_templates_and_prompts_are_read_after_the_server_is_up(era: Any):
    async with (
        serve_full_server(FullServer()) as (url, _),
        open_pool(Server.http("talk", url, era=era)) as servers,
    ):
        assert servers.get_status("talk").state is ServerState.READY
        await eventually(lambda: _names(servers) == ["greet"])
        await eventually(lambda: _names(servers, "resources", "uri") == [NOTES])
        assert _names(servers, "templates", "uriTemplate") == ["notes://{name}"]
        materials = servers.get_resources("talk")
        assert materials is not None
        assert {"tools", "resources", "prompts", "completions"} <= set(materials.capabilities)
        assert materials.resources[0]["title"] == "One"


@proves("G8")
@table("era", ERAS)
@table("remote", [True, False])
async def test_changed_prompts_are_read_again_and_told(era: Any, remote: bool):
    talkative = FullServer()
    async with serve_full_server(talkative) as (url, recorder):
        spec = (
            Server.http("talk", url, era=era)
            if remote
            else Server.in_process("talk", talkative.server, era=era)
        )
        async with open_pool(spec) as servers:
            ears = NotificationRecorder(servers)
            await eventually(lambda: _names(servers) == ["greet"])
            await eventually(lambda: not remote or recorder.streams > 0)
            count = len(ears.of("notifications/prompts/list_changed"))
            await talkative.change_prompts("greet", "part")
            await eventually(lambda: _names(servers) == ["greet", "part"])
            assert len(ears.of("notifications/prompts/list_changed")) == count + 1
            ears.stop()


@proves("G8")
@pytest.mark.parametrize("era", ERAS)
async def test_a_subscribed_resource_is_heard_of_until_the_last_one_leaves(era: Any):
    talkative = FullServer()

    async def ask(servers: ServerPool, what: str, uri: str = NOTES) -> None:
        passage = RequestContext(caller=RecordingCaller())
        await servers.ask("talk", f"resources/{what}", {"uri": uri}, timeout=PATIENCE, context=passage)

    async with (
        serve_full_server(talkative) as (url, recorder),
        open_pool(Server.http("talk", url, era=era)) as servers,
    ):
        ears = NotificationRecorder(servers)
        await eventually(lambda: recorder.streams > 0)
        await ask(servers, "subscribe")
        await ask(servers, "subscribe")
        await ask(servers, "subscribe", "notes://two")
        await talkative.touch(NOTES)
        await eventually(lambda: {"uri": NOTES} in ears.of(UPDATED))
        await ask(servers, "unsubscribe")
        ears.notifications.clear()
        await talkative.touch(NOTES)
        await eventually(lambda: {"uri": NOTES} in ears.of(UPDATED))
        await ask(servers, "unsubscribe")
        if era == "2025-11-25":
            assert talkative.subscribed == [f"+{NOTES}", "+notes://two", f"-{NOTES}"]
        else:
            alone = [{"uri": "notes://two"}]
            with anyio.fail_after(PATIENCE):  # the old subscription overlaps with the new one for a moment
                while ears.of(UPDATED) != alone:
                    await anyio.sleep(0.2)
                    ears.notifications.clear()
                    await talkative.touch(NOTES)
                    await talkative.touch("notes://two")
                    await eventually(lambda: alone[0] in ears.of(UPDATED))


LISTED: list[Any] = [
    {"uri": "a://1", "name": "one", "unknown": {"kept": True}},
    {"uri": 7, "name": "no address"},
    "not an object",
    {"uri": "a://2", "name": "two", "icons": "x" * 2_000_000},
    {"uri": "a://1", "name": "again"},
    {"uri": "a://3", "name": "three"},
]


async def test_one_bad_entry_drops_itself_and_what_a_server_does_not_have_is_not_asked_for():
    plain = PlainHttp(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            },
            "tools/list": {"tools": []},
            "resources/list": {"resources": LISTED},
        }
    )
    async with served(plain) as base, open_pool(Server.http("talk", base, era="2025-11-25")) as servers:
        await eventually(lambda: len(_names(servers, "resources", "uri")) == 2)
        materials = servers.get_resources("talk")
        assert materials is not None
        assert [entry["uri"] for entry in materials.resources] == ["a://1", "a://3"]
        assert materials.resources[0]["unknown"] == {"kept": True}
    assert "prompts/list" not in plain.asked
    assert "resources/templates/list" in plain.asked  # refused, which is how many servers say they have none


async def test_a_failing_listener_does_not_affect_others():
    def hearer(server: str, method: str, params: JsonObject, caller: str | None) -> None:
        message = "a bug in the hearer"
        raise RuntimeError(message)

    async with open_pool(Server.in_process("talk", FullServer().server), start=False) as servers:
        servers.subscribe_to_notifications(hearer)
        await servers.ensure("talk", timeout=PATIENCE)
        await eventually(lambda: _names(servers) == ["greet"])
