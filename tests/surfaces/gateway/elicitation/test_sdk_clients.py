"""The whole way with a real client: the SDK's, in both eras, over HTTP, in front of servers that ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, InputRequiredResult

from fingerpost import Router, Settings
from fingerpost.records import Decision, Principal, Right, ServerSpec
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.testing import tool_server
from tests.kit.elicitation_servers import RoundsServer, SessionServer
from tests.kit.gateways import serve_gateway
from tests.kit.stores import place_empty_store
from tests.requirements import proves

pytestmark = pytest.mark.anyio

both_eras = pytest.mark.parametrize("mode", ["legacy", "auto"])
both_servers = pytest.mark.parametrize(("server", "tool"), [("old", "greet"), ("new", "look")])


class NamedCallerGate:
    """Lets everybody in under the name they give."""

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        return Principal(name=headers.get("x-name", "dana"), kind="key", rights=(Right.USE, Right.CONFIRM))

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        return True

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        return True

    def get_public_documents(self) -> Mapping[str, Mapping[str, Any]]:
        return {}


class TwoEraGateway:
    """A running gateway with a server of each era."""

    def __init__(self, router: Router, url: str, old: SessionServer, new: RoundsServer) -> None:
        self.router = router
        self.url = url
        self.old = old
        self.new = new

    @property
    def runs(self) -> int:
        return self.old.begun + len(self.new.rounds)


@asynccontextmanager
async def open_two_era_gateway(
    folder: Path, *more: ServerSpec, **chosen: Any
) -> AsyncGenerator[TwoEraGateway]:
    old, new = SessionServer(), RoundsServer()
    settings = Settings.model_validate({"store": {"url": place_empty_store(folder, "s.db")}, **chosen})
    async with Router([old.spec, new.spec, *more], settings=settings) as router:
        await router.connect()
        async with serve_gateway(router, authenticator=NamedCallerGate()) as address:
            yield TwoEraGateway(router, f"{address}/mcp/all", old, new)


class User:
    """Behind the client: approves or not, and tells their name. Everything they were asked is kept."""

    def __init__(self, decision: str = "approve") -> None:
        self.asked: list[str] = []
        self._decision = decision

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        if params.message.startswith("Fingerpost: approve this tool call?"):
            return ElicitResult(action="accept", content={"decision": self._decision, "reason": "no need"})
        return ElicitResult(action="accept", content={"name": "Dana"})


def text_of(result: CallToolResult) -> str:
    return str(getattr(result.content[0], "text", ""))


@pytest.mark.slow
@proves("G8", "G1")
@both_eras
@both_servers
async def test_questions_of_servers_reach_the_user(tmp_path: Path, mode: str, server: str, tool: str) -> None:
    user = User()
    async with (
        open_two_era_gateway(tmp_path) as gateway,
        Client(gateway.url, mode=mode, elicitation_callback=user) as client,
    ):
        result = await client.call_tool(f"{server}__{tool}", {})
        assert text_of(result) == f"{tool} Dana"
        assert user.asked == ["Who are you?"]


@pytest.mark.slow
@proves("G6", "G1")
@both_eras
@pytest.mark.parametrize("server", ["old", "new"])
async def test_approval_and_the_servers_question_in_one_call(tmp_path: Path, mode: str, server: str) -> None:
    user = User()
    async with (
        open_two_era_gateway(tmp_path) as gateway,
        Client(gateway.url, mode=mode, elicitation_callback=user) as client,
    ):
        result = await client.call_tool(f"{server}__wipe", {})
        assert text_of(result) == "wipe Dana"
        assert len(user.asked) == 2
        assert f"{server}/wipe" in user.asked[0]


@proves("G6")
@both_eras
async def test_a_rejected_call_says_so(tmp_path: Path, mode: str) -> None:
    async with (
        open_two_era_gateway(tmp_path) as gateway,
        Client(gateway.url, mode=mode, elicitation_callback=User("reject")) as client,
    ):
        result = await client.call_tool("old__wipe", {})
        assert result.is_error
        assert "no need" in text_of(result)
        assert gateway.runs == 0


@pytest.mark.slow
@proves("G6")
@both_eras
async def test_a_client_that_cannot_be_asked(tmp_path: Path, mode: str) -> None:
    async with open_two_era_gateway(tmp_path) as gateway, Client(gateway.url, mode=mode) as client:
        result = await client.call_tool("new__wipe", {})
        [pending] = await gateway.router.calls.approvals.list_waiting()
        assert result.is_error
        assert f"fingerpost approvals approve {pending.pending_id}" in text_of(result)
        await gateway.router.calls.decide(pending.pending_id, Decision.APPROVED, by="terminal")
        # The server goes on to ask what this client does not offer.
        if mode == "auto":
            result = await client.call_tool("new__wipe", {})
            assert result.is_error
            assert "does not offer elicitation" in text_of(result)
        else:
            with pytest.raises(MCPError):
                await client.call_tool("new__wipe", {})
        assert gateway.runs == 1


@pytest.mark.slow
@proves("G6", "F33")
@both_eras
async def test_a_client_with_a_session_for_each_call_runs_what_was_approved_once(
    tmp_path: Path, mode: str
) -> None:
    """As one-shot programs do, and every client after the gateway was started again."""
    notes = tool_server("notes", ["delete_note"])

    async def call(gateway: TwoEraGateway) -> CallToolResult:
        async with Client(gateway.url, mode=mode) as client:
            return await client.call_tool("notes__delete_note", {"path": "a"})

    async with open_two_era_gateway(tmp_path, notes.spec()) as gateway:
        asked = text_of(await call(gateway))
        [pending] = await gateway.router.calls.approvals.list_waiting()
        assert pending.pending_id in asked
        assert pending.pending_id in text_of(await call(gateway))
    async with open_two_era_gateway(tmp_path, notes.spec()) as gateway:
        await gateway.router.calls.decide(pending.pending_id, Decision.APPROVED, by="terminal")
        assert not (await call(gateway)).is_error
        assert (await call(gateway)).is_error
        assert len(notes.calls) == 1


@proves("G6")
@pytest.mark.parametrize(
    ("chosen", "console"),
    [
        ({}, "{address}/"),
        ({"gateway": {"public_url": "https://fingerpost.example/"}}, "https://fingerpost.example/"),
        ({"console": {"enabled": False}}, None),
        ({"api": {"enabled": False}}, None),  # a console without it shows nothing
    ],
)
async def test_the_note_where_to_approve_names_the_console_where_there_is_one(
    tmp_path: Path, chosen: dict[str, Any], console: str | None
) -> None:
    async with open_two_era_gateway(tmp_path, **chosen) as gateway, Client(gateway.url) as client:
        note = text_of(await client.call_tool("new__wipe", {}))
        [pending] = await gateway.router.calls.approvals.list_waiting()
        assert f"fingerpost approvals approve {pending.pending_id}" in note
        if console is None:
            assert "#/approvals" not in note
        else:
            page = console.format(address=gateway.url.removesuffix("/mcp/all"))
            assert f" at {page}#/approvals/{pending.pending_id} or " in note


@pytest.mark.slow
@proves("G6", "G3")
@both_eras
async def test_through_call_tool_in_route_mode(tmp_path: Path, mode: str) -> None:
    user = User()
    async with open_two_era_gateway(tmp_path) as gateway:
        url = gateway.url.replace("/mcp/all", "/mcp/route")
        async with Client(url, mode=mode, elicitation_callback=user) as client:
            result = await client.call_tool("call_tool", {"name": "old__wipe", "arguments": {}})
            assert text_of(result) == "wipe Dana"
            assert len(user.asked) == 2


@proves("G7")
async def test_a_state_over_the_wire_is_good_once(tmp_path: Path) -> None:
    async with (
        open_two_era_gateway(tmp_path) as gateway,
        Client(gateway.url, elicitation_callback=User()) as client,
    ):
        asked = await client.session.call_tool("old__greet", {}, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        assert asked.input_requests is not None
        answers: Any = {
            key: ElicitResult(action="accept", content={"name": "Dana"}) for key in asked.input_requests
        }
        state = asked.request_state
        result = await client.call_tool("old__greet", {}, input_responses=answers, request_state=state)
        assert text_of(result) == "greet Dana"
        with pytest.raises(MCPError, match="has expired") as caught:
            await client.call_tool("old__greet", {}, input_responses=answers, request_state=state)
        assert caught.value.error.code == -32602
        assert gateway.old.begun == 1


@pytest.mark.slow
@proves("G8")
async def test_questions_about_prompts_over_the_wire(tmp_path: Path) -> None:
    async with open_two_era_gateway(tmp_path) as gateway:
        for mode in ("legacy", "auto"):
            async with Client(gateway.url, mode=mode, elicitation_callback=User()) as client:
                found = await client.list_prompts()
                result = await client.get_prompt(found.prompts[0].name)
                assert "Say hello to Dana" in str(result.messages[0].content)
