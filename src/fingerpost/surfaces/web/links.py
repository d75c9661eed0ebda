"""Addresses of the console that other surfaces send people to."""

from __future__ import annotations


def build_approval_url(address: str, pending_id: str) -> str:
    """Where a person decides about a call that waits."""
    return f"{address.rstrip('/')}/#/approvals/{pending_id}"
