"""The tables, their column types, and the migrations that create them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

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

from fingerpost.errors import StoreTooNew
from fingerpost.frozen import frozen
from fingerpost.records import utc_now

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_UNSTORABLE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\([0-9a-f]{4})")

if TYPE_CHECKING:
    _Moment = TypeDecorator[datetime]
    _ExactText = TypeDecorator[str]
else:
    _Moment = _ExactText = TypeDecorator


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970. Raises for a time without a time zone."""
    if moment.tzinfo is None:
        message = f"{moment} has no time zone"
        raise ValueError(message)
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


_CREATE_VERSIONS = """
    CREATE TABLE IF NOT EXISTS fingerpost_schema (
        version INTEGER NOT NULL PRIMARY KEY, applied BIGINT NOT NULL)
"""

# Types that the two databases name differently.
_DIALECT_TYPES = {
    "sqlite": {"counted": "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "bytes": "BLOB"},
    "postgresql": {"counted": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "BYTEA"},
}

_CREATE_FIRST = (
    """CREATE TABLE journal (
        seq {counted}, event_id TEXT NOT NULL UNIQUE, at BIGINT NOT NULL,
        kind TEXT NOT NULL, packet_id TEXT, payload TEXT NOT NULL)""",
    "CREATE INDEX journal_packet ON journal (packet_id, seq)",
    "CREATE INDEX journal_kind ON journal (kind, seq)",
    """CREATE TABLE audit (
        seq BIGINT NOT NULL PRIMARY KEY, event_id TEXT NOT NULL, at BIGINT NOT NULL,
        kind TEXT NOT NULL, packet_id TEXT, payload TEXT NOT NULL,
        prev_hash TEXT NOT NULL, hash TEXT NOT NULL)""",
    """CREATE TABLE audit_head (
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), seq BIGINT NOT NULL, hash TEXT NOT NULL)""",
    f"INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '{'0' * 64}')",  # noqa: S608 - a constant
    "CREATE TABLE pins (key TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL)",
    """CREATE TABLE usage (
        tool TEXT NOT NULL PRIMARY KEY, calls BIGINT NOT NULL, failures BIGINT NOT NULL,
        last_used BIGINT NOT NULL)""",
    """CREATE TABLE usage_buckets (
        tool TEXT NOT NULL, measure TEXT NOT NULL, bucket INTEGER NOT NULL, count BIGINT NOT NULL,
        PRIMARY KEY (tool, measure, bucket))""",
    """CREATE TABLE approvals (
        pending_id TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL, created BIGINT NOT NULL,
        expires BIGINT NOT NULL, decision TEXT NOT NULL, decided_by TEXT, decided_at BIGINT,
        decision_reason TEXT, edited_arguments TEXT)""",
    "CREATE INDEX approvals_decision ON approvals (decision, created)",
    """CREATE TABLE grants (
        grant_id TEXT NOT NULL PRIMARY KEY, granted_by TEXT NOT NULL, granted_at BIGINT NOT NULL,
        expires BIGINT NOT NULL, one_time BOOLEAN NOT NULL, call_fingerprint TEXT, conversation TEXT,
        operation TEXT, spent_at BIGINT)""",
    "CREATE INDEX grants_call ON grants (call_fingerprint)",
    "CREATE INDEX grants_scope ON grants (conversation, operation)",
    """CREATE TABLE cache (
        space TEXT NOT NULL, key TEXT NOT NULL, value {bytes} NOT NULL, size BIGINT NOT NULL,
        expires BIGINT, used BIGINT NOT NULL, PRIMARY KEY (space, key))""",
    "CREATE INDEX cache_used ON cache (used)",
    "CREATE TABLE tokens (server TEXT NOT NULL PRIMARY KEY, data {bytes} NOT NULL, saved BIGINT NOT NULL)",
)

_CREATE_CHOICES = (
    """CREATE TABLE choices (
        seq {counted}, at BIGINT NOT NULL, request TEXT NOT NULL, tool TEXT NOT NULL,
        worked BOOLEAN NOT NULL, conversation TEXT)""",
    "CREATE INDEX choices_conversation ON choices (conversation, seq)",
)

_CREATE_CONFIDENCES = (
    """CREATE TABLE confidences (
        seq {counted}, at BIGINT NOT NULL, raw DOUBLE PRECISION NOT NULL, was_right BOOLEAN NOT NULL,
        tool TEXT NOT NULL)""",
)

_CREATE_KEYS = (
    """CREATE TABLE api_keys (
        key_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, reach TEXT NOT NULL,
        created BIGINT NOT NULL, expires BIGINT, last_used BIGINT, revoked BIGINT)""",
    "CREATE INDEX api_keys_name ON api_keys (name)",
)

_CREATE_DISABLED = (
    """CREATE TABLE shutters (
        what TEXT NOT NULL, name TEXT NOT NULL, by_whom TEXT NOT NULL, at BIGINT NOT NULL,
        reason TEXT NOT NULL, PRIMARY KEY (what, name))""",
)

_CREATE_EVALS = (
    """CREATE TABLE evals (
        seq {counted}, at BIGINT NOT NULL, name TEXT NOT NULL, report TEXT NOT NULL)""",
)

_CREATE_MEMORIES = (
    """CREATE TABLE memories (
        seq {counted}, memory_id TEXT NOT NULL UNIQUE, person TEXT, conversation TEXT, at BIGINT NOT NULL,
        text TEXT NOT NULL)""",
    "CREATE INDEX memories_person ON memories (person, seq)",
)

_CREATE_LEARNING = (
    """CREATE TABLE feedback (
        packet_id TEXT NOT NULL, by_whom TEXT NOT NULL, at BIGINT NOT NULL, verdict TEXT NOT NULL,
        request TEXT NOT NULL, tool TEXT, should_have TEXT, comment TEXT NOT NULL,
        PRIMARY KEY (packet_id, by_whom))""",
    "CREATE INDEX feedback_at ON feedback (at)",
    """CREATE TABLE learned_marks (
        what TEXT NOT NULL, person TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (what, person))""",
    """CREATE TABLE thresholds (
        name TEXT NOT NULL PRIMARY KEY, base DOUBLE PRECISION NOT NULL, value DOUBLE PRECISION NOT NULL,
        at BIGINT NOT NULL, reason TEXT NOT NULL, samples BIGINT NOT NULL)""",
    "ALTER TABLE choices ADD COLUMN caller TEXT",
)

_CREATE_PIN_REVISION = (
    """CREATE TABLE pin_revision (
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), number BIGINT NOT NULL)""",
    "INSERT INTO pin_revision (id, number) VALUES (1, 0)",
)

_CREATE_IDEMPOTENCY = (
    """CREATE TABLE idempotency_keys (
        caller TEXT NOT NULL, key TEXT NOT NULL, call_fingerprint TEXT NOT NULL, tool TEXT NOT NULL,
        call_id TEXT NOT NULL, began BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL,
        outcome {bytes}, PRIMARY KEY (caller, key))""",
    "CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires)",
)

_CREATE_INSTANCES = (
    """CREATE TABLE instances (
        instance_id TEXT NOT NULL PRIMARY KEY, seen BIGINT NOT NULL, lease_s DOUBLE PRECISION NOT NULL,
        since_seq BIGINT NOT NULL)""",
    "CREATE TABLE claims (name TEXT NOT NULL PRIMARY KEY, instance_id TEXT NOT NULL)",
)

_CREATE_PREFERENCES = ("CREATE TABLE preferences (caller TEXT NOT NULL PRIMARY KEY, effort TEXT NOT NULL)",)

_ADD_JOURNAL_CONVERSATION = (
    "ALTER TABLE journal ADD COLUMN conversation TEXT",
    "CREATE INDEX journal_conversation ON journal (conversation, seq) WHERE conversation IS NOT NULL",
)


def _fill_conversations(connection: Connection) -> None:
    """Fill the conversation column of older requests from their payloads."""
    _build_migration(_ADD_JOURNAL_CONVERSATION)(connection)
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


def _number_events(connection: Connection) -> None:
    """Let the writer number the events, because one row holds several. The row of the head orders the
    writers: a number becomes visible after all lower ones.
    """
    _build_migration(
        (
            """CREATE TABLE journal_head (
                id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), seq BIGINT NOT NULL)""",
            "INSERT INTO journal_head (id, seq) SELECT 1, coalesce(max(seq), 0) FROM journal",
        )
    )(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE journal ALTER COLUMN seq DROP IDENTITY"))


_AUDIT_COLUMNS = "seq, event_id, at, kind, packet_id, payload, prev_hash, hash"


def _split_audit_chains(connection: Connection) -> None:
    """Let each process have a chain of its own. The only chain so far becomes the first one and goes on."""
    if connection.dialect.name == "sqlite":  # a column's type cannot be changed
        rows: tuple[str, ...] = (
            "ALTER TABLE audit RENAME TO audit_before",
            """CREATE TABLE audit (
                seq {counted}, event_id TEXT NOT NULL, at BIGINT NOT NULL, kind TEXT NOT NULL, packet_id TEXT,
                payload TEXT NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL, chain INTEGER NOT NULL,
                number BIGINT NOT NULL)""",
            (
                f"INSERT INTO audit ({_AUDIT_COLUMNS}, chain, number) "  # noqa: S608 - names of our own
                f"SELECT {_AUDIT_COLUMNS}, 1, seq FROM audit_before ORDER BY seq"
            ),
            "DROP TABLE audit_before",
        )
    else:
        last = connection.execute(text("SELECT coalesce(max(seq), 0) FROM audit")).scalar_one()
        rows = (
            "ALTER TABLE audit ADD COLUMN chain INTEGER NOT NULL DEFAULT 1, ADD COLUMN number BIGINT",
            "UPDATE audit SET number = seq",
            (
                "ALTER TABLE audit ALTER COLUMN chain DROP DEFAULT, ALTER COLUMN number SET NOT NULL, "
                f"ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (START WITH {last + 1:d})"
            ),
        )
    _build_migration(
        (
            *rows,
            "CREATE UNIQUE INDEX audit_chain ON audit (chain, number)",
            "ALTER TABLE audit_head RENAME TO audit_head_before",
            """CREATE TABLE audit_head (
                chain INTEGER NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL,
                owner TEXT NOT NULL, leased_until BIGINT NOT NULL)""",
            (
                "INSERT INTO audit_head (chain, seq, hash, owner, leased_until) "
                "SELECT 1, seq, hash, '', 0 FROM audit_head_before"
            ),
            "DROP TABLE audit_head_before",
            """CREATE TABLE pruned (
                chain INTEGER NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL)""",
        )
    )(connection)


_CREATE_KNOWN_SERVERS = (
    """CREATE TABLE known_servers (
        server TEXT NOT NULL, entry TEXT NOT NULL, listed_at BIGINT NOT NULL, record TEXT NOT NULL,
        PRIMARY KEY (server, entry))""",
)


_KEY_PINS_BY_ENTRY = (
    """CREATE TABLE pins_by_entry (
        entry TEXT NOT NULL, key TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (entry, key))""",
    """INSERT INTO pins_by_entry SELECT known_servers.entry, pins.key, pins.record
        FROM pins JOIN known_servers
        ON substr(pins.key, 1, length(known_servers.server) + 1) = known_servers.server || '/'""",
    """INSERT INTO pins_by_entry SELECT '', key, record FROM pins
        WHERE key NOT IN (SELECT key FROM pins_by_entry)""",
    "DROP TABLE pins",
    "ALTER TABLE pins_by_entry RENAME TO pins",
)


def _parse_conversation(payload: str) -> str | None:
    try:
        named = json.loads(payload)["event"]["packet"]["header"]["session_id"]
    except (ValueError, KeyError, TypeError):  # the row was edited from outside
        return None
    return escape(named) if isinstance(named, str) else None


@frozen(kw_only=False)
class MigrationStep:
    """One schema change. `number` counts from 1 without gaps."""

    number: int
    apply: Callable[[Connection], None]


def _build_migration(statements: Sequence[str]) -> Callable[[Connection], None]:
    def apply(connection: Connection) -> None:
        types = _DIALECT_TYPES[connection.dialect.name]
        for statement in statements:
            # Not compiled by SQLAlchemy: that takes longer than SQLite takes to execute it.
            connection.exec_driver_sql(statement.format(**types))

    return apply


MIGRATION_STEPS: tuple[MigrationStep, ...] = (
    MigrationStep(1, _build_migration(_CREATE_FIRST)),
    MigrationStep(2, _build_migration(_CREATE_CHOICES)),
    MigrationStep(3, _build_migration(_CREATE_CONFIDENCES)),
    MigrationStep(4, _build_migration(_CREATE_KEYS)),
    MigrationStep(5, _build_migration(_CREATE_DISABLED)),
    MigrationStep(6, _build_migration(_CREATE_EVALS)),
    MigrationStep(7, _build_migration(_CREATE_MEMORIES)),
    MigrationStep(8, _build_migration(_CREATE_LEARNING)),
    MigrationStep(9, _build_migration(_CREATE_PIN_REVISION)),
    MigrationStep(10, _build_migration(_CREATE_IDEMPOTENCY)),
    MigrationStep(11, _build_migration(_CREATE_INSTANCES)),
    MigrationStep(12, _build_migration(_CREATE_PREFERENCES)),
    MigrationStep(13, _fill_conversations),
    MigrationStep(14, _number_events),
    MigrationStep(15, _split_audit_chains),
    MigrationStep(16, _build_migration(_CREATE_KNOWN_SERVERS)),
    MigrationStep(17, _build_migration(_KEY_PINS_BY_ENTRY)),
)


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
