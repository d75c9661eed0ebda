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
from fingerpost.surfaces.api.operation import Streaming
from fingerpost.surfaces.web.asgi import Header, Receive, Send
from fingerpost.surfaces.web.hearing import while_heard

Format = Literal["ndjson", "csv"]
MEDIA: Final[Mapping[Format, str]] = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
COLUMNS: Final = ("seq", "at", "kind", "packet_id", "event_id", "summary", "payload", "hash")
STALLED_S: Final = 60.0  # a client that takes nothing for so long is gone, though it does not say so
# A table calculation would take what begins so for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def exported(
    chunks: AsyncGenerator[list[AuditEntry]], form: Format, *, held: Callable[[Literal[1, -1]], None]
) -> Streaming:
    """The entries as a file of this form. `held` is told when it begins and when it is over."""

    async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
        held(1)
        try:
            async with aclosing(chunks):
                await _send_all(chunks, form, receive, send, headers)
        finally:
            held(-1)

    return Streaming(run=run)


async def _send_all(
    chunks: AsyncGenerator[list[AuditEntry]],
    form: Format,
    receive: Receive,
    send: Send,
    headers: tuple[Header, ...],
) -> None:
    first = await anext(chunks, None)  # what is wrong with the store is told before the answer begins
    kind = f"{MEDIA[form]}; charset=utf-8"
    name = f'attachment; filename="fingerpost-audit.{form}"'
    named: tuple[Header, ...] = (
        (b"content-type", kind.encode()),
        (b"content-disposition", name.encode()),
    )
    await send({"type": "http.response.start", "status": 200, "headers": [*named, *headers]})

    async def write(_: TaskGroup) -> None:
        await _write(send, _head(form))
        if first is not None:
            await _write(send, await anyio.to_thread.run_sync(_written, form, first))
        async for chunk in chunks:
            await _write(send, await anyio.to_thread.run_sync(_written, form, chunk))
        await send({"type": "http.response.body", "body": b""})

    await while_heard(receive, write)


async def _write(send: Send, body: bytes) -> None:
    if body:
        with anyio.fail_after(STALLED_S):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def _head(form: Format) -> bytes:
    return _rows([COLUMNS]) if form == "csv" else b""


def _written(form: Format, entries: Sequence[AuditEntry]) -> bytes:
    if form == "ndjson":
        return b"".join(to_json(entry) + b"\n" for entry in entries)
    return _rows([_cells(entry) for entry in entries])


def _rows(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="replace")


def _cells(entry: AuditEntry) -> tuple[str, ...]:
    values = (
        str(entry.seq),
        entry.at.isoformat(),
        entry.kind,
        entry.packet_id or "",
        entry.event_id,
        _summary(entry),
        entry.payload,
        entry.hash,
    )
    return tuple(harmless(value) for value in values)


def harmless(cell: str) -> str:
    """The cell so that no table calculation takes it for a formula."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA) else cell


def _summary(entry: AuditEntry) -> str:
    try:
        return decode(entry.payload).summary()
    except ValueError:
        return json.dumps("unreadable")
