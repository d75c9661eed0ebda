"""The audit trail: pages, export as a file, verification of its hash chain."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import AwareDatetime, Field

from fingerpost.events import decode
from fingerpost.frozen import frozen
from fingerpost.records import Right
from fingerpost.records.codec import to_json
from fingerpost.router import Router
from fingerpost.store import AuditEntry, AuditQuery, AuditReport
from fingerpost.surfaces.api.operation import (
    MAX_SEARCH_LENGTH,
    ApiOperation,
    ApiProblem,
    ApiRequest,
    PageLimit,
    RowNumber,
    StreamingResponse,
)
from fingerpost.surfaces.api.streams import EventView
from fingerpost.surfaces.api.visibility import check_unscoped
from fingerpost.surfaces.http.asgi import Header, Receive, Send, run_while_connected

ExportFormat = Literal["ndjson", "csv"]
EXPORT_MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
COLUMNS: Final = ("seq", "at", "kind", "packet_id", "event_id", "summary", "payload", "hash")
STALL_TIMEOUT_S: Final = 60.0  # a client that reads nothing for so long counts as disconnected
# Spreadsheets treat cells with these prefixes as formulas.
_FORMULA_PREFIXES: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def stream_export(
    chunks: AsyncGenerator[list[AuditEntry]],
    file_format: ExportFormat,
    *,
    on_change: Callable[[Literal[1, -1]], None],
) -> StreamingResponse:
    """Stream the entries as a file. `on_change` is called with 1 at the start and -1 at the end."""

    async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
        on_change(1)
        try:
            async with aclosing(chunks):
                await _send_all(chunks, file_format, receive, send, headers)
        finally:
            on_change(-1)

    return StreamingResponse(run=run)


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
    named: tuple[Header, ...] = (
        (b"content-type", kind.encode()),
        (b"content-disposition", name.encode()),
    )
    await send({"type": "http.response.start", "status": 200, "headers": [*named, *headers]})

    async def write(_: TaskGroup) -> None:
        await _send_body(send, _build_header(file_format))
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


def _build_header(file_format: ExportFormat) -> bytes:
    return _format_rows([COLUMNS]) if file_format == "csv" else b""


def _format_entries(file_format: ExportFormat, entries: Sequence[AuditEntry]) -> bytes:
    if file_format == "ndjson":
        return b"".join(to_json(entry) + b"\n" for entry in entries)
    return _format_rows([_get_cells(entry) for entry in entries])


def _format_rows(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="replace")


def _get_cells(entry: AuditEntry) -> tuple[str, ...]:
    values = (
        str(entry.seq),
        entry.at.isoformat(),
        entry.kind,
        entry.packet_id or "",
        entry.event_id,
        _get_summary(entry),
        entry.payload,
        entry.hash,
    )
    return tuple(escape_formula(value) for value in values)


def escape_formula(cell: str) -> str:
    """Escape a cell so that no spreadsheet treats it as a formula."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA_PREFIXES) else cell


def _get_summary(entry: AuditEntry) -> str:
    try:
        return decode(entry.payload).summary()
    except ValueError:
        return json.dumps("unreadable")


AUDIT_TAG: Final = "audit"
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
    """An event of the audit trail. `hash` covers it and all earlier entries."""

    hash: str


@frozen
class TrailPage:
    """One page of audit entries, newest first."""

    items: tuple[TrailEntry, ...]
    next: int | None = None


def build_audit_operations(router: Router) -> tuple[ApiOperation, ...]:
    operations = AuditOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/audit",
            name="list_audit",
            summary="What was decided and done, newest first",
            right=Right.WATCH,
            answer=operations.list_entries,
            query=TrailQuery,
            returns=TrailPage,
            tag=AUDIT_TAG,
        ),
        ApiOperation(
            method="GET",
            path="/api/audit/export",
            name="export_audit",
            summary="All of it as lines of JSON or as CSV, oldest first",
            right=Right.WATCH,
            answer=operations.export_entries,
            query=ExportQuery,
            returns=str,
            media=EXPORT_MEDIA_TYPES["ndjson"],
            other_media=(EXPORT_MEDIA_TYPES["csv"],),
            problems=(503,),
            tag=AUDIT_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/audit/verify",
            name="verify_audit",
            summary="Follow the chain from its first entry; it takes a while where the trail is long",
            right=Right.WATCH,
            answer=operations.verify_chain,
            returns=AuditReport,
            problems=(409,),
            tag=AUDIT_TAG,
        ),
    )


class AuditOperations:
    """The operations about the audit trail. One instance serves the whole API and limits concurrent
    exports.
    """

    def __init__(self, router: Router) -> None:
        self._audit = router.store.audit
        self._journal = router.store.journal
        self._exports = 0
        self._verifying = False

    async def list_entries(self, request: ApiRequest) -> TrailPage:
        check_unscoped(request.principal)
        query: TrailQuery = request.query
        found = await self._audit.list_entries(
            _build_audit_query(query), limit=query.limit + 1, before=query.before
        )
        entries = await anyio.to_thread.run_sync(_build_entries, found[: query.limit])
        return TrailPage(items=entries, next=entries[-1].seq if len(found) > query.limit else None)

    async def export_entries(self, request: ApiRequest) -> StreamingResponse:
        check_unscoped(request.principal)
        query: ExportQuery = request.query
        if self._exports >= MAX_EXPORTS:
            detail = f"{MAX_EXPORTS} exports are under way. Try again when one is over."
            raise ApiProblem(503, "Too many exports at once", detail)
        chunks = self._audit.iterate_chunks(_build_audit_query(query), size=EXPORT_CHUNK)
        return stream_export(chunks, query.format, on_change=self._count_export)

    def _count_export(self, change: Literal[1, -1]) -> None:
        self._exports += change

    async def verify_chain(self, request: ApiRequest) -> AuditReport:
        if self._verifying:
            detail = "A verification is already running. Its result goes to the first caller."
            raise ApiProblem(409, "One verification at a time", detail)
        self._verifying = True
        try:
            await self._journal.flush()  # include the latest events
            return await self._audit.verify()
        finally:
            self._verifying = False


def _build_audit_query(query: _AuditFilter) -> AuditQuery:
    return AuditQuery(
        kind=query.kind,
        packet_id=query.packet_id,
        text=query.text,
        since=query.since,
        until=query.until,
    )


def _build_entries(entries: Sequence[AuditEntry]) -> tuple[TrailEntry, ...]:
    return tuple(map(_build_entry, entries))


def _build_entry(entry: AuditEntry) -> TrailEntry:
    try:
        view = EventView.from_event(decode(entry.payload), entry.seq)
    except ValueError:  # the database was edited: verification reports it, other entries are still shown
        view = EventView(
            seq=entry.seq,
            event_id=entry.event_id,
            kind=entry.kind,
            at=entry.at,
            packet_id=entry.packet_id,
            summary="unreadable",
            data={"unreadable": str(entry.payload)[:200]},
        )
    return TrailEntry(
        seq=view.seq,
        event_id=view.event_id,
        kind=view.kind,
        at=view.at,
        packet_id=view.packet_id,
        summary=view.summary,
        data=view.data,
        hash=entry.hash,
    )
