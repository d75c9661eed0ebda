"""The audit trail: read it with filters, take it away, have its chain followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from pydantic import AwareDatetime, Field

from fingerpost.events import decode
from fingerpost.frozen import frozen
from fingerpost.records import Right
from fingerpost.router import Router
from fingerpost.store import AuditEntry, AuditQuery, AuditReport
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Streaming
from fingerpost.surfaces.api.resources.audit_export import MEDIA, Format, exported
from fingerpost.surfaces.api.resources.words import LONGEST_TEXT, Limit, Number
from fingerpost.surfaces.api.sight import check_unbound
from fingerpost.surfaces.api.views import EventView, event_view

TAG: Final = "audit"
EXPORTS: Final = 2  # at the same time
AT_ONCE: Final = 200  # entries of an export in memory

_Moment = Annotated[AwareDatetime, Field(description="ISO 8601 with a time zone")]
_Kind = Annotated[str, Field(max_length=100, description="Such as `tool_selected`")]
_Phrase = Annotated[str, Field(max_length=LONGEST_TEXT, description="Occurs in the event as it is written")]


@frozen
class _Sieve:
    """Which entries are wanted. Empty parts set no bound."""

    kind: _Kind | None = None
    packet_id: Annotated[str, Field(max_length=200)] | None = None
    text: _Phrase = ""
    since: _Moment | None = None
    until: _Moment | None = None


@frozen
class TrailQuery(_Sieve):
    """One page of them."""

    limit: Limit = 100
    before: Number | None = None


@frozen
class ExportQuery(_Sieve):
    """All of them, oldest first."""

    format: Format = "ndjson"


@frozen
class TrailEntry(EventView):
    """An event of the trail. `hash` covers it and every entry before it."""

    hash: str


@frozen
class TrailPage:
    """Newest first."""

    items: tuple[TrailEntry, ...]
    next: int | None = None


def operations(router: Router) -> tuple[Operation, ...]:
    trail = Trail(router)
    return (
        Operation(
            method="GET",
            path="/api/audit",
            name="list_audit",
            summary="What was decided and done, newest first",
            right=Right.WATCH,
            answer=trail.list,
            query=TrailQuery,
            returns=TrailPage,
            tag=TAG,
        ),
        Operation(
            method="GET",
            path="/api/audit/export",
            name="export_audit",
            summary="All of it as lines of JSON or as CSV, oldest first",
            right=Right.WATCH,
            answer=trail.export,
            query=ExportQuery,
            returns=str,
            media=MEDIA["ndjson"],
            also=(MEDIA["csv"],),
            problems=(503,),
            tag=TAG,
        ),
        Operation(
            method="POST",
            path="/api/audit/verify",
            name="verify_audit",
            summary="Follow the chain from its first entry; it takes a while where the trail is long",
            right=Right.WATCH,
            answer=trail.verify,
            returns=AuditReport,
            problems=(409,),
            tag=TAG,
        ),
    )


class Trail:
    """One for the whole API: it bounds what runs at once."""

    def __init__(self, router: Router) -> None:
        self._audit = router.store.audit
        self._journal = router.store.journal
        self._exports = 0
        self._verifying = False

    async def list(self, request: ApiRequest) -> TrailPage:
        check_unbound(request.principal)
        query: TrailQuery = request.query
        found = await self._audit.entries(_asked(query), limit=query.limit + 1, before=query.before)
        entries = await anyio.to_thread.run_sync(_shown, found[: query.limit])
        return TrailPage(items=entries, next=entries[-1].seq if len(found) > query.limit else None)

    async def export(self, request: ApiRequest) -> Streaming:
        check_unbound(request.principal)
        query: ExportQuery = request.query
        if self._exports >= EXPORTS:
            detail = f"{EXPORTS} exports are under way. Try again when one is over."
            raise Problem(503, "Too many exports at once", detail)
        chunks = self._audit.chunks(_asked(query), size=AT_ONCE)
        return exported(chunks, query.format, held=self._held)

    def _held(self, more: Literal[1, -1]) -> None:
        self._exports += more

    async def verify(self, request: ApiRequest) -> AuditReport:
        if self._verifying:
            detail = "The chain is being followed already. Its answer goes to who asked first."
            raise Problem(409, "One verification at a time", detail)
        self._verifying = True
        try:
            await self._journal.flush()  # what was just told belongs to it
            return await self._audit.verify()
        finally:
            self._verifying = False


def _asked(query: _Sieve) -> AuditQuery:
    return AuditQuery(
        kind=query.kind,
        packet_id=query.packet_id,
        text=query.text,
        since=query.since,
        until=query.until,
    )


def _shown(entries: Sequence[AuditEntry]) -> tuple[TrailEntry, ...]:
    return tuple(map(_entry, entries))


def _entry(entry: AuditEntry) -> TrailEntry:
    try:
        view = event_view(decode(entry.payload), entry.seq)
    except ValueError:  # somebody edited the database: verifying says so, the others are still shown
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
