"""Streams that were opened with a key which opens nothing any more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from fingerpost.events import MemorySink
from fingerpost.records import Principal
from fingerpost.settings.model import GatewaySettings
from fingerpost.store import Store
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.access import AccessDenial, Authenticator, Endpoint
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at
from tests.kit.gateway_client import RawConnection, modern, modern_headers, open_raw_connection, open_session
from tests.kit.gateways import run_app
from tests.kit.small_gateway import OpenGate, SmallGateway, SmallMethods
from tests.kit.stores import place_empty_store
from tests.requirements import proves

CHANGED = "notifications/tools/list_changed"
PATIENCE = 60.0  # seconds


class ClosingGate(OpenGate):
    """Lets everybody in until it has a reason not to."""

    denial: AccessDenial | None = None

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        return self.denial or await super().authenticate(headers, endpoint, remote=remote)


@asynccontextmanager
async def open_gateway_behind(
    gate: Authenticator | Callable[[GatewaySettings, str], Authenticator],
) -> AsyncGenerator[SmallGateway]:
    settings = GatewaySettings(require_key=True)
    methods, audience, events = SmallMethods(), NotificationListeners(), MemorySink()
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    judge = gate(settings, bound) if callable(gate) else gate
    app = GatewayApp(methods, judge, settings, events, audience=audience)
    with listening:
        async with app, run_app(app, listening):
            host, port = bound.rsplit(":", 1)
            yield SmallGateway(host, int(port), methods, audience, events, app)


@asynccontextmanager
async def streams(
    gateway: SmallGateway, headers: dict[str, str]
) -> AsyncGenerator[tuple[RawConnection, RawConnection]]:
    """The stream of a session, and a subscription; both have begun."""
    session = await open_session(gateway, headers)
    async with open_raw_connection(gateway) as news, open_raw_connection(gateway) as subscription:
        await news.send(None, session, method="GET")
        assert (await news.head())[0] == 200
        await news.chunk()
        wanted = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await subscription.send(wanted, {**modern_headers("subscriptions/listen"), **headers})
        assert (await subscription.head())[0] == 200
        await subscription.event()
        yield news, subscription


async def read_to_end(line: RawConnection) -> bytes:
    received = b""
    while chunk := await line.chunk():
        received += chunk
    return received


@proves("G10")
async def test_who_is_let_in_no_more_hears_no_more() -> None:
    gate = ClosingGate()
    async with open_gateway_behind(gate) as gateway, streams(gateway, {}) as both:
        gateway.audience.publish(CHANGED, {})
        with anyio.fail_after(PATIENCE):
            assert [(await line.event())["method"] for line in both] == [CHANGED] * 2
            gate.denial = AccessDenial(status=401, message="revoked")
            gateway.audience.publish(CHANGED, {})
            ends = [await read_to_end(line) for line in both]
        assert not any(CHANGED.encode() in end for end in ends)
        assert b'"resultType":"complete"' in ends[1]


@proves("G10")
async def test_streams_stay_open_while_keys_cannot_be_checked() -> None:
    gate = ClosingGate()
    async with open_gateway_behind(gate) as gateway, streams(gateway, {}) as both:
        gate.denial = AccessDenial(status=503, message="the store is away")
        gateway.audience.publish(CHANGED, {})
        with anyio.fail_after(PATIENCE):
            assert [(await line.event())["method"] for line in both] == [CHANGED] * 2


@pytest.mark.slow
@proves("G10")
async def test_a_revoked_key_loses_its_streams(tmp_path: Path) -> None:
    async with Store.open(place_empty_store(tmp_path)) as store:
        _, key = await store.keys.add("laptop")

        def gate(settings: GatewaySettings, bound: str) -> Authenticator:
            return build_authenticator(settings, keys=store.keys, events=MemorySink(), bound=bound)

        async with (
            open_gateway_behind(gate) as gateway,
            streams(gateway, {"authorization": f"Bearer {key}"}) as both,
            anyio.create_task_group() as tasks,
        ):

            async def go_on_publishing() -> None:
                while True:
                    gateway.audience.publish(CHANGED, {})
                    await anyio.sleep(0.1)

            await store.keys.revoke("laptop")
            tasks.start_soon(go_on_publishing)
            with anyio.fail_after(PATIENCE):
                for line in both:
                    await read_to_end(line)
            tasks.cancel_scope.cancel()
