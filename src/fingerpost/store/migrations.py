"""How an empty or older database becomes the one `schema` describes.

Each step is written once and never edited again: a step that followed the
current `schema` would mean something else in every release. The steps run in
one transaction under the store's write lock, so two processes that open a new
database at once both find it ready.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, text

from fingerpost.errors import StoreTooNew
from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.store.columns import escape, to_microseconds

_CREATE_VERSIONS = """
    CREATE TABLE IF NOT EXISTS fingerpost_schema (
        version INTEGER NOT NULL PRIMARY KEY, applied BIGINT NOT NULL)
"""

# What the two databases spell differently.
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
    """Requests that arrived before this step have their conversation in their payload alone."""
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


def _parse_conversation(payload: str) -> str | None:
    try:
        named = json.loads(payload)["event"]["packet"]["header"]["session_id"]
    except (ValueError, KeyError, TypeError):  # the row was edited
        return None
    return escape(named) if isinstance(named, str) else None


@frozen(kw_only=False)
class MigrationStep:
    """One change of the schema. `number` counts from 1 without gaps."""

    number: int
    apply: Callable[[Connection], None]


def _build_migration(statements: Sequence[str]) -> Callable[[Connection], None]:
    def apply(connection: Connection) -> None:
        words = _DIALECT_TYPES[connection.dialect.name]
        for statement in statements:
            connection.execute(text(statement.format(**words)))

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
)


def migrate(connection: Connection, steps: Sequence[MigrationStep] = MIGRATION_STEPS) -> int:
    """Bring the database up to the last step and say which version that is.

    Call it inside a transaction that holds the write lock. Raises `StoreTooNew`
    when a newer Fingerpost has been here.
    """
    connection.execute(text(_CREATE_VERSIONS))
    found = connection.execute(text("SELECT max(version) FROM fingerpost_schema")).scalar() or 0
    newest = steps[-1].number
    if found > newest:
        message = f"the database has schema version {found}, this Fingerpost knows up to {newest}"
        raise StoreTooNew(
            message, hint="Upgrade Fingerpost (pip install -U fingerpost), or use another database."
        )
    for step in steps:
        if step.number > found:
            step.apply(connection)
            connection.execute(
                text("INSERT INTO fingerpost_schema (version, applied) VALUES (:version, :applied)"),
                {"version": step.number, "applied": to_microseconds(utc_now())},
            )
    return newest
