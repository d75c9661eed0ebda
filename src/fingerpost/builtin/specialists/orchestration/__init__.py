"""Several expert views side by side, then one synthesis."""

from fingerpost.builtin.specialists.orchestration.tool import NAME, orchestration_tool

__all__ = ["NAME", "orchestration_tool"]
