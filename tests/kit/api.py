"""The API at a real port, in front of real MCP servers, in the test's own loop."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from fingerpost import Router
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.records import Right, ServerSpec
from fingerpost.surfaces.api import ApiApp, open_api
from fingerpost.surfaces.console import open_console
from fingerpost.surfaces.http.authenticator import HttpAuthenticator, build_authenticator
from fingerpost.surfaces.http.local_callers import create_ticket
from fingerpost.surfaces.http.server import PathRouter, get_address, listen_at
from tests.kit.gateways import run_app
from tests.kit.routers import build_settings

PATIENCE_S = 60.0


@dataclass
class ServedApi:
    """A router that is served, and a client for it."""

    router: Router
    address: str
    client: httpx2.AsyncClient = field(repr=False)
    api: ApiApp = field(repr=False)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.client.get(path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.client.post(path, json=body, **more)

    async def sign_in(self) -> None:
        """From now on, who asks is the person whose installation this is."""
        ticket = await create_ticket(self.router.store)
        me = (await self.post("/api/session", {"ticket": ticket})).json()
        self.client.headers["x-csrf-token"] = me["csrf"]

    async def key(self, name: str, *rights: str, **more: Any) -> dict[str, str]:
        """The headers of a new caller with a key, which may use tools if no rights or roles are given."""
        wanted = tuple(Right(right) for right in rights) or (() if "roles" in more else (Right.USE,))
        _, text = await self.router.store.keys.add(name, rights=wanted, **more)
        return {"x-api-key": text}


def build_local_authenticator(router: Router, bound: str = "127.0.0.1:80") -> HttpAuthenticator:
    """The gate of a router that listens here."""
    return build_authenticator(
        router.settings.gateway,
        keys=router.store.keys,
        events=router.events,
        bound=bound,
        profiles=router.settings.profiles,
        apply_user=router.users.apply,
    )


@asynccontextmanager
async def open_served_api(
    folder: Path, *servers: ServerSpec, model: Any = None, operator: bool = False, **more: Any
) -> AsyncGenerator[ServedApi]:
    """Everything open and connected."""
    async with Router(servers, settings=build_settings(folder, **more), model=model) as router:
        if servers:
            await router.connect()
        async with serve_api(router, operator=operator) as api:
            yield api


@asynccontextmanager
async def serve_api(router: Router, *, operator: bool = False) -> AsyncGenerator[ServedApi]:
    """The API and the console of this router at a port; `operator`: who asks there has signed in."""
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    address = f"http://{bound}"
    gate = build_local_authenticator(router, bound)
    with listening:
        async with (
            JournalReader.open(router.store, router.live) as ledger,
            open_api(router, authenticator=gate, address=address, ledger=ledger) as api,
            open_console(gate) as console,
            httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
        ):
            front = PathRouter({"api": api, "console": console}, default=console)
            async with run_app(front, listening):
                served_api = ServedApi(router, address, client, api)
                if operator:
                    await served_api.sign_in()
                yield served_api


@dataclass
class Frame:
    """One event of a stream."""

    event: str = "message"
    id: str | None = None
    data: Any = None


class Listener:
    """Reads an event stream frame by frame."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self, event: str | None = None) -> Frame:
        """The next frame, of this kind."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                frame = await self._frame()
                if event in (None, frame.event):
                    return frame

    async def _frame(self) -> Frame:
        frame = Frame()
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and frame.data is not None:
                return frame
            if name == "data":
                frame.data = json.loads(value)
            elif name == "event":
                frame.event = value
            elif name == "id":
                frame.id = value
        raise EOFError


@asynccontextmanager
async def open_stream(
    api: ServedApi, path: str, *, headers: Mapping[str, str] | None = None, body: Any = None
) -> AsyncGenerator[Listener]:
    """A stream of events from the API."""
    method = "GET" if body is None else "POST"
    wanted = {"accept": "text/event-stream", **(headers or {})}
    async with api.client.stream(method, path, headers=wanted, json=body) as response:
        assert response.status_code == 200, await response.aread()
        yield Listener(response)
