"""Servers that speak both eras and can ask in the older one alone: a session client is asked all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from fingerpost.records import Outcome, ServerSpec
from fingerpost.surfaces.gateway.protocol import ClientRequest
from fingerpost.testing import served
from tests.kit.elicitation import FORMS, ElicitationGateway, create_client, open_elicitation_gateway, request
from tests.kit.elicitation_servers import Context, SessionServer
from tests.kit.full_server import Recorder
from tests.requirements import proves

pytestmark = pytest.mark.anyio

ALLOWED: list[dict[str, Any]] = [{"verdict": "allow"}]
NAMED: dict[str, Any] = {"action": "accept", "content": {"name": "Dana"}}


class Wrapping(SessionServer):
    """Like servers made with a framework: says in a result what went wrong, and has extensions."""

    def __init__(self) -> None:
        super().__init__()
        self.server.extensions["com.example/panels"] = {}  # named in the newer era alone

    async def _call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return await super()._call(ctx, params)
        except MCPError as error:
            text = f"Error calling tool: {error}"
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


@asynccontextmanager
async def behind(
    folder: Path, old: SessionServer, *, stateless: bool = False, **settings: Any
) -> AsyncGenerator[tuple[ElicitationGateway, Recorder]]:
    """A gateway in front of this server, which is at an address and speaks both eras."""
    record = Recorder(old.server.streamable_http_app(stateless_http=stateless))
    async with served(record) as base:
        spec = ServerSpec(name="old", transport="http", url=f"{base}/mcp", trust_hints=True)
        async with open_elicitation_gateway(folder, spec, policy=ALLOWED, **settings) as gateway:
            yield gateway, record


def create_request(tool: str, *, session: str = "session-1", capabilities: Any = FORMS) -> ClientRequest:
    made = request(name=tool, arguments={}, modern=False, capabilities=capabilities)
    return replace(made, session=session)


def texts(outcome: Outcome) -> str:
    """All texts that the client gets, as a result or as an error."""
    if outcome.result is None:
        return outcome.detail or outcome.content
    content: Any = outcome.result["content"]
    return "\n".join(block["text"] for block in content)


SERVERS = pytest.mark.parametrize("server", [SessionServer, Wrapping])


@pytest.mark.slow
@proves("G8")
@SERVERS
async def test_a_read_that_could_not_ask_is_made_again_in_the_older_era(
    tmp_path: Path, server: type[SessionServer]
) -> None:
    old, person = server(), create_client(NAMED)
    async with behind(tmp_path, old) as (gateway, record):
        assert not record.of("initialize")
        outcome = await gateway.call(create_request("old__greet"), person)
        assert (outcome.success, texts(outcome)) == (True, "greet Dana")
        assert old.begun == 2
        await gateway.call(create_request("old__greet"), person)
        assert old.begun == 3  # at once where it can be asked
        assert len(record.of("initialize")) == 1
        await gateway.call(create_request("old__greet", session="session-2"), person)
        assert old.begun == 4  # another session, too
        assert len(record.of("initialize")) == 2
    assert len(person.questions) == 3


@proves("G8")
@SERVERS
async def test_what_may_have_changed_something_is_not_made_again_but_can_be_asked_about_the_next_time(
    tmp_path: Path, server: type[SessionServer]
) -> None:
    old, person = server(), create_client(NAMED)
    async with behind(tmp_path, old) as (gateway, _):
        outcome = await gateway.call(create_request("old__wipe"), person)
        assert not outcome.success
        assert old.begun == 1
        assert "server-initiated requests" in texts(outcome)  # the server's own words
        assert "the next call can be asked about" in texts(outcome)
        assert texts(await gateway.call(create_request("old__wipe"), person)) == "wipe Dana"
        assert old.begun == 2


@proves("G8")
async def test_who_can_be_asked_nothing_gets_the_servers_error_and_no_session(tmp_path: Path) -> None:
    old = SessionServer()
    async with behind(tmp_path, old) as (gateway, record):
        for _ in range(2):
            outcome = await gateway.call(create_request("old__greet", capabilities={}))
            assert texts(outcome).endswith("no back-channel for server-initiated requests.")
        assert old.begun == 2
        assert not record.of("initialize")


async def test_where_the_older_era_cannot_ask_either_the_error_says_why(tmp_path: Path) -> None:
    old, person = SessionServer(), create_client(NAMED)
    async with behind(tmp_path, old, stateless=True) as (gateway, record):
        outcome = await gateway.call(create_request("old__greet"), person)
        assert "old serves 2025-11-25 without sessions" in texts(outcome)
        begun = old.begun
        await gateway.call(create_request("old__greet"), person)
        assert old.begun == begun + 1  # made once, and no other session is tried for it
        assert len(record.of("initialize")) == 1


@pytest.mark.slow
@proves("G8")
@SERVERS
async def test_where_a_server_has_one_era_for_all_the_error_names_the_setting(
    tmp_path: Path, server: type[SessionServer]
) -> None:
    old, person = server(), create_client(NAMED)
    spec = replace(old.spec, era="auto")
    async with open_elicitation_gateway(tmp_path, spec) as gateway:
        outcome = await gateway.call(create_request("old__greet"), person)
        assert '`era = "2025-11-25"`' in texts(outcome)
        assert old.begun == 1
    async with open_elicitation_gateway(tmp_path, replace(spec, era="2025-11-25")) as gateway:
        assert texts(await gateway.call(create_request("old__greet"), person)) == "greet Dana"
