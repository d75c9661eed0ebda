"""The documentation as a site: built with every link checked, and served under `/docs`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from fingerpost import Router
from fingerpost.surfaces.console import open_docs
from fingerpost.surfaces.http.server import get_address, listen_at
from tests.kit.api import build_local_authenticator
from tests.kit.gateways import run_app
from tests.kit.programs import ROOT
from tests.kit.routers import build_settings
from tests.requirements import proves


def build_site(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@asynccontextmanager
async def serve_site(folder: Path, site: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    with listening:
        async with (
            Router([], settings=build_settings(folder)) as router,
            open_docs(build_local_authenticator(router, bound), folder=site) as docs,
            run_app(docs, listening),
            httpx2.AsyncClient(base_url=f"http://{bound}", timeout=20) as client,
        ):
            yield client


@pytest.mark.process
@proves("H32")
async def test_the_site_is_built_strictly_and_served_without_foreign_hosts(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = build_site(ROOT / "mkdocs.yml", site)
    assert done.returncode == 0, done.stdout + done.stderr
    async with serve_site(tmp_path / "state", site) as client:
        moved = await client.get("/docs")
        assert (moved.status_code, moved.headers["location"]) == (307, "docs/")
        page = await client.get("/docs/")
        assert "Get started" in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        # What a page loads comes from its own folder: it works below any prefix.
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', page.text)
        assert loaded
        for address in loaded:
            assert not re.match(r"\w+:|/", address), address
            assert (await client.get(f"/docs/{address}")).status_code == 200, address
        index = await client.get("/docs/search/search_index.json")
        assert any("approval" in entry["text"] for entry in index.json()["docs"])
        assert (await client.get("/docs/", headers={"host": "evil.example"})).status_code == 403
        for path in ("/docs/nothing.html", "/docs/../app.py", "/docs/%2e%2e/app.py", "/docs/assets"):
            assert (await client.get(path)).status_code == 404, path


@proves("H32")
async def test_where_no_site_was_built_the_page_says_how_to(tmp_path: Path) -> None:
    async with serve_site(tmp_path / "state", tmp_path / "missing") as client:
        page = await client.get("/docs/")
        assert page.status_code == 404
        assert "make docs" in page.text
