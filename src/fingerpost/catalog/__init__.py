"""Tool cards: collected, named, judged, pinned, and given out as immutable snapshots."""

from fingerpost.catalog.absence import UnavailableTool
from fingerpost.catalog.catalog import Catalog
from fingerpost.catalog.categories import CATEGORIES, GENERAL, Category
from fingerpost.catalog.fingerprint import compute_fingerprint
from fingerpost.catalog.names import build_exposed_name, build_tool_key, escape_invisible_except
from fingerpost.catalog.pins import DefinitionDifference, find_differences
from fingerpost.catalog.snapshot import CatalogDiff, Snapshot, get_list_place

__all__ = [
    "CATEGORIES",
    "GENERAL",
    "Catalog",
    "CatalogDiff",
    "Category",
    "DefinitionDifference",
    "Snapshot",
    "UnavailableTool",
    "build_exposed_name",
    "build_tool_key",
    "compute_fingerprint",
    "escape_invisible_except",
    "find_differences",
    "get_list_place",
]
