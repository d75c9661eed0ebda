"""Where people are sent who want to reach a gateway that listens at every address of its machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from fingerpost import Router
from fingerpost.events import MemorySink
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.surfaces.http.addresses import get_reachable_address, is_every_address
from fingerpost.surfaces.http.authenticator import build_authenticator
from tests.kit.gateways import serve_gateway
from tests.kit.routers import build_settings
from tests.kit.tables import table
from tests.requirements import proves
from tests.surfaces.http.test_tokens import NoKeys

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def gateway(folder: Path, host: str) -> AsyncGenerator[str]:
    """A whole gateway, and the address it announces."""
    chosen = build_settings(folder, gateway={"host": host})
    async with Router([], settings=chosen) as router, serve_gateway(router, host=host) as address:
        yield address


@proves("G11")
async def test_the_address_a_gateway_announces_leads_to_it_and_is_one_of_its_hosts(tmp_path: Path) -> None:
    async with gateway(tmp_path, "0.0.0.0") as address, aiohttp.ClientSession() as http:
        assert not is_every_address(urlsplit(address).hostname or "")
        async with http.get(f"{address}/mcp") as answer:
            assert answer.status == 401  # a key is needed, but the Host is ours: that would be a 403


@table("bound", ["127.0.0.1:8642", "10.0.0.7:80", "[fe80::1]:8642", "tools.lan:1"])
def test_an_address_that_leads_somewhere_stays_as_it_is(bound: str) -> None:
    assert get_reachable_address(bound) == bound


@pytest.mark.parametrize(("bound", "bracket"), [("0.0.0.0:8642", ""), ("[::]:8642", "[")])
def test_every_address_becomes_one_with_the_same_port(bound: str, bracket: str) -> None:
    host, _, port = get_reachable_address(bound).rpartition(":")
    assert port == "8642"
    assert host.startswith(bracket)
    assert not is_every_address(host)


@proves("G10")
def test_who_is_turned_away_is_sent_to_documents_that_can_be_reached() -> None:
    sign_in = SignInSettings(issuer="https://id.example", audience="fingerpost")
    settings = GatewaySettings(host="0.0.0.0", sign_in=sign_in)
    gate = build_authenticator(settings, keys=NoKeys(), events=MemorySink(), bound="0.0.0.0:1")
    resources = {str(document["resource"]) for document in gate.get_public_documents().values()}
    own = f"http://{get_reachable_address('0.0.0.0:1')}/mcp"
    assert resources == {own, f"{own}/route", f"{own}/all"}
