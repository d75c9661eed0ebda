"""Whether an endpoint shows its tools or a way to find them."""

from __future__ import annotations

from typing import Final

from fingerpost.router.sight import View
from fingerpost.settings import SmartRoutingSettings

ROUTE: Final = "route"
ALL: Final = "all"


def decide(mode: str, view: View, settings: SmartRoutingSettings) -> str:
    """`mode`, with auto decided: route where there are more tools than a model can look through."""
    if mode != "auto":
        return mode
    if settings.mode != "auto":
        return ROUTE if settings.mode == "on" else ALL
    many = len(view.visible.cards) > settings.max_tools and view.servers > settings.max_servers
    return ROUTE if many else ALL
