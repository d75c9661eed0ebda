"""`jsonschema` validators that do not change with the content of a schema.

For a part of a schema with `$schema` the library would use the validator of that draft, without our limits
and with Python's `re` for untrusted patterns.
"""

from __future__ import annotations

from typing import Any


def pin_to_own_draft(kind: Any) -> None:
    """Make this validator class check every part of a schema itself."""
    fields = [(field.name, field.alias) for field in kind.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        for name, alias in fields:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        return kind(**changes)

    kind.evolve = evolve
