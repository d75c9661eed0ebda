"""Persistent state: journal, audit trail, pins, usage, learning data, approvals, grants, cache, tokens, API
keys, disabled tools, evals, memories and running processes.

Only this package uses the database library. The default is SQLite; a URL selects PostgreSQL.
"""

from fingerpost.store.api_keys import ApiKey, ApiKeyStore
from fingerpost.store.approvals import ApprovalStore, GrantStore
from fingerpost.store.audit import AuditEntry, AuditQuery, AuditReport, AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.database import StoreLocation, get_data_directory, resolve_location
from fingerpost.store.journal import Journal, JournalEntry
from fingerpost.store.learning import ChoiceStore, ConfidenceStore, EvalStore, StoredEval, UsageStore
from fingerpost.store.memories import Memory, MemoryOwner, MemoryStore
from fingerpost.store.retention import RetentionLimits, StoreStatus
from fingerpost.store.store import Store
from fingerpost.store.trust import (
    DisabledStore,
    InstallationSecret,
    PinChanges,
    PinStore,
    TokenStore,
)
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
    "DisabledStore",
    "EvalStore",
    "GrantStore",
    "InstallationSecret",
    "Journal",
    "JournalEntry",
    "Memory",
    "MemoryOwner",
    "MemoryStore",
    "PinChanges",
    "PinStore",
    "RetentionLimits",
    "Store",
    "StoreLocation",
    "StoreStatus",
    "StoredEval",
    "TokenStore",
    "UsageStore",
    "WriterStatistics",
    "get_data_directory",
    "resolve_location",
]
