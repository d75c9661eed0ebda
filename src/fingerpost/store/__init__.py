"""What Fingerpost remembers: journal, audit trail, pins, usage, choices, confidences, approvals, grants,
cache, tokens, keys, shutters, evals, memories, running processes.

The only package that knows the database library. SQLite by default, PostgreSQL by URL.
"""

from fingerpost.store.approvals import ApprovalStore
from fingerpost.store.audit import AuditEntry, AuditQuery, AuditReport, AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.choices import ChoiceStore
from fingerpost.store.confidences import ConfidenceStore
from fingerpost.store.database import read_secret
from fingerpost.store.evals import EvalStore, StoredEval
from fingerpost.store.grants import GrantStore
from fingerpost.store.journal import Journal, JournalEntry, PacketSummary
from fingerpost.store.keys import ApiKey, ApiKeyStore
from fingerpost.store.locations import StoreLocation, get_data_directory, resolve_location
from fingerpost.store.memories import Memory, MemoryOwner, MemoryStore
from fingerpost.store.pins import PinChanges, PinStore
from fingerpost.store.shutters import DisabledEntry, DisabledKind, DisabledStore
from fingerpost.store.store import Store
from fingerpost.store.tokens import TokenStore
from fingerpost.store.usage import UsageStore
from fingerpost.store.writer import WriterStatistics

__all__ = [
    "ApiKey",
    "ApiKeyStore",
    "ApprovalStore",
    "AuditEntry",
    "AuditQuery",
    "AuditReport",
    "AuditTrail",
    "Cache",
    "CacheLimits",
    "ChoiceStore",
    "ConfidenceStore",
    "DisabledEntry",
    "DisabledKind",
    "DisabledStore",
    "EvalStore",
    "GrantStore",
    "Journal",
    "JournalEntry",
    "Memory",
    "MemoryOwner",
    "MemoryStore",
    "PacketSummary",
    "PinChanges",
    "PinStore",
    "Store",
    "StoreLocation",
    "StoredEval",
    "TokenStore",
    "UsageStore",
    "WriterStatistics",
    "get_data_directory",
    "read_secret",
    "resolve_location",
]
