"""/metrics and /readyz at a real port, behind the real gate."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fingerpost import Router
from fingerpost.events import EventsDropped
from fingerpost.records import Right
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at
from fingerpost.surfaces.serve import open_operations_app
from fingerpost.telemetry.metrics import PrometheusMetrics
from fingerpost.testing import tool_server
from tests.kit.gateway_client import ask
from tests.kit.gateways import run_app
from tests.kit.routers import build_settings
from tests.kit.small_gateway import Address
from tests.kit.store_samples import eventually
from tests.requirements import proves

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_operations(
    folder: Path, *, metrics: bool = True, **gateway: Any
) -> AsyncGenerator[tuple[Router, Address]]:
    counted = PrometheusMetrics()
    server = tool_server("time", [{"name": "now", "annotations": {"readOnlyHint": True}}])
    chosen = build_settings(folder, gateway=gateway)
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    with listening:
        async with Router([server.spec()], settings=chosen, sinks=[counted]) as router:
            gate = build_authenticator(
                chosen.gateway, keys=router.store.keys, events=router.events, bound=bound
            )
            async with (
                open_operations_app(
                    router, gate, counted if metrics else None, count_streams=lambda: 4
                ) as app,
                run_app(app, listening),
            ):
                host, port = bound.rsplit(":", 1)
                yield router, Address(host, int(port))


@proves("I9")
async def test_ready_once_every_server_has_been_tried(tmp_path: Path) -> None:
    async with open_operations(tmp_path) as (router, address):
        early = await ask(address, method="GET", path="/readyz")
        assert (early.status, early.json["servers"]["trying"]) == (503, 1)
        await router.connect()
        ready = await ask(address, method="GET", path="/readyz")
        assert ready.status == 200
        assert ready.json == {
            "ready": True,
            "store": True,
            "servers": {"of": 1, "up": 1, "asleep": 0, "down": 0, "trying": 0},
            "tools": 1,
        }


@proves("I9")
async def test_not_ready_while_the_store_takes_no_writes(tmp_path: Path) -> None:
    async with open_operations(tmp_path) as (router, address):
        await router.connect()
        file = router.store.location.file
        assert file is not None
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("ALTER TABLE journal RENAME TO lost")
            router.store.journal.emit(EventsDropped(count=1))
            await eventually(lambda: router.store.statistics.refused)
            refused = await ask(address, method="GET", path="/readyz")
            assert (refused.status, refused.json["store"]) == (503, False)
            other.execute("ALTER TABLE lost RENAME TO journal")
        await router.store.journal.flush()
        assert (await ask(address, method="GET", path="/readyz")).status == 200


@proves("I9")
async def test_metrics_of_a_house_on_this_machine(tmp_path: Path) -> None:
    async with open_operations(tmp_path) as (router, address):
        await router.connect()
        await router.call("time/now", {})
        answer = await ask(address, method="GET", path="/metrics")
        assert answer.status == 200
        samples = {
            sample.name: sample
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }
        called = samples["fingerpost_calls_total"]
        assert (called.value, called.labels["tool"]) == (1, "time/now")
        assert samples["fingerpost_server_up"].value == 1
        assert samples["fingerpost_tools"].value == 1
        assert samples["fingerpost_live_streams"].value == 4
        assert (await ask(address, method="POST", path="/metrics")).status == 405
        assert (await ask(address, method="GET", path="/metrics/more")).status == 404
        foreign = {"host": "evil.example"}
        assert (await ask(address, None, foreign, method="GET", path="/metrics")).status == 403


@proves("I9", "I3")
async def test_metrics_of_an_exposed_house_need_the_right_to_watch(tmp_path: Path) -> None:
    async with open_operations(tmp_path, require_key=True) as (router, address):
        _, user = await router.store.keys.add("laptop")
        _, watcher = await router.store.keys.add("prometheus", rights=(Right.WATCH,))
        assert (await ask(address, method="GET", path="/metrics")).status == 401
        for key, status in ((user, 403), (watcher, 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert (await ask(address, None, headers, method="GET", path="/metrics")).status == status
        assert (await ask(address, method="GET", path="/readyz")).status == 503  # no right is needed


async def test_without_metrics_there_is_nothing_at_the_address(tmp_path: Path) -> None:
    async with open_operations(tmp_path, metrics=False) as (_, address):
        assert (await ask(address, method="GET", path="/metrics")).status == 404
