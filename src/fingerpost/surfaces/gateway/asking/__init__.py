"""Asking the person behind the client: a server's questions, and the approval of calls."""

from __future__ import annotations

from fingerpost.surfaces.gateway.asking.calls import InputRequiredCalls, open_calls

__all__ = ["InputRequiredCalls", "open_calls"]
