"""Changed definitions over the API: seen as a difference, accepted as what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.surfaces.api.resources.changes import difference
from fingerpost.testing import tool_server
from tests.api.resources_kit import both, by_key, reading, until
from tests.requirements import proves


@proves("I7", "I11")
async def test_a_changed_definition_is_accepted_as_it_was_shown_and_not_as_it_is_since(tmp_path: Path):
    server = tool_server("files", [reading("a"), reading("z")])
    accept = "/api/pins/files/z/accept"
    async with both(tmp_path, server.spec()) as house:
        catalog = house.router.catalog
        await until(lambda: not house.router.catalog.quarantined)
        await server.replace([reading("a"), reading("z", "Another text")])
        await until(lambda: bool(catalog.quarantined))
        pins = await house.ok("/api/pins")
        assert [(pin["key"], pin["state"]) for pin in pins["items"]] == [
            ("files/z", "quarantined"),
            ("files/a", "same"),
        ]
        first = await house.ok("/api/pins?limit=1")
        rest = await house.ok("/api/pins", params={"limit": 1, "before": first["next"]})
        assert list(by_key(rest)) == ["files/a"] and rest["next"] is None
        shown = by_key(first)["files/z"]["change"]
        assert shown["before"]["description"] == "Read z" and shown["after"]["description"] == "Another text"

        await server.replace([reading("a"), reading("z", "A third text")])
        await until(lambda: catalog.quarantined[0].card.description == "A third text")
        told = await house.problem(409, accept, {"fingerprint": shown["seen"]})
        assert house.router.tools.get("files/z") is None
        pin = await house.ok(accept, {"fingerprint": told["fingerprint"]})
        assert (pin["state"], pin["accepted_by"]) == ("same", "local")
        card = house.router.tools.get("files/z")
        assert card is not None and card.description == "A third text"
        await house.problem(404, accept, {"fingerprint": told["fingerprint"]})
        assert (await house.ok("/api/pins?state=quarantined"))["items"] == []
        audit = await house.ok("/api/audit?kind=pin_accepted")
        assert [entry["data"]["accepted_by"] for entry in audit["items"]] == ["local"]


@pytest.mark.parametrize("count", [1, 3000])
def test_a_difference_leaves_nothing_out_and_shows_what_cannot_be_seen(count: int):
    before = {"name": "t", "inputSchema": {f"p{n}": n for n in range(count)}}
    after = {**before, "description": "harmless\u202eevil"}
    lines = difference(before, after)
    assert any(line.startswith("+") and "harmless\\u202eevil" in line for line in lines)
    assert difference(before, before) == ()
