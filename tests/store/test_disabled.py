from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from sqlalchemy import create_engine

from fingerpost.events import PinAccepted
from fingerpost.records import DisabledEntry, DisabledKind
from fingerpost.store import AuditQuery
from fingerpost.store.database import resolve_location
from fingerpost.store.schema import MIGRATION_STEPS, migrate
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore
from tests.requirements import proves

TOOL = DisabledEntry(what=DisabledKind.TOOL, name="odd\x00name/\ud800", by="ada", at=NOON, reason="it leaks")


@proves("I7")
async def test_what_is_off_is_off_for_every_process_and_after_a_restart(open_store: OpenStore) -> None:
    server = DisabledEntry(
        what=DisabledKind.SERVER, name=TOOL.name, by="ada", at=NOON
    )  # a server may be called the same
    async with open_store() as one, open_store() as two:
        assert await one.disabled.disable(TOOL)
        assert not await two.disabled.disable(replace(TOOL, by="eve"))
        assert await two.disabled.disable(server)
        assert await one.disabled.list_all() == (server, TOOL)
    async with open_store() as store:
        assert await store.disabled.enable(DisabledKind.TOOL, TOOL.name)
        assert not await store.disabled.enable(DisabledKind.TOOL, TOOL.name)
        assert await store.disabled.list_all() == (server,)


async def test_of_many_who_switch_at_once_one_did_it(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as two:
        did: list[bool] = []

        async def close(store: int) -> None:
            did.append(await (one, two)[store % 2].disabled.disable(replace(TOOL, by=f"p{store}")))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(close, number)
        assert sorted(did) == [False] * 5 + [True]


@pytest.fixture
def older_database(url: str, tmp_path: Path) -> None:
    """As a Fingerpost that could not switch anything off left it."""
    (tmp_path / "store").mkdir()
    engine = create_engine(resolve_location(url).url)
    with closing(engine.connect()) as connection, connection.begin():
        assert migrate(connection, MIGRATION_STEPS[:4]) == 4
    engine.dispose()


@proves("H7")
@pytest.mark.usefixtures("older_database")
async def test_an_older_database_gets_a_place_for_them_and_for_evals(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.disabled.disable(TOOL)
        await store.evals.add("naïve", {"figures": {"recall@5": {"value": None}}})
        (kept,) = await store.evals.list_newest()
        assert (kept.name, kept.report) == ("naïve", {"figures": {"recall@5": {"value": None}}})


@proves("I11")
async def test_the_trail_is_filtered_alike_in_both_databases(open_store: OpenStore) -> None:
    names = ("files/Read", 'say "hi"\n', "100%", "Ünal", "back\\slash")
    async with open_store() as store:
        facts = [
            PinAccepted(tool=name, fingerprint="f", accepted_by="ada", packet_id=f"pkt_{name}")
            for name in names
        ]
        await store.journal.append(*facts)

        async def seqs(**wanted: object) -> list[int]:
            query = AuditQuery(**wanted)  # pyright: ignore[reportArgumentType] - each a part of it
            return [entry.seq for entry in await store.audit.list_entries(query)]

        for number, name in enumerate(names, start=1):
            assert await seqs(text=name) == [number]
            assert await seqs(packet_id=f"pkt_{name}") == [number]
        assert await seqs(text="files/read") == [1] and await seqs(text="0_") == []
        assert await seqs(text="\x00\ud800") == [] and await seqs(kind="no\x00ne") == []
        assert await seqs(kind="pin_accepted", before=3) == [2, 1]
        assert await seqs(since=facts[-1].at) == [5]
        assert await seqs(until=facts[1].at) == [1]
        chunks = [[entry.seq for entry in chunk] async for chunk in store.audit.iterate_chunks(size=2)]
        assert chunks == [[1, 2], [3, 4], [5]]
