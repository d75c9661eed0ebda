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
from fingerpost.store.statements import upsert
from fingerpost.store.writer import StoreWriter

MAX_FEEDBACK_REQUEST_LENGTH: Final = 500
MAX_COMMENT_LENGTH: Final = 1_000
MAX_PERSON_LENGTH: Final = 200
MAX_FEEDBACK_TOOL_LENGTH: Final = 1_000
MAX_FEEDBACK: Final = 20_000
# Masking needs to see a secret whole, so a text is cut only afterwards; but it need not read a megabyte.
_FEEDBACK_COLUMNS: Final = 10_000


class FeedbackStore:
    """Remembers what was said, and forgets it when asked."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def record(self, feedback: Feedback) -> Feedback:
        """Remember it, in place of what this person said before. Returns it as it was kept, on disk."""
        kept = _bound_feedback(feedback)
        await self._writer.write(_put_feedback, kept)
        return kept

    async def list_recent(self, limit: int = 2_000) -> list[Feedback]:
        """What was said, newest first."""
        return await self._find(limit)

    async def list_about(self, packet_id: str) -> list[Feedback]:
        """What was said of one request, by whomever, newest first."""
        return await self._find(MAX_FEEDBACK, feedback.c.packet_id == packet_id)

    async def clear(self, *, by: str | None = None) -> int:
        """Forget everything, or what this person said; how much that was."""
        return await self._writer.write(_clear_feedback, by)

    async def _find(self, limit: int, *conditions: ColumnElement[bool]) -> list[Feedback]:
        newest = select(feedback).where(*conditions)
        newest = newest.order_by(feedback.c.at.desc(), feedback.c.packet_id, feedback.c.by_whom).limit(limit)
        return await self._database.read(
            lambda found: [_build_feedback(row) for row in found.execute(newest)]
        )


def _bound_feedback(feedback: Feedback) -> Feedback:
    return Feedback(
        packet_id=feedback.packet_id[:MAX_PERSON_LENGTH],
        by=feedback.by[:MAX_PERSON_LENGTH],
        verdict=feedback.verdict,
        request=_mask_text(feedback.request, MAX_FEEDBACK_REQUEST_LENGTH),
        at=feedback.at,
        tool=None if feedback.tool is None else feedback.tool[:MAX_FEEDBACK_TOOL_LENGTH],
        should_have=None if feedback.should_have is None else feedback.should_have[:MAX_FEEDBACK_TOOL_LENGTH],
        comment=_mask_text(feedback.comment, MAX_COMMENT_LENGTH),
    )


def _mask_text(text: str, max_length: int) -> str:
    return scrub(text[:_FEEDBACK_COLUMNS])[:max_length]


def _put_feedback(connection: Connection, new: Sequence[Feedback]) -> list[None]:
    for said in new:  # one by one: a batch may hold the same person's word twice
        connection.execute(upsert(connection, feedback), _feedback_to_row(said))
    beyond = (
        select(feedback.c.at).order_by(feedback.c.at.desc()).offset(MAX_FEEDBACK).limit(1).scalar_subquery()
    )
    connection.execute(delete(feedback).where(feedback.c.at <= beyond))
    return [None] * len(new)


def _feedback_to_row(said: Feedback) -> dict[str, Any]:
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


def _build_feedback(row: Row[Any]) -> Feedback:
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


def _clear_feedback(connection: Connection, requests: Sequence[str | None]) -> list[int]:
    return [connection.execute(_build_deletion(by)).rowcount for by in requests]


def _build_deletion(by: str | None) -> Any:
    every = delete(feedback)
    return every if by is None else every.where(feedback.c.by_whom == by)
