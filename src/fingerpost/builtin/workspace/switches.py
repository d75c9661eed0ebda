"""Whether our own tools act at all, and what a dry run says about that."""

from __future__ import annotations

from typing import Final

from fingerpost.frozen import frozen

_HOW: Final = (
    "`[tool_routing] {name} = true` in fingerpost.toml, or FINGERPOST_TOOL_ROUTING__{upper}=true, "
    "lets Fingerpost do it."
)


@frozen(kw_only=False)
class Act:
    """Whether one call acts. `dry`: it changes nothing and shows what it would do; `why` says why."""

    dry: bool = False
    why: str = ""

    @property
    def heading(self) -> str:
        """What stands above everything a dry run shows."""
        return f"Dry run, nothing was changed. {self.why}".strip()


@frozen
class Switches:
    """The two switches of `tool_routing`."""

    write: bool
    execute: bool

    def writing(self, *, wished_dry: bool) -> Act:
        return _act(self.write, "allow_write", wished_dry=wished_dry)

    def executing(self, *, wished_dry: bool) -> Act:
        return _act(self.execute, "allow_execute", wished_dry=wished_dry)


def _act(on: bool, name: str, *, wished_dry: bool) -> Act:
    if not on:
        return Act(dry=True, why=_HOW.format(name=name, upper=name.upper()))
    return Act(dry=True, why="`dry_run` was wished.") if wished_dry else Act()
