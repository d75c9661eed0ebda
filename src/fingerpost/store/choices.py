"""What was chosen for which request, whether it worked, and which tool followed which.

The only table that keeps people's own words for longer than a packet: so they
are masked, cut short, limited in number, and gone with one `clear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select

from fingerpost.records import Choice, ToolFollower
from fingerpost.redaction import scrub
from fingerpost.store.backlog import LossPolicy
from fingerpost.store.database import Database
from fingerpost.store.schema import choices
from fingerpost.store.writer import StoreWriter

MAX_CHOICE_REQUEST_LENGTH: Final = 500
MAX_CHOICES: Final = 20_000
# Masking needs to see a secret whole, so the text is cut only afterwards; but it need not read a megabyte.
_CHOICE_COLUMNS: Final = 20 * MAX_CHOICE_REQUEST_LENGTH


class ChoiceStore:
    """Remembers choices, and forgets them when asked."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._loss = LossPolicy()

    async def record(self, choice: Choice) -> None:
        """Remember one choice. Returns when it is on disk."""
        await self._writer.write(_add_choices, choice)

    def record_soon(self, choice: Choice) -> None:
        """Remember one choice soon. Returns at once; may be lost while the disk is stuck."""
        self._writer.write_soon(_add_choices, choice, loss=self._loss)

    async def list_recent(self, limit: int = 2_000) -> list[Choice]:
        """The newest choices, newest first."""
        newest = select(choices).order_by(choices.c.seq.desc()).limit(limit)
        return await self._database.read(lambda found: [_build_choice(row) for row in found.execute(newest)])

    async def list_followers(self, limit: int = 1_000) -> list[ToolFollower]:
        """Which tool worked right after which, in one conversation: the most frequent pairs first."""
        return await self._database.read(lambda connection: _list_followers(connection, limit))

    async def clear(self) -> int:
        """Forget everything; how many choices that were."""
        return await self._writer.write(_clear_choices, None)


def _add_choices(connection: Connection, new: Sequence[Choice]) -> list[None]:
    connection.execute(insert(choices), [_choice_to_row(choice) for choice in new])
    newest = select(func.max(choices.c.seq)).scalar_subquery()
    connection.execute(delete(choices).where(choices.c.seq <= newest - MAX_CHOICES))
    return [None] * len(new)


def _choice_to_row(choice: Choice) -> dict[str, Any]:
    return {
        "at": choice.at,
        "request": scrub(choice.request[:_CHOICE_COLUMNS])[:MAX_CHOICE_REQUEST_LENGTH],
        "tool": choice.tool,
        "worked": choice.worked,
        "conversation": choice.conversation,
        "caller": choice.caller,
    }


def _build_choice(row: Row[Any]) -> Choice:
    return Choice(
        request=row.request,
        tool=row.tool,
        worked=row.worked,
        at=row.at,
        conversation=row.conversation,
        caller=row.caller,
    )


def _list_followers(connection: Connection, limit: int) -> list[ToolFollower]:
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
        ToolFollower(tool=row.tool, then=row.following, times=row.times) for row in connection.execute(pairs)
    ]


def _clear_choices(connection: Connection, requests: Sequence[None]) -> list[int]:
    gone = connection.execute(delete(choices)).rowcount
    return [gone, *[0] * (len(requests) - 1)]
