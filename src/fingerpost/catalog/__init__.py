"""The tool catalog: tool cards with names, effects and pins, published as immutable snapshots."""

from typing import TYPE_CHECKING

from fingerpost.lazy import build_lookup

if TYPE_CHECKING:
    from fingerpost.catalog.catalog import Catalog as Catalog
    from fingerpost.catalog.pins import DefinitionDifference as DefinitionDifference
    from fingerpost.catalog.pins import compute_fingerprint as compute_fingerprint
    from fingerpost.catalog.pins import find_differences as find_differences
    from fingerpost.catalog.snapshot import CatalogDiff as CatalogDiff
    from fingerpost.catalog.snapshot import Snapshot as Snapshot
    from fingerpost.catalog.snapshot import get_list_place as get_list_place
    from fingerpost.catalog.tool_names import build_exposed_name as build_exposed_name
    from fingerpost.catalog.tool_names import build_tool_key as build_tool_key
    from fingerpost.catalog.tool_names import escape_invisible_except as escape_invisible_except
    from fingerpost.catalog.unavailable import UnavailableTool as UnavailableTool
    from fingerpost.catalog.words import CATEGORIES as CATEGORIES
    from fingerpost.catalog.words import GENERAL as GENERAL
    from fingerpost.catalog.words import Category as Category

__getattr__, __dir__ = build_lookup(
    __name__,
    {
        "catalog": "Catalog",
        "pins": "DefinitionDifference compute_fingerprint find_differences",
        "snapshot": "CatalogDiff Snapshot get_list_place",
        "tool_names": "build_exposed_name build_tool_key escape_invisible_except",
        "unavailable": "UnavailableTool",
        "words": "CATEGORIES GENERAL Category",
    },
)
