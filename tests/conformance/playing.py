"""Plays the client of the suite's client scenarios, with the gateway between it and the suite's server.

The client is the SDK's own, in the era of the revision. What the suite sees
and judges is how the gateway speaks with a server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.client import ClientRequestContext

from fingerpost import Router
from fingerpost.records import Era, OAuthSpec, ServerSpec
from fingerpost.servers.library import sign_in
from tests.kit.gateways import PATIENCE_S, build_gateway_settings, open_gateway

Object = dict[str, Any]
Play = Callable[[Client, Object], Awaitable[None]]

MAX_SIGN_INS: Final = 3  # in one scenario, by a person who does not give up at once
LONGEST_ORDER: Final = 1 << 20


async def answer_with_defaults(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult:
    """A person who accepts a form as it stands."""
    assert isinstance(params, types.ElicitRequestFormParams)
    fields: Object = params.requested_schema["properties"]
    filled = {name: field.get("default", True) for name, field in fields.items()}
    return types.ElicitResult(action="accept", content=filled)


async def _list(client: Client, context: Object) -> None:
    await client.list_tools()


async def _call_all(client: Client, context: Object) -> None:
    """Calls every tool there is but the gateway's own, with fitting arguments."""
    for tool in (await client.list_tools()).tools:
        if tool.name != "read_result":
            properties: Object = tool.input_schema.get("properties", {})
            kinds: Object = {"number": 5, "integer": 5, "string": "us-west1"}
            arguments = {name: kinds[about["type"]] for name, about in properties.items()}
            await client.call_tool(tool.name, arguments)


async def _call_as_told(client: Client, context: Object) -> None:
    await client.list_tools()
    for call in context["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def _use_everything(client: Client, context: Object) -> None:
    await _call_all(client, context)
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name)


PLAYS: Final[dict[str, Play]] = {
    "initialize": _list,
    "tools_call": _call_all,
    "elicitation-sep1034-client-defaults": _call_all,
    "sse-retry": _call_all,
    "request-metadata": _list,
    "sep-2322-client-request-state": _call_all,
    "http-standard-headers": _use_everything,
    "http-custom-headers": _call_as_told,
    "http-invalid-tool-headers": _call_all,
    "json-schema-ref-no-deref": _list,
}


async def play(order: Object, revision: Era, folder: Path) -> None:
    """One scenario: a gateway in front of the suite's server, and a client in front of that."""
    upstream = ServerSpec(name="mock", transport="http", url=order["url"], era=revision, prefix=False)
    mode = "legacy" if revision == "2025-11-25" else revision
    async with (
        open_gateway(upstream, folder=folder) as address,
        Client(f"{address}/mcp", mode=mode, elicitation_callback=answer_with_defaults) as client,
    ):
        await PLAYS[order["scenario"]](client, order["context"])


def visit(url: str) -> None:
    """A person's browser: it follows the authorization server back to the gateway, and they agree to all."""
    answer = httpx2.get(url, follow_redirects=True, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text


async def play_sign_in(order: Object, revision: Era, folder: Path) -> None:
    """One scenario of signing in: a person does it as with `fingerpost servers login`, a call is made, and
    the person signs in again where the server asks for it.
    """
    upstream = ServerSpec(
        name="mock",
        transport="http",
        url=order["url"],
        era=revision,
        prefix=False,
        oauth=OAuthSpec(
            client_id=_find_client_id(order), client_secret=order["context"].get("client_secret")
        ),
    )
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    async with Router([upstream], settings=build_gateway_settings(folder)) as router:
        for _ in range(MAX_SIGN_INS):
            await sign_in(upstream, router.store.tokens, open_browser=visit)
            await router.servers.reconnect("mock")
            await router.servers.wait_until_settled(timeout=PATIENCE_S)
            if await _can_call_all(router):
                return


def _find_client_id(order: Object) -> str | None:
    """The id of a client that is known before: by registration, or as the address of its description."""
    described = "https://conformance-test.local/client-metadata.json"
    return described if order["scenario"] == "auth/basic-cimd" else order["context"].get("client_id")


async def _can_call_all(router: Router) -> bool:
    outcomes = [await router.call(card.key, {}) for card in router.tools.by_server("mock")]
    return bool(outcomes) and all(outcome.success for outcome in outcomes)


async def _follow(revision: Era, folder: Path, connection: SocketStream) -> None:
    """Takes one order of a messenger; what goes wrong is its answer, nothing means it went well."""
    async with connection:
        line = await BufferedByteReceiveStream(connection).receive_until(b"\n", LONGEST_ORDER)
        order: Object = json.loads(line)
        signs_in = order["scenario"].startswith("auth/")
        if order["scenario"] not in PLAYS and not signs_in:
            return  # extensions: not judged
        try:
            await (play_sign_in if signs_in else play)(order, revision, folder / order["scenario"])
        except Exception as problem:  # the suite shows it next to the scenario
            await connection.send(repr(problem).encode() or b"?")


@asynccontextmanager
async def players(revision: Era, folder: Path) -> AsyncGenerator[str]:
    """The port at which messengers of the suite find us."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(_follow, revision, folder))
        yield str(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()
