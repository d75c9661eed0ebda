"""What was made is kept for whom it was made, and can be fetched wherever they are."""

from __future__ import annotations

import base64
from pathlib import Path

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from fingerpost.builtin import BuiltinHost, make_server
from fingerpost.records import Right
from fingerpost.settings import Settings
from tests.kit.api_resources import open_api_of
from tests.kit.assets import TOOL, handle_of, maker, place_order
from tests.kit.command_line import CommandLine
from tests.requirements import proves

CHART = {"kind": "chart", "title": "Fruit", "data": {"apples": 3, "pears": 5}}


@pytest.mark.slow
@proves("B3", "U13")
async def test_over_http_it_is_a_file_for_its_owner_and_those_who_watch(settings: Settings):
    async with maker(settings) as router, open_api_of(router) as api:
        handle = handle_of(await place_order(router, **CHART))
        dana, other = await api.key("dana", Right.USE), await api.key("eve", Right.USE)
        watcher = await api.key("joe", Right.WATCH)
        for headers in (dana, watcher):
            answer = await api.get(f"/api/assets/{handle}", headers=headers)
            assert answer.status_code == 200, answer.text
            _check_file(answer)
        assert (await api.get(f"/api/assets/{handle}", headers=other)).status_code == 404
        assert (await api.get("/api/assets/res_nothing", headers=dana)).status_code == 404
        long = await router.calls.results.keep("call", {"content": [{"type": "text", "text": "words"}]})
        assert (await api.get(f"/api/assets/{long}", headers=watcher)).status_code == 404


def _check_file(answer: httpx2.Response) -> None:
    headers = answer.headers
    assert headers["content-type"] == "image/svg+xml"
    assert headers["content-disposition"] == 'attachment; filename="fruit.svg"'
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert answer.content.startswith(b"<svg ")


@proves("U13")
async def test_what_a_server_calls_a_page_is_given_as_bytes(settings: Settings):
    resource = {
        "uri": "x://y/a.html",
        "mimeType": "text/html",
        "blob": base64.b64encode(b"<script>").decode(),
    }
    async with maker(settings) as router, open_api_of(router) as api:
        kept = await router.calls.results.keep("c", {"content": [{"type": "resource", "resource": resource}]})
        answer = await api.get(f"/api/assets/{kept}")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.slow
@proves("U13")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_mcp_client_reads_it_by_its_link(settings: Settings, mode: str):
    async with (
        maker(settings) as router,
        open_api_of(router) as api,
        Client(f"{api.address}/mcp/all", mode=mode) as client,
    ):
        result = await client.call_tool("specialists__use_asset_service", dict(CHART))
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert (link.mime_type, link.name) == ("image/svg+xml", "fruit.svg")
        read = await client.read_resource(str(link.uri))
        (content,) = read.contents
        assert isinstance(content, types.BlobResourceContents)
        assert base64.b64decode(content.blob).startswith(b"<svg ") and content.mime_type == "image/svg+xml"
        theirs = handle_of(await place_order(router, **CHART))  # dana's, not this client's
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource(f"fingerpost://results/{theirs}/fruit.svg")


@pytest.mark.process
@proves("B3", "U13")
def test_the_command_makes_and_saves_one(tmp_path: Path):
    person = CommandLine(tmp_path)
    person.writes("fingerpost.toml", '[builtin]\nenabled = ["specialists"]\n')
    asked = person.runs("ask", "draw a bar chart of fruit: apples 3, pears 5", "--config", "fingerpost.toml")
    assert asked.returncode == 0, asked.stderr
    handle = asked.stdout.partition("kept as ")[2].partition(".")[0]
    shown = person.runs("result", handle)
    assert "image/svg+xml" in shown.stdout and "stored separately" in shown.stderr
    saved = person.runs("result", handle, "--out", "fruit.svg")
    assert saved.returncode == 0, saved.stderr
    assert (tmp_path / "fruit.svg").read_bytes().startswith(b"<svg ")


@pytest.mark.process
@proves("U13")
async def test_alone_it_keeps_in_the_store_of_the_settings(settings: Settings, tmp_path: Path):
    own = make_server("specialists", BuiltinHost(settings=settings, folder=tmp_path))
    async with Client(own.mcp) as client:
        result = await client.call_tool("use_asset_service", dict(CHART))
    (text,) = [block.text for block in result.content if isinstance(block, types.TextContent)]
    handle = text.partition("kept as ")[2].partition(".")[0]
    saved = await anyio.to_thread.run_sync(
        lambda: CommandLine(tmp_path).runs("result", handle, "--out", str(tmp_path / "x.svg"))
    )
    assert saved.returncode == 0, saved.stderr
    assert (tmp_path / "x.svg").read_bytes().startswith(b"<svg ")


@pytest.mark.slow
async def test_its_result_is_short_and_never_holds_the_thing_itself(settings: Settings):
    async with maker(settings) as router:
        outcome = await router.call(TOOL, {"kind": "audio", "prompt": "a tone of 440 Hz for 60 seconds"})
    assert outcome.success and len(outcome.content) < 600 and "5,292,044 bytes" in outcome.content
