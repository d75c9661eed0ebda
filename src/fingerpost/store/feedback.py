"""What people said of the tools their requests were given.

Like `choices` it keeps people's own words: masked, cut short, limited in number,
and gone with one `clear`. One person has one word about one request; a later one
takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, select

from fingerpost.records import Feedback, FeedbackVerdict
from fingerpost.redaction import scrub
from fingerpost.store.database import Database
from fingerpost.store.schema import feedback
from fingerpost.store.statements import insert_or_change
from fingerpost.store.writer import Writer

LONGEST_REQUEST: Final = 500
LONGEST_COMMENT: Final = 1_000
LONGEST_NAME: Final = 200
LONGEST_TOOL: Final = 1_000
KEPT: Final = 20_000
# Masking needs to see a secret whole, so a text is cut only afterwards; but it need not read a megabyte.
_READ: Final = 10_000


class FeedbackBook:
    """Remembers what was said, and forgets it when asked."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def record(self, said: Feedback) -> Feedback:
        """Remember it, in place of what this person said before. Returns it as it was kept, on disk."""
        kept = _bounded(said)
        await self._writer.submit(_put, kept)
        return kept

    async def recent(self, limit: int = 2_000) -> list[Feedback]:
        """What was said, newest first."""
        return await self._find(limit)

    async def about(self, packet_id: str) -> list[Feedback]:
        """What was said of one request, by whomever, newest first."""
        return await self._find(KEPT, feedback.c.packet_id == packet_id)

    async def clear(self, *, by: str | None = None) -> int:
        """Forget everything, or what this person said; how much that was."""
        return await self._writer.submit(_clear, by)

    async def _find(self, limit: int, *conditions: ColumnElement[bool]) -> list[Feedback]:
        newest = select(feedback).where(*conditions)
        newest = newest.order_by(feedback.c.at.desc(), feedback.c.packet_id, feedback.c.by_whom).limit(limit)
        return await self._database.read(lambda found: [_feedback(row) for row in found.execute(newest)])


def _bounded(said: Feedback) -> Feedback:
    return Feedback(
        packet_id=said.packet_id[:LONGEST_NAME],
        by=said.by[:LONGEST_NAME],
        verdict=said.verdict,
        request=_masked(said.request, LONGEST_REQUEST),
        at=said.at,
        tool=None if said.tool is None else said.tool[:LONGEST_TOOL],
        should_have=None if said.should_have is None else said.should_have[:LONGEST_TOOL],
        comment=_masked(said.comment, LONGEST_COMMENT),
    )


def _masked(text: str, longest: int) -> str:
    return scrub(text[:_READ])[:longest]


def _put(connection: Connection, new: Sequence[Feedback]) -> list[None]:
    for said in new:  # one by one: a batch may hold the same person's word twice
        connection.execute(insert_or_change(connection, feedback), _row(said))
    beyond = select(feedback.c.at).order_by(feedback.c.at.desc()).offset(KEPT).limit(1).scalar_subquery()
    connection.execute(delete(feedback).where(feedback.c.at <= beyond))
    return [None] * len(new)


def _row(said: Feedback) -> dict[str, Any]:
    return {
        "packet_id": said.packet_id,
        "by_whom": said.by,
        "at": said.at,
        "verdict": said.verdict.value,
        "request": said.request,
        "tool": said.tool,
        "should_have": said.should_have,
        "comment": said.comment,
    }


def _feedback(row: Row[Any]) -> Feedback:
    return Feedback(
        packet_id=row.packet_id,
        by=row.by_whom,
        verdict=FeedbackVerdict(row.verdict),
        request=row.request,
        at=row.at,
        tool=row.tool,
        should_have=row.should_have,
        comment=row.comment,
    )


def _clear(connection: Connection, asked: Sequence[str | None]) -> list[int]:
    return [connection.execute(_deletion(by)).rowcount for by in asked]


def _deletion(by: str | None) -> Any:
    every = delete(feedback)
    return every if by is None else every.where(feedback.c.by_whom == by)
