"""The gateway in the test's own loop, with a rule that allows everything."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from fingerpost import Router, Settings
from fingerpost.records import ServerSpec
from fingerpost.surfaces.http.access import Authenticator
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import ServedApp, serve_app
from fingerpost.surfaces.serve import serve
from tests.kit.routers import build_settings

PATIENCE_S = 60.0


def build_gateway_settings(folder: Path, **more: Any) -> Settings:
    """Everything is allowed and offered."""
    return build_settings(folder, **{"policy": [{"verdict": "allow"}], "gateway": {"mode": "all"}, **more})


@asynccontextmanager
async def open_gateway(*servers: ServerSpec, folder: Path, **more: Any) -> AsyncGenerator[str]:
    """The address of a gateway in front of these servers, once they are connected."""
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    async with Router(servers, settings=build_gateway_settings(folder, **more)) as router:
        await wait_until_connected(router)
        async with serve_gateway(router) as address:
            yield address


async def wait_until_connected(router: Router) -> None:
    """Every server is up and knows that it may ask our callers, as with `fingerpost serve`."""
    router.servers.advertise_client_capabilities()
    await router.connect()


@asynccontextmanager
async def serve_gateway(
    router: Router,
    *,
    host: str = "127.0.0.1",
    authenticator: Authenticator | None = None,
) -> AsyncGenerator[str]:
    """The address of all that `fingerpost serve` serves for this router, by default behind the real gate."""
    ready = anyio.Event()
    addresses: list[str] = []

    def on_started(address: str) -> None:
        addresses.append(address)
        ready.set()

    def build_gate(bound: str) -> Authenticator:
        return authenticator or build_authenticator(
            router.settings.gateway,
            keys=router.store.keys,
            events=router.events,
            bound=bound,
            profiles=router.settings.profiles,
            apply_user=router.users.apply,
        )

    async def run() -> None:
        await serve(router, host=host, port=0, authenticator=build_gate, started=on_started, signals=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            await ready.wait()
        yield addresses[0]
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def run_app(
    app: ServedApp, listening: socket.socket, *, arrival_seconds: float = 30.0
) -> AsyncGenerator[None]:
    """Serve an opened app at this socket while the block runs."""
    ready = anyio.Event()

    async def run() -> None:
        await serve_app(app, listening, arrival_seconds=arrival_seconds, on_started=ready.set, signals=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            await ready.wait()
        yield
        tasks.cancel_scope.cancel()
