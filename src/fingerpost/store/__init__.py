"""Persistent state: journal, audit trail, pins, usage, learning data, approvals, grants, cache, tokens, API
keys, disabled tools, evals, memories and running processes.

Only this package uses the database library. The default is SQLite; a URL selects PostgreSQL.
"""

from fingerpost.store.approvals import ApprovalStore as ApprovalStore
from fingerpost.store.approvals import GrantStore as GrantStore
from fingerpost.store.audit import AuditEntry as AuditEntry
from fingerpost.store.audit import AuditQuery as AuditQuery
from fingerpost.store.audit import AuditReport as AuditReport
from fingerpost.store.audit import AuditTrail as AuditTrail
from fingerpost.store.cache import Cache as Cache
from fingerpost.store.cache import CacheLimits as CacheLimits
from fingerpost.store.credentials import ApiKey as ApiKey
from fingerpost.store.credentials import ApiKeyStore as ApiKeyStore
from fingerpost.store.credentials import InstallationSecret as InstallationSecret
from fingerpost.store.credentials import TokenStore as TokenStore
from fingerpost.store.database import StoreLocation as StoreLocation
from fingerpost.store.database import get_data_directory as get_data_directory
from fingerpost.store.database import resolve_location as resolve_location
from fingerpost.store.journal import Journal as Journal
from fingerpost.store.journal import JournalEntry as JournalEntry
from fingerpost.store.learning import ChoiceStore as ChoiceStore
from fingerpost.store.learning import ConfidenceStore as ConfidenceStore
from fingerpost.store.learning import EvalStore as EvalStore
from fingerpost.store.learning import StoredEval as StoredEval
from fingerpost.store.learning import UsageStore as UsageStore
from fingerpost.store.memories import Memory as Memory
from fingerpost.store.memories import MemoryOwner as MemoryOwner
from fingerpost.store.memories import MemoryStore as MemoryStore
from fingerpost.store.retention import RetentionLimits as RetentionLimits
from fingerpost.store.retention import StoreStatus as StoreStatus
from fingerpost.store.store import Store as Store
from fingerpost.store.trust import DisabledStore as DisabledStore
from fingerpost.store.trust import PinChanges as PinChanges
from fingerpost.store.trust import PinStore as PinStore
from fingerpost.store.writer import WriterStatistics as WriterStatistics
