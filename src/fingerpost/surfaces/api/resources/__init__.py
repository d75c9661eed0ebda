"""What there is in the house, over HTTP: tools, servers, pins, figures, settings, the audit trail."""

from __future__ import annotations

from fingerpost.insight import JournalReader
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api.operation import ApiOperation
from fingerpost.surfaces.api.resources import assets, audit, feedback, figures, pins, servers, settings, tools


def build_resource_operations(
    router: Router, ledger: JournalReader, loaded: Loaded | None = None
) -> tuple[ApiOperation, ...]:
    """All of them. `loaded` is what the settings were read from; without it nobody knows where from."""
    return (
        *tools.build_tool_operations(router),
        *servers.build_server_operations(router),
        *pins.build_pin_operations(router),
        *figures.build_statistics_operations(router, ledger),
        *feedback.build_feedback_operations(router),
        *settings.build_settings_operations(router, loaded),
        *audit.build_audit_operations(router),
        *assets.build_asset_operations(router),
    )
