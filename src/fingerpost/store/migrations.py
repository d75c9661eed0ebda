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

_VERSIONS = """
    CREATE TABLE IF NOT EXISTS fingerpost_schema (
        version INTEGER NOT NULL PRIMARY KEY, applied BIGINT NOT NULL)
"""

# What the two databases spell differently.
_WORDS = {
    "sqlite": {"counted": "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "bytes": "BLOB"},
    "postgresql": {"counted": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "BYTEA"},
}

_FIRST = (
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

_CHOICES = (
    """CREATE TABLE choices (
        seq {counted}, at BIGINT NOT NULL, request TEXT NOT NULL, tool TEXT NOT NULL,
        worked BOOLEAN NOT NULL, conversation TEXT)""",
    "CREATE INDEX choices_conversation ON choices (conversation, seq)",
)

_CONFIDENCES = (
    """CREATE TABLE confidences (
        seq {counted}, at BIGINT NOT NULL, raw DOUBLE PRECISION NOT NULL, was_right BOOLEAN NOT NULL,
        tool TEXT NOT NULL)""",
)

_KEYS = (
    """CREATE TABLE api_keys (
        key_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, reach TEXT NOT NULL,
        created BIGINT NOT NULL, expires BIGINT, last_used BIGINT, revoked BIGINT)""",
    "CREATE INDEX api_keys_name ON api_keys (name)",
)

_SHUTTERS = (
    """CREATE TABLE shutters (
        what TEXT NOT NULL, name TEXT NOT NULL, by_whom TEXT NOT NULL, at BIGINT NOT NULL,
        reason TEXT NOT NULL, PRIMARY KEY (what, name))""",
)

_EVALS = (
    """CREATE TABLE evals (
        seq {counted}, at BIGINT NOT NULL, name TEXT NOT NULL, report TEXT NOT NULL)""",
)

_MEMORIES = (
    """CREATE TABLE memories (
        seq {counted}, memory_id TEXT NOT NULL UNIQUE, person TEXT, conversation TEXT, at BIGINT NOT NULL,
        text TEXT NOT NULL)""",
    "CREATE INDEX memories_person ON memories (person, seq)",
)

_LEARNING = (
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

_PIN_REVISION = (
    """CREATE TABLE pin_revision (
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), number BIGINT NOT NULL)""",
    "INSERT INTO pin_revision (id, number) VALUES (1, 0)",
)

_IDEMPOTENCY = (
    """CREATE TABLE idempotency_keys (
        caller TEXT NOT NULL, key TEXT NOT NULL, call_fingerprint TEXT NOT NULL, tool TEXT NOT NULL,
        call_id TEXT NOT NULL, began BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL,
        outcome {bytes}, PRIMARY KEY (caller, key))""",
    "CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires)",
)

_INSTANCES = (
    """CREATE TABLE instances (
        instance_id TEXT NOT NULL PRIMARY KEY, seen BIGINT NOT NULL, lease_s DOUBLE PRECISION NOT NULL,
        since_seq BIGINT NOT NULL)""",
    "CREATE TABLE claims (name TEXT NOT NULL PRIMARY KEY, instance_id TEXT NOT NULL)",
)

_PREFERENCES = ("CREATE TABLE preferences (caller TEXT NOT NULL PRIMARY KEY, effort TEXT NOT NULL)",)

_JOURNAL_CONVERSATION = (
    "ALTER TABLE journal ADD COLUMN conversation TEXT",
    "CREATE INDEX journal_conversation ON journal (conversation, seq) WHERE conversation IS NOT NULL",
)


def _name_conversations(connection: Connection) -> None:
    """Requests that arrived before this step have their conversation in their payload alone."""
    _running(_JOURNAL_CONVERSATION)(connection)
    arrived = text(
        "SELECT seq, payload FROM journal WHERE kind = 'packet_received' AND seq > :seq "
        "ORDER BY seq LIMIT 500"
    )
    change = text("UPDATE journal SET conversation = :conversation WHERE seq = :seq")
    last = 0
    while rows := connection.execute(arrived, {"seq": last}).all():
        last = rows[-1].seq
        named = [{"seq": row.seq, "conversation": _conversation_in(row.payload)} for row in rows]
        found = [row for row in named if row["conversation"] is not None]
        if found:
            connection.execute(change, found)


def _conversation_in(payload: str) -> str | None:
    try:
        named = json.loads(payload)["event"]["packet"]["header"]["session_id"]
    except (ValueError, KeyError, TypeError):  # the row was edited
        return None
    return escape(named) if isinstance(named, str) else None


@frozen(kw_only=False)
class Step:
    """One change of the schema. `number` counts from 1 without gaps."""

    number: int
    apply: Callable[[Connection], None]


def _running(statements: Sequence[str]) -> Callable[[Connection], None]:
    def apply(connection: Connection) -> None:
        words = _WORDS[connection.dialect.name]
        for statement in statements:
            connection.execute(text(statement.format(**words)))

    return apply


STEPS: tuple[Step, ...] = (
    Step(1, _running(_FIRST)),
    Step(2, _running(_CHOICES)),
    Step(3, _running(_CONFIDENCES)),
    Step(4, _running(_KEYS)),
    Step(5, _running(_SHUTTERS)),
    Step(6, _running(_EVALS)),
    Step(7, _running(_MEMORIES)),
    Step(8, _running(_LEARNING)),
    Step(9, _running(_PIN_REVISION)),
    Step(10, _running(_IDEMPOTENCY)),
    Step(11, _running(_INSTANCES)),
    Step(12, _running(_PREFERENCES)),
    Step(13, _name_conversations),
)


def migrate(connection: Connection, steps: Sequence[Step] = STEPS) -> int:
    """Bring the database up to the last step and say which version that is.

    Call it inside a transaction that holds the write lock. Raises `StoreTooNew`
    when a newer Fingerpost has been here.
    """
    connection.execute(text(_VERSIONS))
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
