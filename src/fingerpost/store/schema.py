"""The tables as the code sees them. How they come to be is in `migrations`.

Records that are only ever read whole (pins, approvals) are kept as JSON in one
`record` column; what a query must find or change has a column of its own.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

from fingerpost.store.columns import ExactText, Moment

metadata = MetaData()

journal = Table(
    "journal",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("event_id", ExactText, nullable=False, unique=True),  # appending a fact again changes nothing
    Column("at", Moment, nullable=False),
    Column("kind", ExactText, nullable=False),
    Column("packet_id", ExactText),
    Column("payload", Text, nullable=False),
    Column("conversation", ExactText),  # where a request arrives in one; of no other event
    Index("journal_packet", "packet_id", "seq"),
    Index("journal_kind", "kind", "seq"),
    Index("journal_conversation", "conversation", "seq"),  # of rows that have one
)

audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("event_id", ExactText, nullable=False),
    Column("at", BigInteger, nullable=False),  # the very number that is hashed
    Column("kind", ExactText, nullable=False),
    Column("packet_id", ExactText),
    Column("payload", Text, nullable=False),
    Column("prev_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: there is one chain
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)

pins = Table(
    "pins",
    metadata,
    Column("key", ExactText, primary_key=True),
    Column("record", Text, nullable=False),
)

pin_revision = Table(
    "pin_revision",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: it is about all pins
    Column("number", BigInteger, nullable=False),  # one more with every change of any pin
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
    Column("record", Text, nullable=False),  # as it was asked; the decision is in the columns below
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
    Column("request", ExactText, nullable=False),  # masked and cut before it comes here
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
    Column("was_right", Boolean, nullable=False),  # `right` alone is a word of SQL
    Column("tool", ExactText, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", ExactText, primary_key=True),
    Column("name", ExactText, nullable=False),  # free again once its key is revoked
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

shutters = Table(
    "shutters",
    metadata,
    Column("what", Text, primary_key=True),  # "tool" or "server"
    Column("name", ExactText, primary_key=True),  # a tool's key, a server's name
    Column("by_whom", ExactText, nullable=False),  # `by` alone is a word of SQL
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
    Column("person", ExactText),  # None: whoever sits at this machine
    Column("conversation", ExactText),  # None: it holds in all of them
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
    Column("request", ExactText, nullable=False),  # masked and cut before it comes here
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
    Column("person", ExactText, primary_key=True),  # empty: everybody
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
