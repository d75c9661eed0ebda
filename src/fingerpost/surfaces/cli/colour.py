"""Colour for people who want it: `NO_COLOR` in the environment means none, https://no-color.org."""

from __future__ import annotations

import os

import click


def is_wanted() -> bool:
    """Whether anything may be coloured, bold or dim. An empty `NO_COLOR` says nothing."""
    return not os.environ.get("NO_COLOR")


def styled(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """`text` for a terminal, and as it is for somebody who wants no colour."""
    return click.style(text, fg=fg, bold=bold, dim=dim) if is_wanted() else text
