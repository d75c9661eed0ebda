"""What Fingerpost remembers: journal, audit trail, pins, usage, choices, confidences, approvals, grants,
cache, tokens, keys.

The only package that knows the database library. SQLite by default, PostgreSQL by URL.
"""

from fingerpost.store.approvals import Approvals
from fingerpost.store.audit import AuditEntry, AuditReport, AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.choices import Choices
from fingerpost.store.confidences import Confidences
from fingerpost.store.grants import Grants
from fingerpost.store.journal import Journal, PacketSummary, Recorded
from fingerpost.store.keys import ApiKey, Keys
from fingerpost.store.locations import Location, data_directory, locate
from fingerpost.store.pins import Pins
from fingerpost.store.store import Store
from fingerpost.store.tokens import Tokens
from fingerpost.store.usage import Usage
from fingerpost.store.writer import Statistics

__all__ = [
    "ApiKey",
    "Approvals",
    "AuditEntry",
    "AuditReport",
    "AuditTrail",
    "Cache",
    "CacheLimits",
    "Choices",
    "Confidences",
    "Grants",
    "Journal",
    "Keys",
    "Location",
    "PacketSummary",
    "Pins",
    "Recorded",
    "Statistics",
    "Store",
    "Tokens",
    "Usage",
    "data_directory",
    "locate",
]
