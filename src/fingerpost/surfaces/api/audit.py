"""The audit trail: pages, export as a file, verification of its hash chain; the size of the store."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import AwareDatetime, Field

from fingerpost.events import decode
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import Right
from fingerpost.records.codec import to_json
from fingerpost.router import Router
from fingerpost.store import AuditEntry, AuditQuery, AuditReport, RetentionLimits, StoreStatus
from fingerpost.surfaces.api.operation import (
    MAX_SEARCH_LENGTH,
    ApiProblem,
    ApiRequest,
    OperationGroup,
    PageLimit,
    RowNumber,
    StreamingResponse,
    declare_operation,
    split_page,
)
from fingerpost.surfaces.api.streams import EventView
from fingerpost.surfaces.http.asgi import Header, Receive, Send, run_while_connected

ExportFormat = Literal["ndjson", "csv"]
EXPORT_MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
COLUMNS: Final = ("seq", "at", "kind", "packet_id", "event_id", "summary", "payload", "hash")
STALL_TIMEOUT_S: Final = 60.0  # a client that reads nothing for so long counts as disconnected
# Spreadsheets treat cells with these prefixes as formulas.
_FORMULA_PREFIXES: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


async def _send_all(
    chunks: AsyncGenerator[list[AuditEntry]],
    file_format: ExportFormat,
    receive: Receive,
    send: Send,
    headers: tuple[Header, ...],
) -> None:
    first = await anext(chunks, None)  # before the response starts, so that a store error can be reported
    kind = f"{EXPORT_MEDIA_TYPES[file_format]}; charset=utf-8"
    name = f'attachment; filename="fingerpost-audit.{file_format}"'
    named: tuple[Header, ...] = ((b"content-type", kind.encode()), (b"content-disposition", name.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": [*named, *headers]})

    async def write(_: TaskGroup) -> None:
        await _send_body(send, _format_rows([COLUMNS]) if file_format == "csv" else b"")
        if first is not None:
            await _send_body(send, await anyio.to_thread.run_sync(_format_entries, file_format, first))
        async for chunk in chunks:
            await _send_body(send, await anyio.to_thread.run_sync(_format_entries, file_format, chunk))
        await send({"type": "http.response.body", "body": b""})

    await run_while_connected(receive, write)


async def _send_body(send: Send, body: bytes) -> None:
    if body:
        with anyio.fail_after(STALL_TIMEOUT_S):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def _format_entries(file_format: ExportFormat, entries: Sequence[AuditEntry]) -> bytes:
    if file_format == "ndjson":
        return b"".join(to_json(entry) + b"\n" for entry in entries)
    return _format_rows([_get_cells(entry) for entry in entries])


def _format_rows(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="replace")


def _get_cells(entry: AuditEntry) -> tuple[str, ...]:
    try:
        summary = decode(entry.payload).summary()
    except ValueError:
        summary = json.dumps("unreadable")
    values = {name: getattr(entry, name, None) for name in COLUMNS}
    values |= {"at": entry.at.isoformat(), "summary": summary}
    return tuple(escape_formula("" if value is None else str(value)) for value in values.values())


def escape_formula(cell: str) -> str:
    """Escape a cell so that no spreadsheet treats it as a formula."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA_PREFIXES) else cell


MAX_EXPORTS: Final = 2  # concurrent
EXPORT_CHUNK: Final = 200  # entries in memory

_Timestamp = Annotated[AwareDatetime, Field(description="ISO 8601 with a time zone")]
_Kind = Annotated[str, Field(max_length=100, description="Such as `tool_selected`")]
_SearchPhrase = Annotated[
    str, Field(max_length=MAX_SEARCH_LENGTH, description="Occurs in the event as it is written")
]


@frozen
class _AuditFilter:
    """Filter of audit entries. Empty fields do not filter."""

    kind: _Kind | None = None
    packet_id: Annotated[str, Field(max_length=200)] | None = None
    text: _SearchPhrase = ""
    since: _Timestamp | None = None
    until: _Timestamp | None = None


@frozen
class TrailQuery(_AuditFilter):
    """Filter and page of audit entries."""

    limit: PageLimit = 100
    before: RowNumber | None = None


@frozen
class ExportQuery(_AuditFilter):
    """Filter and file format of an export. Entries are exported oldest first."""

    format: ExportFormat = "ndjson"


@frozen
class TrailEntry(EventView):
    """An event of the audit trail. `hash` covers its row and all earlier ones."""

    hash: str


@frozen
class TrailPage:
    """One page of the audit trail, newest first. `limit` counts rows; a row has an entry for each of its
    events.
    """

    items: tuple[TrailEntry, ...]
    next: int | None = None


class AuditOperations(OperationGroup):
    """The operations about the audit trail and the store, with a limit on concurrent exports."""

    tag = "audit"

    def __init__(self, router: Router) -> None:
        self._audit = router.store.audit
        self._journal = router.store.journal
        self._retention = router.store.retention
        self._limits = RetentionLimits.from_settings(router.settings)
        self._measuring = anyio.Lock()  # all rows are counted
        self._exports = 0
        self._verifying = False

    @declare_operation("GET", "/api/audit", right=Right.WATCH, covers_all=True)
    async def list_audit(self, request: ApiRequest, query: TrailQuery) -> TrailPage:
        """What was decided and done, newest first."""
        found = await self._audit.list_entries(
            copy_fields(AuditQuery, query), limit=query.limit + 1, before=query.before
        )
        rows, last = split_page(list(dict.fromkeys(entry.seq for entry in found)), query.limit)
        page = [entry for entry in found if entry.seq in rows]
        entries = await anyio.to_thread.run_sync(lambda: tuple(map(_build_entry, page)))
        return TrailPage(items=entries, next=last)

    @declare_operation(
        "GET",
        "/api/audit/export",
        right=Right.WATCH,
        covers_all=True,
        problems=(503,),
        returns=str,
        media=EXPORT_MEDIA_TYPES["ndjson"],
        other_media=(EXPORT_MEDIA_TYPES["csv"],),
    )
    async def export_audit(self, request: ApiRequest, query: ExportQuery) -> StreamingResponse:
        """Everything as JSON Lines or CSV, oldest first."""
        if self._exports >= MAX_EXPORTS:
            detail = f"{MAX_EXPORTS} exports are running. Try again when one has finished."
            raise ApiProblem(503, "Too many exports at once", detail)
        chunks = self._audit.iterate_chunks(copy_fields(AuditQuery, query), size=EXPORT_CHUNK)

        async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
            self._exports += 1
            try:
                async with aclosing(chunks):
                    await _send_all(chunks, query.format, receive, send, headers)
            finally:
                self._exports -= 1

        return StreamingResponse(run=run)

    @declare_operation("POST", "/api/audit/verify", right=Right.WATCH, problems=(409,))
    async def verify_audit(self, request: ApiRequest) -> AuditReport:
        """Verify the whole chain; this takes a while for a long trail."""
        if self._verifying:
            detail = "A verification is already running; its caller gets the result."
            raise ApiProblem(409, "One verification at a time", detail)
        self._verifying = True
        try:
            await self._journal.flush()  # include the latest events
            return await self._audit.verify()
        finally:
            self._verifying = False

    @declare_operation("GET", "/api/store", right=Right.WATCH, covers_all=True)
    async def get_store_status(self, request: ApiRequest) -> StoreStatus:
        """The size of the store, its rows and oldest entries, and what would be pruned now."""
        async with self._measuring:
            return await self._retention.get_status(self._limits)


def _build_entry(entry: AuditEntry) -> TrailEntry:
    try:
        view = EventView.from_event(decode(entry.payload), entry.seq)
    except ValueError:  # the database was edited: verification reports it, other entries are still shown
        data = {"unreadable": str(entry.payload)[:200]}
        return copy_fields(TrailEntry, entry, summary="unreadable", data=data)
    return copy_fields(TrailEntry, view, hash=entry.hash)
