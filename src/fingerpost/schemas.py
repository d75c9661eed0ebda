"""Validators of the `jsonschema` library that stay what they are, whatever a schema says inside.

A part of a schema that names a draft (`$schema`) gets that draft's own validator from the
library: without our bounds, and with Python's `re` for a stranger's patterns.
"""

from __future__ import annotations

from typing import Any


def pin_to_own_draft(kind: Any) -> None:
    """Make this class of validators, which is our own, check every part of a schema itself."""
    fields = [(field.name, field.alias) for field in kind.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        for name, alias in fields:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        return kind(**changes)

    kind.evolve = evolve
