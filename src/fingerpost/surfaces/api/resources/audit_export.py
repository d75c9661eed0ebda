"""The audit trail as a file: written to the client piece by piece, never held as a whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Literal

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.events import decode
from fingerpost.records.codec import to_json
from fingerpost.store import AuditEntry
from fingerpost.surfaces.api.operation import StreamingResponse
from fingerpost.surfaces.web.asgi import Header, Receive, Send
from fingerpost.surfaces.web.hearing import run_while_connected

ExportFormat = Literal["ndjson", "csv"]
EXPORT_MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
COLUMNS: Final = ("seq", "at", "kind", "packet_id", "event_id", "summary", "payload", "hash")
STALL_TIMEOUT_S: Final = 60.0  # a client that takes nothing for so long is gone, though it does not say so
# A table calculation would take what begins so for a formula.
_FORMULA_PREFIXES: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def stream_export(
    chunks: AsyncGenerator[list[AuditEntry]],
    file_format: ExportFormat,
    *,
    on_change: Callable[[Literal[1, -1]], None],
) -> StreamingResponse:
    """The entries as a file of this form. `held` is told when it begins and when it is over."""

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
    first = await anext(chunks, None)  # what is wrong with the store is told before the answer begins
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
    """The cell so that no table calculation takes it for a formula."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA_PREFIXES) else cell


def _get_summary(entry: AuditEntry) -> str:
    try:
        return decode(entry.payload).summary()
    except ValueError:
        return json.dumps("unreadable")
