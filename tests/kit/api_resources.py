"""The API and the MCP gateway of one router at one port, in front of servers made for the test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client

from fingerpost import Router
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.records import Right, ServerSpec
from fingerpost.settings import Loaded
from fingerpost.surfaces.api import open_api
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.local_callers import create_ticket
from fingerpost.surfaces.http.server import PathRouter, get_address, listen_at
from tests.kit.gateways import run_app
from tests.kit.routers import open_router

PATIENCE_S = 60.0


def reading_tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """A tool that only reads, so that no rule is needed to call it."""
    return {
        "name": name,
        "description": description or f"Read {name}",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
        **more,
    }


@dataclass
class ServedApiAndGateway:
    """Everything a client may talk to."""

    router: Router
    address: str
    client: httpx2.AsyncClient = field(repr=False)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.client.get(path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.client.post(path, json=body, **more)

    async def key(self, name: str, *rights: Right, **more: Any) -> dict[str, str]:
        """The headers of a new caller with a key."""
        _, text = await self.router.store.keys.add(name, rights=rights, **more)
        return {"x-api-key": text}

    async def ok(self, path: str, body: Any = None, *, post: bool = False, **more: Any) -> Any:
        """The answer, which must be a good one."""
        posting = post or body is not None
        answer = await (self.post(path, body, **more) if posting else self.get(path, **more))
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        return answer.json()

    async def problem(self, status: int, path: str, body: Any = None, *, post: bool = False) -> Any:
        """What went wrong, which must be this."""
        answer = await (self.post(path, body) if post or body is not None else self.get(path))
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()

    async def list_names(self) -> list[str]:
        """The tools an MCP client sees."""
        async with Client(f"{self.address}/mcp/all", mode="auto") as client:
            return [tool.name for tool in (await client.list_tools()).tools]


@asynccontextmanager
async def open_api_and_router(
    folder: Path, *servers: ServerSpec, loaded: Loaded | None = None, **more: Any
) -> AsyncGenerator[ServedApiAndGateway]:
    """A router with its API and gateway."""
    async with open_router(folder, servers, **more) as router, open_api_of(router, loaded=loaded) as api:
        yield api


@asynccontextmanager
async def open_api_of(router: Router, *, loaded: Loaded | None = None) -> AsyncGenerator[ServedApiAndGateway]:
    """This router's API and gateway at a port, for the person whose installation it is."""
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    address = f"http://{bound}"
    made = router.settings
    gate = build_authenticator(
        made.gateway, keys=router.store.keys, events=router.events, bound=bound, profiles=made.profiles
    )
    audience = NotificationListeners()
    with listening:
        async with (
            JournalReader.open(router.store, router.live) as ledger,
            open_api(router, authenticator=gate, address=address, ledger=ledger, loaded=loaded) as api,
            open_methods(router, audience=audience) as methods,
            GatewayApp(methods, gate, made.gateway, router.events, audience=audience) as gateway,
            httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
        ):
            front = PathRouter({"api": api}, default=gateway)
            async with run_app(front, listening):
                ticket = await create_ticket(router.store)
                signed_in = await client.post("/api/session", json={"ticket": ticket})
                client.headers["x-csrf-token"] = signed_in.json()["csrf"]
                yield ServedApiAndGateway(router, address, client)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that happens behind an answer."""
    with anyio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - these servers have nothing to wait on
            await anyio.sleep(0.01)


def by_key(page: Mapping[str, Any]) -> dict[str, Any]:
    """The items of a page, by their key or name."""
    return {item.get("key") or item["name"]: item for item in page["items"]}
