"""Several expert views side by side, then one synthesis."""

from fingerpost.builtin.specialists.orchestration.tool import PANEL_TOOL, build_panel_tool

__all__ = ["PANEL_TOOL", "build_panel_tool"]
