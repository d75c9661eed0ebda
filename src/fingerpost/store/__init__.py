"""What Fingerpost remembers: journal, audit trail, pins, usage, choices, confidences, approvals, grants,
cache, tokens, keys, shutters, evals, memories, running processes.

The only package that knows the database library. SQLite by default, PostgreSQL by URL.
"""

from fingerpost.store.approvals import Approvals
from fingerpost.store.audit import AuditEntry, AuditQuery, AuditReport, AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.choices import Choices
from fingerpost.store.confidences import Confidences
from fingerpost.store.database import read_secret
from fingerpost.store.evals import Evals, KeptEval
from fingerpost.store.grants import Grants
from fingerpost.store.journal import Journal, PacketSummary, Recorded
from fingerpost.store.keys import ApiKey, Keys
from fingerpost.store.locations import Location, data_directory, locate
from fingerpost.store.memories import Memories, Memory, Owner
from fingerpost.store.pins import PinNews, Pins
from fingerpost.store.shutters import Shut, Shutter, Shutters
from fingerpost.store.store import Store
from fingerpost.store.tokens import Tokens
from fingerpost.store.usage import Usage
from fingerpost.store.writer import Statistics

__all__ = [
    "ApiKey",
    "Approvals",
    "AuditEntry",
    "AuditQuery",
    "AuditReport",
    "AuditTrail",
    "Cache",
    "CacheLimits",
    "Choices",
    "Confidences",
    "Evals",
    "Grants",
    "Journal",
    "KeptEval",
    "Keys",
    "Location",
    "Memories",
    "Memory",
    "Owner",
    "PacketSummary",
    "PinNews",
    "Pins",
    "Recorded",
    "Shut",
    "Shutter",
    "Shutters",
    "Statistics",
    "Store",
    "Tokens",
    "Usage",
    "data_directory",
    "locate",
    "read_secret",
]
