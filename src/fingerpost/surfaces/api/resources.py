"""The operations about tools, servers, pins, statistics, feedback, settings, the audit trail and assets."""

from __future__ import annotations

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api.audit import build_audit_operations
from fingerpost.surfaces.api.learning import build_feedback_operations, build_statistics_operations
from fingerpost.surfaces.api.operation import ApiOperation
from fingerpost.surfaces.api.servers import build_pin_operations, build_server_operations
from fingerpost.surfaces.api.settings import build_settings_operations
from fingerpost.surfaces.api.tools import build_asset_operations, build_tool_operations


def build_resource_operations(
    router: Router, ledger: JournalReader, loaded: Loaded | None = None
) -> tuple[ApiOperation, ...]:
    """Return all of these operations. `loaded` is where the settings were read from, if known."""
    return (
        *build_tool_operations(router),
        *build_server_operations(router),
        *build_pin_operations(router),
        *build_statistics_operations(router, ledger),
        *build_feedback_operations(router),
        *build_settings_operations(router, loaded),
        *build_audit_operations(router),
        *build_asset_operations(router),
    )
