"""Input from the person behind a client: questions of servers (elicitation), and approvals of calls."""

from __future__ import annotations

from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls, open_calls

__all__ = ["InputRequiredCalls", "open_calls"]
