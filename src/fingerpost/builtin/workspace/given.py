"""The arguments of one call, asked for by name and kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from fingerpost.builtin.kit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ParameterFault


@frozen(kw_only=False)
class ToolArguments:
    """Arguments that fit the schema; whether an operation has what it needs is asked here."""

    operation: str  # the operation, or the tool
    arguments: JsonObject

    def check(self, *, needs: Collection[str], takes: Collection[str]) -> None:
        """Refuse what is missing and what has no meaning here: a wish must not be passed over silently."""
        there = {name for name, value in self.arguments.items() if value is not None and name != "operation"}
        missing = [name for name in needs if name not in there]
        if missing:
            message = f"{self.operation} needs `{missing[0]}`."
            hint = f"It takes {self._format_parameters(needs, takes)}."
            raise ToolRefused(message, hint=hint, parameter=missing[0], fault=ParameterFault.MISSING)
        strange = sorted(there - {*needs, *takes})
        if strange:
            message = f"{self.operation} has no `{strange[0]}`."
            hint = f"It takes {self._format_parameters(needs, takes)}; leave out the rest."
            raise ToolRefused(message, hint=hint, parameter=strange[0])

    def _format_parameters(self, needs: Collection[str], takes: Collection[str]) -> str:
        words = [f"`{name}`" for name in needs] + [f"`{name}` (optional)" for name in takes]
        return ", ".join(words)

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def get_text(self, name: str, default: str = "") -> str:
        value = self.arguments.get(name)
        return value if isinstance(value, str) else default

    def get_flag(self, name: str) -> bool:
        return self.arguments.get(name) is True

    def get_number(self, name: str, default: int) -> int:
        value = self.arguments.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def get_records(self, name: str) -> Sequence[Mapping[str, object]]:
        value = self.arguments.get(name)
        return cast("Sequence[Mapping[str, object]]", value) if isinstance(value, list | tuple) else ()
