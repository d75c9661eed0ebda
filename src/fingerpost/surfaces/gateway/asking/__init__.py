"""Asking the person behind the client: a server's questions, and the approval of calls."""

from __future__ import annotations

from fingerpost.surfaces.gateway.asking.calls import AskedCalls, open_asking

__all__ = ["AskedCalls", "open_asking"]
