"""Streams that were opened with a key which opens nothing any more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from fingerpost.events import MemorySink
from fingerpost.records import Principal
from fingerpost.settings.model import GatewaySettings
from fingerpost.store import Store
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.access import AccessDenial, Authenticator, Endpoint
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app
from tests.kit.gateway_client import Line, line_to, modern, modern_headers, open_session
from tests.kit.small_gateway import OpenGate, Place, SmallMethods
from tests.requirements import proves

CHANGED = "notifications/tools/list_changed"
PATIENCE = 30.0  # seconds


class Closing(OpenGate):
    """Lets everybody in until it has a reason not to."""

    denial: AccessDenial | None = None

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        return self.denial or await super().authenticate(headers, endpoint, remote=remote)


@asynccontextmanager
async def gateway_behind(
    gate: Authenticator | Callable[[GatewaySettings, str], Authenticator],
) -> AsyncGenerator[Place]:
    settings = GatewaySettings(require_key=True)
    methods, audience, events = SmallMethods(), NotificationListeners(), MemorySink()
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    judge = gate(settings, bound) if callable(gate) else gate
    app = GatewayApp(methods, judge, settings, events, audience=audience)
    up = anyio.Event()
    with listening:
        async with app, anyio.create_task_group() as tasks:

            async def run() -> None:
                await serve_app(app, listening, on_started=up.set, signals=False)

            tasks.start_soon(run)
            await up.wait()
            host, port = bound.rsplit(":", 1)
            yield Place(host, int(port), methods, audience, events, app)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def streams(place: Place, headers: dict[str, str]) -> AsyncGenerator[tuple[Line, Line]]:
    """The stream of a session, and a subscription; both have begun."""
    session = await open_session(place, headers)
    async with line_to(place) as news, line_to(place) as subscription:
        await news.send(None, session, method="GET")
        assert (await news.head())[0] == 200
        await news.chunk()
        wanted = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await subscription.send(wanted, {**modern_headers("subscriptions/listen"), **headers})
        assert (await subscription.head())[0] == 200
        await subscription.event()
        yield news, subscription


async def heard_to_the_end(line: Line) -> bytes:
    heard = b""
    while chunk := await line.chunk():
        heard += chunk
    return heard


@proves("G10")
async def test_who_is_let_in_no_more_hears_no_more() -> None:
    gate = Closing()
    async with gateway_behind(gate) as place, streams(place, {}) as both:
        place.audience.publish(CHANGED, {})
        with anyio.fail_after(PATIENCE):
            assert [(await line.event())["method"] for line in both] == [CHANGED] * 2
            gate.denial = AccessDenial(status=401, message="revoked")
            place.audience.publish(CHANGED, {})
            ends = [await heard_to_the_end(line) for line in both]
        assert not any(CHANGED.encode() in end for end in ends)
        assert b'"resultType":"complete"' in ends[1]


@proves("G10")
async def test_while_nobody_can_tell_streams_stay_open() -> None:
    gate = Closing()
    async with gateway_behind(gate) as place, streams(place, {}) as both:
        gate.denial = AccessDenial(status=503, message="the store is away")
        place.audience.publish(CHANGED, {})
        with anyio.fail_after(PATIENCE):
            assert [(await line.event())["method"] for line in both] == [CHANGED] * 2


@proves("G10")
async def test_a_revoked_key_loses_its_streams(tmp_path: Path) -> None:
    async with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        _, key = await store.keys.add("laptop")

        def gate(settings: GatewaySettings, bound: str) -> Authenticator:
            return build_authenticator(settings, keys=store.keys, events=MemorySink(), bound=bound)

        async with (
            gateway_behind(gate) as place,
            streams(place, {"authorization": f"Bearer {key}"}) as both,
            anyio.create_task_group() as tasks,
        ):

            async def go_on_publishing() -> None:
                while True:
                    place.audience.publish(CHANGED, {})
                    await anyio.sleep(0.1)

            await store.keys.revoke("laptop")
            tasks.start_soon(go_on_publishing)
            with anyio.fail_after(PATIENCE):
                for line in both:
                    await heard_to_the_end(line)
            tasks.cancel_scope.cancel()
