"""The tables, their column types, and the migrations that create them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeDecorator

from fingerpost.data_files import read_data_text
from fingerpost.errors import StoreTooNew
from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.regex import prepare_re

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_UNSTORABLE = prepare_re("[\\\\\x00\ud800-\udfff]")
_ESCAPED = prepare_re(r"\\([0-9a-f]{4})")

if TYPE_CHECKING:
    _Moment = TypeDecorator[datetime]
    _ExactText = TypeDecorator[str]
else:
    _Moment = _ExactText = TypeDecorator


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970. Raises for a time without a time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone")
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds  # division is slower


def from_microseconds(count: int) -> datetime:
    return EPOCH + count * MICROSECOND


def escape(text: str) -> str:
    r"""Return `text` with characters that a database cannot store written as `\0000`. `unescape` reverses
    it.
    """
    if text.isascii() and "\\" not in text and "\0" not in text:
        return text  # the usual case; this check is much faster than the pattern
    return _UNSTORABLE.sub(lambda match: f"\\{ord(match[0]):04x}", text)


def unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


class Moment(_Moment):
    """A point in time, stored as microseconds so that it sorts and compares the same in all databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value)


class ExactText(_ExactText):
    """Any Python string, including NUL and lone surrogates, stored without loss."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else unescape(str(value))  # an SQLite column can hold any type


metadata = MetaData()

journal = Table(
    "journal",
    metadata,
    # The number of the row's last event; see `journal_head`.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("event_id", ExactText, nullable=False, unique=True),  # appending an event again has no effect
    Column("at", Moment, nullable=False),
    Column("kind", ExactText, nullable=False),
    Column("packet_id", ExactText),
    Column("payload", Text, nullable=False),
    Column("conversation", ExactText),  # only set for received requests
    Index("journal_packet", "packet_id", "seq"),
    Index("journal_kind", "kind", "seq"),
    Index("journal_conversation", "conversation", "seq"),  # of rows with a conversation
)

journal_head = Table(
    "journal_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: one row
    Column("seq", BigInteger, nullable=False),  # the number of the last event, also after pruning
)

audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("event_id", ExactText, nullable=False),
    Column("at", BigInteger, nullable=False),  # the exact number that is hashed
    Column("kind", ExactText, nullable=False),
    Column("packet_id", ExactText),
    Column("payload", Text, nullable=False),
    Column("prev_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("chain", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),  # in the chain, from 1; hashed, unlike `seq`
    Index("audit_chain", "chain", "number", unique=True),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("chain", Integer, primary_key=True, autoincrement=False),  # from 1 without gaps
    Column("seq", BigInteger, nullable=False),  # the number of its last row
    Column("hash", Text, nullable=False),
    Column("owner", Text, nullable=False),  # the process that extends it, or empty
    Column("leased_until", BigInteger, nullable=False),  # then another process may extend it
)

pruned = Table(
    "pruned",
    metadata,
    Column("chain", Integer, primary_key=True, autoincrement=False),  # 0: the journal
    Column("seq", BigInteger, nullable=False),  # the last row that retention removed
    Column("hash", Text, nullable=False),  # of that row
)

pins = Table(
    "pins",
    metadata,
    # Hash of the server's command or URL, as in `known_servers`; empty: from before it was recorded.
    Column("entry", Text, primary_key=True),
    Column("key", ExactText, primary_key=True),
    Column("record", Text, nullable=False),
)

pin_revision = Table(
    "pin_revision",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: one row for all pins
    Column("number", BigInteger, nullable=False),  # incremented with every change of a pin
)

usage = Table(
    "usage",
    metadata,
    Column("tool", ExactText, primary_key=True),
    Column("calls", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("last_used", Moment, nullable=False),
)

usage_buckets = Table(
    "usage_buckets",
    metadata,
    Column("tool", ExactText, primary_key=True),
    Column("measure", Text, primary_key=True),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
)

approvals = Table(
    "approvals",
    metadata,
    Column("pending_id", ExactText, primary_key=True),
    Column("record", Text, nullable=False),  # as requested; the decision is in the columns below
    Column("created", Moment, nullable=False),
    Column("expires", Moment, nullable=False),
    Column("decision", Text, nullable=False),
    Column("decided_by", ExactText),
    Column("decided_at", Moment),
    Column("decision_reason", ExactText),
    Column("edited_arguments", Text),
    Index("approvals_decision", "decision", "created"),
)

grants = Table(
    "grants",
    metadata,
    Column("grant_id", ExactText, primary_key=True),
    Column("granted_by", ExactText, nullable=False),
    Column("granted_at", Moment, nullable=False),
    Column("expires", Moment, nullable=False),
    Column("one_time", Boolean, nullable=False),
    Column("call_fingerprint", ExactText),
    Column("conversation", ExactText),
    Column("operation", ExactText),
    Column("spent_at", Moment),
    Index("grants_call", "call_fingerprint"),
    Index("grants_scope", "conversation", "operation"),
)

cache = Table(
    "cache",
    metadata,
    Column("space", ExactText, primary_key=True),
    Column("key", ExactText, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("expires", Moment),
    Column("used", Moment, nullable=False),
    Index("cache_used", "used"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("server", ExactText, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("saved", Moment, nullable=False),
)

choices = Table(
    "choices",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("request", ExactText, nullable=False),  # redacted and shortened before
    Column("tool", ExactText, nullable=False),
    Column("worked", Boolean, nullable=False),
    Column("conversation", ExactText),
    Column("caller", ExactText),
    Index("choices_conversation", "conversation", "seq"),
)

confidences = Table(
    "confidences",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("raw", Double, nullable=False),
    Column("was_right", Boolean, nullable=False),  # `right` is a reserved word in SQL
    Column("tool", ExactText, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", ExactText, primary_key=True),
    Column("name", ExactText, nullable=False),  # may be reused after the key is revoked
    Column("digest", Text, nullable=False),
    Column("reach", Text, nullable=False),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("last_used", Moment),
    Column("revoked", Moment),
    Index("api_keys_name", "name"),
)

data_sources = Table(
    "data_sources",
    metadata,
    Column("trail", ExactText, primary_key=True),  # of a conversation
    Column("tool", ExactText, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("call_id", ExactText, nullable=False),
    Column("at", Moment, nullable=False),
    Index("data_sources_at", "at"),
)

stored_marks = Table(
    "stored_marks",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("mark", BigInteger, nullable=False),  # hash of a piece of untrusted text that a call stored
)

preferences = Table(
    "preferences",
    metadata,
    Column("caller", ExactText, primary_key=True),
    Column("effort", Text, nullable=False),
)

known_servers = Table(
    "known_servers",
    metadata,
    Column("server", ExactText, primary_key=True),
    Column("entry", Text, primary_key=True),  # hash of its command or URL
    Column("listed_at", Moment, nullable=False),
    Column("record", Text, nullable=False),
)

disabled_entries = Table(
    "shutters",
    metadata,
    Column("what", Text, primary_key=True),  # "tool" or "server"
    Column("name", ExactText, primary_key=True),  # a tool's key or a server's name
    Column("by_whom", ExactText, nullable=False),  # `by` is a reserved word in SQL
    Column("at", Moment, nullable=False),
    Column("reason", ExactText, nullable=False),
)

evals = Table(
    "evals",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("name", ExactText, nullable=False),
    Column("report", Text, nullable=False),
)

memories = Table(
    "memories",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("memory_id", ExactText, nullable=False, unique=True),
    Column("person", ExactText),  # None: the local user
    Column("conversation", ExactText),  # None: all conversations
    Column("at", Moment, nullable=False),
    Column("text", ExactText, nullable=False),
    Index("memories_person", "person", "seq"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("packet_id", ExactText, primary_key=True),
    Column("by_whom", ExactText, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("request", ExactText, nullable=False),  # redacted and shortened before
    Column("tool", ExactText),
    Column("should_have", ExactText),
    Column("comment", ExactText, nullable=False),
    Index("feedback_at", "at"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("caller", ExactText, primary_key=True),
    Column("key", ExactText, primary_key=True),
    Column("call_fingerprint", Text, nullable=False),
    Column("tool", ExactText, nullable=False),
    Column("call_id", ExactText, nullable=False),
    Column("began", Moment, nullable=False),
    Column("expires", Moment, nullable=False),
    Column("state", Text, nullable=False),
    Column("outcome", LargeBinary),
    Index("idempotency_keys_expires", "expires"),
)

learned_marks = Table(
    "learned_marks",
    metadata,
    Column("what", Text, primary_key=True),
    Column("person", ExactText, primary_key=True),  # empty: everyone
    Column("at", Moment, nullable=False),
)

thresholds = Table(
    "thresholds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("base", Double, nullable=False),
    Column("value", Double, nullable=False),
    Column("at", Moment, nullable=False),
    Column("reason", ExactText, nullable=False),
    Column("samples", BigInteger, nullable=False),
)

instances = Table(
    "instances",
    metadata,
    Column("instance_id", ExactText, primary_key=True),
    Column("seen", Moment, nullable=False),
    Column("lease_s", Double, nullable=False),
    Column("since_seq", BigInteger, nullable=False),
)

claims = Table(
    "claims",
    metadata,
    Column("name", ExactText, primary_key=True),
    Column("instance_id", ExactText, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("name", ExactText, primary_key=True),
    Column("record", Text, nullable=False),
    Column("created", Moment, nullable=False),
)

quotas = Table(
    "quotas",
    metadata,
    Column("quota_id", ExactText, primary_key=True),
    Column("record", Text, nullable=False),
    Column("created", Moment, nullable=False),
)

quota_use = Table(
    "quota_use",
    metadata,
    Column("subject", ExactText, primary_key=True),  # such as `user dana`
    Column("measure", Text, primary_key=True),
    Column("period", BigInteger, primary_key=True, autoincrement=False),  # minutes or days since 1970
    Column("used", Double, nullable=False),
)

quota_slots = Table(
    "quota_slots",
    metadata,
    Column("subject", ExactText, primary_key=True),
    Column("instance_id", ExactText, primary_key=True),
    Column("held", BigInteger, nullable=False),  # slots of this process; they end with its lease
)

messages = Table(
    "messages",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("sender", Text, nullable=False),  # a process
    Column("topic", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", Moment, nullable=False),
)

mcp_sessions = Table(
    "mcp_sessions",
    metadata,
    Column("session_id", ExactText, primary_key=True),
    Column("record", Text, nullable=False),
    Column("seen", Moment, nullable=False),  # about; see `McpSessionStore`
    Index("mcp_sessions_seen", "seen"),
)


_CREATE_VERSIONS = """
    CREATE TABLE IF NOT EXISTS fingerpost_schema (
        version INTEGER NOT NULL PRIMARY KEY, applied BIGINT NOT NULL)
"""

# Types that the two databases name differently.
_DIALECT_TYPES = {
    "sqlite": {"counted": "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "bytes": "BLOB"},
    "postgresql": {"counted": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "BYTEA"},
}
_STEP_HEADING = prepare_re(r"^-- step (\d+) ?(\w*)$", re.MULTILINE)
_COMMENT = prepare_re(r"^--.*\n", re.MULTILINE)


@frozen(kw_only=False)
class MigrationStep:
    """One schema change. `number` counts from 1 without gaps."""

    number: int
    apply: Callable[[Connection], None]


def _read_steps() -> tuple[MigrationStep, ...]:
    """Read the steps of `migrations.sql`. What SQL cannot do follows the statements of its step."""
    _, *parts = _STEP_HEADING.split(read_data_text("fingerpost.store", "migrations.sql"))
    statements: dict[int, list[tuple[str, str]]] = {}
    for number, dialect, block in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        found = _COMMENT.sub("", block).strip().removesuffix(";").split(";\n")
        statements.setdefault(int(number), []).extend((dialect, statement) for statement in found)

    def apply(number: int, connection: Connection) -> None:
        here = connection.dialect.name
        # Not by SQLAlchemy, which takes longer than SQLite takes to execute it.
        driver: Any = connection.connection.dbapi_connection
        execute = driver.execute if here == "sqlite" else connection.exec_driver_sql
        for dialect, statement in statements[number]:
            if dialect in ("", here):
                execute(statement.format(**_DIALECT_TYPES[here]))
        if number == _CONVERSATION_STEP:
            _fill_conversations(connection)

    return tuple(MigrationStep(number, partial(apply, number)) for number in statements)


_CONVERSATION_STEP = 13


def _fill_conversations(connection: Connection) -> None:
    """Fill the conversation column of older requests from their payloads."""
    arrived = text(
        "SELECT seq, payload FROM journal WHERE kind = 'packet_received' AND seq > :seq "
        "ORDER BY seq LIMIT 500"
    )
    change = text("UPDATE journal SET conversation = :conversation WHERE seq = :seq")
    last = 0
    while rows := connection.execute(arrived, {"seq": last}).all():
        last = rows[-1].seq
        named = [{"seq": row.seq, "conversation": _parse_conversation(row.payload)} for row in rows]
        found = [row for row in named if row["conversation"] is not None]
        if found:
            connection.execute(change, found)


def _parse_conversation(payload: str) -> str | None:
    try:
        named = json.loads(payload)["event"]["packet"]["header"]["session_id"]
    except (ValueError, KeyError, TypeError):  # the row was edited from outside
        return None
    return escape(named) if isinstance(named, str) else None


MIGRATION_STEPS: tuple[MigrationStep, ...] = _read_steps()


def migrate(connection: Connection, steps: Sequence[MigrationStep] = MIGRATION_STEPS) -> int:
    """Migrate the database to the last step and return its version.

    Call it in a transaction that holds the write lock. Raises `StoreTooNew` if the database was written by a
    newer Fingerpost.
    """
    connection.execute(text(_CREATE_VERSIONS))
    found = connection.execute(text("SELECT max(version) FROM fingerpost_schema")).scalar() or 0
    newest = steps[-1].number
    if found > newest:
        message = f"the database has schema version {found}, this Fingerpost knows up to {newest}"
        raise StoreTooNew(
            message, hint="Upgrade Fingerpost (pip install -U fingerpost), or use another database."
        )
    missing = [step for step in steps if step.number > found]
    for step in missing:
        step.apply(connection)
    if missing:
        connection.execute(
            text("INSERT INTO fingerpost_schema (version, applied) VALUES (:version, :applied)"),
            [{"version": step.number, "applied": to_microseconds(utc_now())} for step in missing],
        )
    return newest
