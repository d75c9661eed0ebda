"""The audit trail over the API: filtered, taken away, verified."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from fingerpost.events import PinAccepted, ToolQuarantined
from fingerpost.surfaces.api.audit import escape_formula
from tests.kit.api_resources import ServedApiAndGateway, open_api_and_router
from tests.requirements import proves

HOSTILE = '=HYPERLINK("http://eve.example")'


async def tell(api: ServedApiAndGateway, count: int, **more: Any) -> None:
    """Some facts that are audited."""
    await api.router.store.journal.append(
        *(
            PinAccepted(tool=f"files/t{n}", fingerprint=f"{n:02}", accepted_by="Ünal", **more)
            for n in range(count)
        )
    )


@proves("I11")
async def test_the_trail_is_filtered_and_read_page_by_page(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        await tell(api, 3)
        await tell(api, 2, packet_id="pkt_1")
        await api.router.store.journal.append(ToolQuarantined(tool="files/100%", pinned="a", seen="b"))
        everything = await api.ok("/api/audit")
        assert [entry["seq"] for entry in everything["items"]] == [6, 5, 4, 3, 2, 1]
        newest = everything["items"][0]
        assert (newest["kind"], newest["data"]["tool"]) == ("tool_quarantined", "files/100%")
        assert newest["summary"] == "files/100%: definition changed, a → b" and len(newest["hash"]) == 64

        async def seqs(**query: Any) -> list[int]:
            return [entry["seq"] for entry in (await api.ok("/api/audit", params=query))["items"]]

        assert await seqs(kind="pin_accepted", packet_id="pkt_1") == [5, 4]
        assert await seqs(text="FILES/T1") == [5, 2]
        assert await seqs(text="Ünal") == [5, 4, 3, 2, 1]
        assert await seqs(text="100%") == [6] and await seqs(text="1_0") == []
        assert await seqs(since=newest["at"]) == [6]
        assert await seqs(until=newest["at"]) == [5, 4, 3, 2, 1]
        first = await api.ok("/api/audit?limit=4")
        rest = await api.ok("/api/audit", params={"limit": 4, "before": first["next"]})
        assert [entry["seq"] for entry in rest["items"]] == [2, 1] and rest["next"] is None
        await api.problem(400, "/api/audit?since=yesterday")
        await api.problem(400, "/api/audit?since=2026-01-01T00:00:00")  # where?


@proves("I11")
async def test_the_trail_is_taken_away_as_lines_of_json_and_as_a_table_without_formulas(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        await tell(api, 3)
        await api.router.store.journal.append(PinAccepted(tool=HOSTILE, fingerprint="f", accepted_by="eve"))
        answer = await api.get("/api/audit/export?format=ndjson")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        assert "attachment" in answer.headers["content-disposition"]
        lines = [json.loads(line) for line in answer.text.splitlines()]
        kept = await api.router.store.audit.list_entries()
        assert [(line["seq"], line["hash"]) for line in lines] == [
            (entry.seq, entry.hash) for entry in reversed(kept)
        ]
        assert json.loads(lines[-1]["payload"])["event"]["tool"] == HOSTILE

        answer = await api.get("/api/audit/export?format=csv&text=files/t1")
        rows = list(csv.reader(io.StringIO(answer.text)))
        assert len(rows) == 2 and rows[0][:3] == ["seq", "at", "kind"] and rows[1][0] == "2"
        answer = await api.get("/api/audit/export", params={"format": "csv", "text": "HYPERLINK"})
        (row,) = list(csv.reader(io.StringIO(answer.text)))[1:]
        assert row[5].startswith("'=HYPERLINK")  # its summary begins with the name
        await api.problem(400, "/api/audit/export?format=xlsx")


async def test_a_long_trail_comes_in_pieces_as_it_was_when_it_was_asked_for(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        await tell(api, 25)
        sizes: list[int] = []
        async for chunk in api.router.store.audit.iterate_chunks(size=10):
            sizes.append(len(chunk))
            await tell(api, 1)  # written meanwhile: not among them
        assert sizes == [10, 10, 5]


@pytest.mark.slow
@proves("I11")
async def test_of_many_exports_at_once_some_are_refused_and_who_leaves_makes_room(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        long = "x" * 100_000  # more than the lines between us hold
        await api.router.store.journal.append(
            *(PinAccepted(tool=f"t{n}", fingerprint=long, accepted_by="ada") for n in range(200))
        )
        path = "/api/audit/export"
        async with api.client.stream("GET", path) as one, api.client.stream("GET", path) as two:
            assert one.status_code == two.status_code == 200
            refused = await api.problem(503, path)
            assert "exports are running" in refused["detail"]

        async def goes() -> bool:
            async with api.client.stream("GET", f"{path}?text=t199") as again:
                return again.status_code == 200

        with anyio.fail_after(30):
            while not await goes():  # noqa: ASYNC110 - nothing tells when there is room again
                await anyio.sleep(0.01)


@given(cell=st.text(max_size=12))
@given_settings(max_examples=50)
def test_no_cell_is_a_formula_and_none_is_changed_otherwise(cell: str):
    made = escape_formula(cell)
    assert not made.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert made in (cell, f"'{cell}")


@proves("I11")
async def test_the_chain_is_verified_one_at_a_time_and_tampering_is_shown(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        await tell(api, 3)
        report = await api.ok("/api/audit/verify", post=True)
        assert (report["intact"], report["rows"], report["first_bad"]) == (True, 3, None)
        statuses: list[int] = []

        async def verify() -> None:
            statuses.append((await api.post("/api/audit/verify")).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(verify)
        assert 200 in statuses and set(statuses) <= {200, 409}

        with sqlite3.connect(tmp_path / "store.db") as spoiling:
            spoiling.execute("UPDATE audit SET payload = 'nonsense' WHERE seq = 2")
        spoiling.close()
        report = await api.ok("/api/audit/verify", post=True)
        assert (report["intact"], report["first_bad"]) == (False, 2)
        shown = {entry["seq"]: entry for entry in (await api.ok("/api/audit"))["items"]}
        assert shown[2]["summary"] == "unreadable" and shown[1]["data"]["tool"] == "files/t0"


@proves("H30")
async def test_the_size_of_the_store_and_what_would_be_pruned_are_shown(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        await tell(api, 3)
        before = await api.ok("/api/store")
        assert before["bytes"] > 0 and before["limits"] == {
            "keep_days": 30.0,
            "audit_days": 365.0,
            "max_bytes": 10 * 2**30,
        }
        trail = next(table for table in before["tables"] if table["name"] == "audit")
        assert (trail["rows"], trail["prunable"]) == (3, 0) and trail["oldest"] is not None
        with sqlite3.connect(tmp_path / "store.db") as store:
            store.execute("UPDATE audit SET at = at - 366 * 86400 * 1000000 WHERE seq < 3")
        store.close()
        trail = next(table for table in (await api.ok("/api/store"))["tables"] if table["name"] == "audit")
        assert trail["prunable"] == 2
