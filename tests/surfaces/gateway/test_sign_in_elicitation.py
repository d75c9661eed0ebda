"""A call that needs the user's own sign-in sends the client's user to the page for it (URL elicitation)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client

from fingerpost import Router
from fingerpost.surfaces.http.approvals import SignInLinks
from tests.kit.gateways import build_gateway_settings, serve_gateway, wait_until_connected
from tests.kit.oauth_authority import OAuthAuthority, agree, serve_accounts
from tests.requirements import proves

PATIENCE_S = 30.0


class Notes:
    """The elicitations that a client was told to be complete."""

    def __init__(self) -> None:
        self.came = anyio.Event()
        self.completed: list[str] = []

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            self.completed.append(message.params.elicitation_id)
            self.came.set()


class Desk:
    """A gateway in front of a server where users have accounts."""

    def __init__(self, router: Router, address: str, http: httpx2.AsyncClient) -> None:
        self.router = router
        self.address = address
        self.http = http

    async def key(self, name: str) -> dict[str, str]:
        return {"x-api-key": (await self.router.store.keys.add(name))[1]}

    async def sign_in(self, key: dict[str, str], link: str = "") -> httpx2.Response:
        """What the console does at this link, for a person who agrees at the authorization server."""
        found = urlsplit(link.replace("#/", ""))
        named = parse_qs(found.query).get("link", [])
        begun = await self.http.post(
            f"{self.address}/api/sign-ins/accounts", headers=key, params={"link": named} if named else None
        )
        if begun.status_code != 200:
            return begun
        answer = await agree(begun.json()["url"])
        return await self.http.post(f"{self.address}/api/sign-in-answers", json=answer, headers=key)

    @asynccontextmanager
    async def connect(
        self, key: dict[str, str], mode: Any, elicit: ElicitationFnT | None = None, notes: Notes | None = None
    ) -> AsyncGenerator[Client]:
        async with httpx2.AsyncClient(headers=key, timeout=PATIENCE_S) as http:
            transport = streamable_http_client(f"{self.address}/mcp", http_client=http)
            async with Client(
                transport, mode=mode, elicitation_callback=elicit, message_handler=notes
            ) as client:
                yield client


@asynccontextmanager
async def open_desk(folder: Path) -> AsyncGenerator[Desk]:
    async with (
        serve_accounts(OAuthAuthority()) as spec,
        Router([spec], settings=build_gateway_settings(folder)) as router,
    ):
        await wait_until_connected(router)
        async with serve_gateway(router) as address, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
            desk = Desk(router, address, http)
            assert (await desk.sign_in(await desk.key("first"))).status_code == 200  # lists the tools
            yield desk


async def refuse(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


def read_text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.slow
@proves("M21")
async def test_a_client_with_a_session_gets_the_link_and_hears_when_it_is_done(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        anna, ben = await desk.key("anna"), await desk.key("ben")
        notes = Notes()
        async with (
            desk.connect(anna, "legacy", refuse, notes) as client,
            desk.connect(ben, "legacy", refuse) as other,
        ):
            asked: list[dict[str, Any]] = []
            for caller in (client, client, other):
                try:
                    await caller.call_tool("accounts__get_account", {})
                except MCPError as error:
                    assert error.error.code == types.URL_ELICITATION_REQUIRED
                    asked += error.error.data["elicitations"]
            first, again, foreign = asked
            assert first == again  # one elicitation, until it is done
            assert first["mode"] == "url"
            assert first["url"].startswith(f"{desk.address}/#/sign-ins/accounts?link=")
            assert foreign["elicitationId"] != first["elicitationId"]
            assert "anna" not in first["url"]

            refused = await desk.sign_in(ben, first["url"])
            assert (refused.status_code, refused.json()["title"]) == (410, "This link is not for you")
            assert (await desk.sign_in(anna, first["url"])).status_code == 200
            with anyio.fail_after(PATIENCE_S):
                await notes.came.wait()
            assert notes.completed == [first["elicitationId"]]
            assert not (await client.call_tool("accounts__get_account", {})).is_error


@pytest.mark.slow
@proves("M21")
async def test_a_client_of_2026_is_asked_for_input_and_its_call_goes_on_after_the_sign_in(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        anna = await desk.key("anna")
        asked: list[types.ElicitRequestURLParams] = []

        async with anyio.create_task_group() as tasks:

            async def open_page(
                context: ClientRequestContext, params: types.ElicitRequestParams
            ) -> types.ElicitResult:
                assert isinstance(params, types.ElicitRequestURLParams)
                asked.append(params)
                tasks.start_soon(
                    desk.sign_in, anna, params.url
                )  # the answer comes before the sign-in is done
                return types.ElicitResult(action="accept")

            async with desk.connect(anna, "2026-07-28", open_page) as client:
                result = await client.call_tool("accounts__get_account", {})
                assert not result.is_error, read_text(result)
                assert (await client.call_tool("accounts__get_account", {})).content == result.content
        assert len(asked) == 1

        async with desk.connect(await desk.key("ben"), "2026-07-28", refuse) as client:
            declined = await client.call_tool("accounts__get_account", {})
            assert declined.is_error
            assert f"open {desk.address}/#/sign-ins" in read_text(declined)


@pytest.mark.slow
@proves("M21")
async def test_other_clients_get_the_error_with_the_link(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for mode in ("legacy", "2026-07-28"):
            async with desk.connect(await desk.key(f"anna-{mode}"), mode) as client:
                refused = await client.call_tool("accounts__get_account", {})
                assert refused.is_error
                assert f"open {desk.address}/#/sign-ins" in read_text(refused)


@proves("M21")
def test_a_link_is_for_one_user_and_server_and_expires() -> None:
    links = SignInLinks(b"s" * 32)
    link = links.create_id("anna", "accounts")
    assert links.is_valid(link, "anna", "accounts")
    for user, server in (("ben", "accounts"), ("anna", "other"), ("", ""), ("anna\naccounts", "")):
        assert not links.is_valid(link, user, server)
    assert not SignInLinks(b"t" * 32).is_valid(link, "anna", "accounts")
    later = f"{int(link[:8], 16) + 3600:08x}{link[8:]}"
    assert not links.is_valid(later, "anna", "accounts")
    former = SignInLinks(b"s" * 32, seconds=-1).create_id("anna", "accounts")
    assert not links.is_valid(former, "anna", "accounts")
