"""What was chosen for which request, whether it worked, and which tool followed which.

The only table that keeps people's own words for longer than a packet: so they
are masked, cut short, limited in number, and gone with one `clear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select

from fingerpost.records import Choice, Following
from fingerpost.redaction import scrub
from fingerpost.store.backlog import Loss
from fingerpost.store.database import Database
from fingerpost.store.schema import choices
from fingerpost.store.writer import Writer

LONGEST_REQUEST: Final = 500
KEPT: Final = 20_000
# Masking needs to see a secret whole, so the text is cut only afterwards; but it need not read a megabyte.
_READ: Final = 20 * LONGEST_REQUEST


class Choices:
    """Remembers choices, and forgets them when asked."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._loss = Loss()

    async def record(self, choice: Choice) -> None:
        """Remember one choice. Returns when it is on disk."""
        await self._writer.submit(_add, choice)

    def note(self, choice: Choice) -> None:
        """Remember one choice soon. Returns at once; may be lost while the disk is stuck."""
        self._writer.post(_add, choice, loss=self._loss)

    async def recent(self, limit: int = 2_000) -> list[Choice]:
        """The newest choices, newest first."""
        newest = select(choices).order_by(choices.c.seq.desc()).limit(limit)
        return await self._database.read(lambda found: [_choice(row) for row in found.execute(newest)])

    async def followers(self, limit: int = 1_000) -> list[Following]:
        """Which tool worked right after which, in one conversation: the most frequent pairs first."""
        return await self._database.read(lambda connection: _followers(connection, limit))

    async def clear(self) -> int:
        """Forget everything; how many choices that were."""
        return await self._writer.submit(_clear, None)


def _add(connection: Connection, new: Sequence[Choice]) -> list[None]:
    connection.execute(insert(choices), [_row(choice) for choice in new])
    newest = select(func.max(choices.c.seq)).scalar_subquery()
    connection.execute(delete(choices).where(choices.c.seq <= newest - KEPT))
    return [None] * len(new)


def _row(choice: Choice) -> dict[str, Any]:
    return {
        "at": choice.at,
        "request": scrub(choice.request[:_READ])[:LONGEST_REQUEST],
        "tool": choice.tool,
        "worked": choice.worked,
        "conversation": choice.conversation,
        "caller": choice.caller,
    }


def _choice(row: Row[Any]) -> Choice:
    return Choice(
        request=row.request,
        tool=row.tool,
        worked=row.worked,
        at=row.at,
        conversation=row.conversation,
        caller=row.caller,
    )


def _followers(connection: Connection, limit: int) -> list[Following]:
    before = func.lag(choices.c.tool).over(partition_by=choices.c.conversation, order_by=choices.c.seq)
    steps = (
        select(before.label("tool"), choices.c.tool.label("following"))
        .where(choices.c.conversation.is_not(None), choices.c.worked)
        .subquery()
    )
    times = func.count().label("times")
    pairs = (
        select(steps.c.tool, steps.c.following, times)
        .where(steps.c.tool.is_not(None))
        .group_by(steps.c.tool, steps.c.following)
        .order_by(times.desc(), steps.c.tool, steps.c.following)
        .limit(limit)
    )
    return [
        Following(tool=row.tool, then=row.following, times=row.times) for row in connection.execute(pairs)
    ]


def _clear(connection: Connection, asked: Sequence[None]) -> list[int]:
    gone = connection.execute(delete(choices)).rowcount
    return [gone, *[0] * (len(asked) - 1)]
