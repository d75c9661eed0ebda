"""Input from the client's user: elicitation by servers, and approval of calls."""

from __future__ import annotations

from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls

__all__ = ["InputRequiredCalls"]
