"""The tool catalog: tool cards with names, effects and pins, published as immutable snapshots."""

from fingerpost.catalog.catalog import Catalog
from fingerpost.catalog.pins import DefinitionDifference, compute_fingerprint, find_differences
from fingerpost.catalog.snapshot import CatalogDiff, Snapshot, get_list_place
from fingerpost.catalog.tool_names import build_exposed_name, build_tool_key, escape_invisible_except
from fingerpost.catalog.unavailable import UnavailableTool
from fingerpost.catalog.words import CATEGORIES, GENERAL, Category

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
