"""Figures of evals somebody wanted to keep, to be looked at beside later ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import Connection, insert, select

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, utc_now
from fingerpost.store.database import Database
from fingerpost.store.schema import evals
from fingerpost.store.writer import StoreWriter


@frozen
class StoredEval:
    """One report as `fingerpost eval report --json` gives it, under a name."""

    seq: int
    at: datetime
    name: str
    report: JsonObject


class EvalStore:
    """Reports, newest first."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def add(self, name: str, report: JsonObject) -> None:
        """Keep a report. The same name again is the next run of the same thing."""
        text = json.dumps(report, ensure_ascii=True, allow_nan=False, default=dict)
        await self._writer.write(_add_evals, (utc_now(), name, text))

    async def list_newest(self, *, limit: int = 50, before: int | None = None) -> list[StoredEval]:
        """The newest reports, newest first; `before` (a `seq`) goes on from an older one."""
        query = select(evals).order_by(evals.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(evals.c.seq < before)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [
            StoredEval(
                seq=row.seq, at=row.at, name=row.name, report=cast("JsonObject", json.loads(row.report))
            )
            for row in rows
        ]


def _add_evals(connection: Connection, new: Sequence[tuple[datetime, str, str]]) -> list[None]:
    rows = [{"at": at, "name": name, "report": report} for at, name, report in new]
    connection.execute(insert(evals), rows)
    return [None] * len(new)
