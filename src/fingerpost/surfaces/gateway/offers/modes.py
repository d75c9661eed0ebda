"""Whether an endpoint shows its tools or a way to find them."""

from __future__ import annotations

from typing import Final

from fingerpost.router.sight import VisibleCatalog
from fingerpost.settings import SmartRoutingSettings

ROUTE_MODE: Final = "route"
ALL_MODE: Final = "all"


def resolve_mode(mode: str, view: VisibleCatalog, settings: SmartRoutingSettings) -> str:
    """`mode`, with auto decided: route where there are more tools than a model can look through."""
    if mode != "auto":
        return mode
    if settings.mode != "auto":
        return ROUTE_MODE if settings.mode == "on" else ALL_MODE
    many = len(view.visible.cards) > settings.max_tools and view.servers > settings.max_servers
    return ROUTE_MODE if many else ALL_MODE
