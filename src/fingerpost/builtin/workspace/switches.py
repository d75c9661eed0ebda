"""Whether our own tools act at all, and what a dry run says about that."""

from __future__ import annotations

from typing import Final

from fingerpost.frozen import frozen

_ENABLE_HINT: Final = (
    "`[tool_routing] {name} = true` in fingerpost.toml, or FINGERPOST_TOOL_ROUTING__{upper}=true, "
    "lets Fingerpost do it."
)


@frozen(kw_only=False)
class RunMode:
    """Whether one call acts. `is_dry_run`: it changes nothing and shows what it would do; `reason` says
    why.
    """

    is_dry_run: bool = False
    reason: str = ""

    @property
    def heading(self) -> str:
        """What stands above everything a dry run shows."""
        return f"Dry run, nothing was changed. {self.reason}".strip()


@frozen
class ActionSwitches:
    """The two switches of `tool_routing`."""

    write: bool
    execute: bool

    def get_write_mode(self, *, dry_run: bool) -> RunMode:
        return _build_run_mode(self.write, "allow_write", dry_run=dry_run)

    def get_execute_mode(self, *, dry_run: bool) -> RunMode:
        return _build_run_mode(self.execute, "allow_execute", dry_run=dry_run)


def _build_run_mode(on: bool, name: str, *, dry_run: bool) -> RunMode:
    if not on:
        return RunMode(is_dry_run=True, reason=_ENABLE_HINT.format(name=name, upper=name.upper()))
    return RunMode(is_dry_run=True, reason="`dry_run` was wished.") if dry_run else RunMode()
