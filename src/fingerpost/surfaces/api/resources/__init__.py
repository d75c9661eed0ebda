"""What there is in the house, over HTTP: tools, servers, pins, figures, settings, the audit trail."""

from __future__ import annotations

from fingerpost.insight import Ledger
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api.operation import Operation
from fingerpost.surfaces.api.resources import assets, audit, feedback, figures, pins, servers, settings, tools


def operations(router: Router, ledger: Ledger, loaded: Loaded | None = None) -> tuple[Operation, ...]:
    """All of them. `loaded` is what the settings were read from; without it nobody knows where from."""
    return (
        *tools.operations(router),
        *servers.operations(router),
        *pins.operations(router),
        *figures.operations(router, ledger),
        *feedback.operations(router),
        *settings.operations(router, loaded),
        *audit.operations(router),
        *assets.operations(router),
    )
