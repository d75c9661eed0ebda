"""The console's files: from memory, of the right type, and refused under other host names."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fingerpost.surfaces.console.app import STATIC_FOLDER
from tests.kit.api import ServedApi, open_served_api
from tests.requirements import proves


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    async with open_served_api(tmp_path) as made:
        yield made


@proves("V8")
async def test_every_file_is_served_and_nothing_from_elsewhere_may_load(api: ServedApi) -> None:
    page = await api.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert (await api.get("/console/")).content == page.content
    for path in (path for path in STATIC_FOLDER.rglob("*") if path.suffix in {".js", ".css", ".svg"}):
        answer = await api.get(f"/console/{path.relative_to(STATIC_FOLDER).as_posix()}")
        assert answer.content == path.read_bytes()
        assert answer.headers["x-content-type-options"] == "nosniff"
        kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}[path.suffix]
        assert answer.headers["content-type"].startswith(kind)


async def test_a_page_without_an_icon_of_its_own_has_that_of_the_console(api: ServedApi) -> None:
    icon = await api.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.content == (STATIC_FOLDER / "logo.svg").read_bytes()


async def test_what_a_browser_has_is_not_sent_again(api: ServedApi) -> None:
    first = await api.get("/")
    again = await api.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await api.client.head("/")
    assert (head.status_code, head.content) == (200, b"")


async def test_files_are_kept_for_good_until_there_is_another_version(api: ServedApi) -> None:
    page = await api.get("/")
    assert page.headers["cache-control"] == "no-cache"
    named = re.findall(r'"(/console/[^"]+)"', page.text)
    assert len(named) == 6
    for path in named:
        kept = await api.get(path)
        assert kept.headers["cache-control"] == "max-age=31536000, immutable"
        plain, earlier = (re.sub("/v[0-9a-f]{16}/", other, path) for other in ("/", f"/v{'0' * 16}/"))
        for other in (plain, earlier):  # a page of an earlier release is still open
            found = await api.get(other)
            assert found.content == kept.content
            assert found.headers["cache-control"] == "no-cache"
    version = named[0].removesuffix("logo.svg")
    assert (await api.get(f"{version}nothing.js")).headers["cache-control"] == "no-cache"
    assert (await api.get(version)).status_code == 404


@proves("V8")
async def test_other_names_and_other_paths_get_nothing(api: ServedApi) -> None:
    assert (await api.get("/", headers={"host": "evil.example"})).status_code == 403
    assert (await api.client.post("/")).status_code == 405
    for path in ("/console/nothing.js", "/console/../app.py", "/console/%2e%2e/files.py", "/console/vendor"):
        lost = await api.get(path)
        assert lost.status_code == 404, path
        assert 'href="/"' in lost.text
