"""The gateway in the test's own loop, with a rule that allows everything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from fingerpost import Router, Settings
from fingerpost.records import ServerSpec
from fingerpost.surfaces.http.authenticator import HttpAuthenticator, build_authenticator
from fingerpost.surfaces.serve import serve

PATIENCE_S = 20.0


def settings(folder: Path, **more: Any) -> Settings:
    """Everything is allowed and offered; the store is a file of the test's own."""
    return Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder / 'store.db'}"},
            "policy": [{"verdict": "allow"}],
            "gateway": {"mode": "all"},
            **more,
        }
    )


@asynccontextmanager
async def open_gateway(*servers: ServerSpec, folder: Path, **more: Any) -> AsyncGenerator[str]:
    """The address of a gateway in front of these servers, once they are connected."""
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    async with Router(servers, settings=settings(folder, **more)) as router:
        await wait_until_connected(router)
        async with serve_gateway(router) as address:
            yield address


async def wait_until_connected(router: Router) -> None:
    """Every server is up and knows that it may ask our callers, as with `fingerpost serve`."""
    router.servers.advertise_client_capabilities()
    await router.connect()


@asynccontextmanager
async def serve_gateway(router: Router) -> AsyncGenerator[str]:
    """The address of a gateway of this router."""
    ready = anyio.Event()
    addresses: list[str] = []

    def started(address: str) -> None:
        addresses.append(address)
        ready.set()

    def gate(bound: str) -> HttpAuthenticator:
        return build_authenticator(
            router.settings.gateway,
            keys=router.store.keys,
            events=router.events,
            bound=bound,
            profiles=router.settings.profiles,
        )

    async def run() -> None:
        await serve(router, host="127.0.0.1", port=0, authenticator=gate, started=started, signals=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            await ready.wait()
        yield addresses[0]
        tasks.cancel_scope.cancel()
