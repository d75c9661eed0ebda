"""The gateway behind nginx, configured as the documentation says."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from benchmarks.gateway.programs import free_port

from fingerpost import Router
from fingerpost.records import Right
from tests.kit.api import Listener
from tests.kit.gateways import PATIENCE_S, build_gateway_settings, serve_gateway
from tests.kit.proxies import NGINX, run_nginx
from tests.requirements import proves

HOST = "tools.example.com"


def write_down(note: str) -> str:
    """Write a note down."""
    return f"{len(note)} characters"


@pytest.mark.process
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
@proves("M3")
async def test_keys_calls_and_streams_pass_through_nginx(tmp_path: Path) -> None:
    gateway = {"mode": "all", "public_url": f"https://{HOST}"}
    async with Router([], settings=build_gateway_settings(tmp_path, gateway=gateway)) as router:
        await router.register(write_down)
        _, key = await router.store.keys.add("laptop", rights=(Right.USE, Right.WATCH))
        async with (
            serve_gateway(router) as direct,
            run_nginx(tmp_path, free_port(), urlsplit(direct).port or 0) as address,
            httpx2.AsyncClient(base_url=address, headers={"host": HOST}, timeout=PATIENCE_S) as http,
        ):
            assert (await http.get("/healthz")).json()["status"] == "ok"
            assert (await http.get("/api/me")).status_code == 401  # not local, although nginx is
            own = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
            async with http.stream("GET", "/api/events?kinds=call_finished", headers=own) as stream:
                assert stream.status_code == 200, await stream.aread()
                events = Listener(stream)
                large = "x" * 3_000_000  # nginx alone takes a million bytes
                body = {"tool": "write_down", "arguments": {"note": large}}
                called = await http.post("/api/call", json=body, headers={"authorization": f"Bearer {key}"})
                assert "3000000 characters" in called.text, called.text[:500]
                event = await events.next()  # while the stream stays open
                assert "write_down" in str(event.data)
