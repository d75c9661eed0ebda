"""Tool cards: collected, named, judged, pinned, and given out as immutable snapshots."""

from fingerpost.catalog.absence import Absence
from fingerpost.catalog.catalog import Catalog
from fingerpost.catalog.categories import CATEGORIES, GENERAL, Category
from fingerpost.catalog.fingerprint import fingerprint
from fingerpost.catalog.names import exposed_name, tool_key, visible
from fingerpost.catalog.pins import Change, describe_change
from fingerpost.catalog.snapshot import Diff, Snapshot, list_place

__all__ = [
    "CATEGORIES",
    "GENERAL",
    "Absence",
    "Catalog",
    "Category",
    "Change",
    "Diff",
    "Snapshot",
    "describe_change",
    "exposed_name",
    "fingerprint",
    "list_place",
    "tool_key",
    "visible",
]
