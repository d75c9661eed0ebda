"""What built-in servers may use of their host: settings, working directory, and the router if there is
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.records import CallContext, JsonObject
from fingerpost.settings import Settings

if TYPE_CHECKING:
    from fingerpost.router import Router


@dataclass(slots=True, kw_only=True)
class BuiltinHost:
    """The settings, the working directory, and the router once it is open (None: the server runs alone)."""

    settings: Settings = field(default_factory=Settings)
    folder: Path = field(default_factory=Path.cwd)
    router: Router | None = None

    def get_context(self, call_id: str) -> CallContext | None:
        """Return the context of a running call."""
        return None if self.router is None else self.router.calls.get_context(call_id)

    def is_granted(self, call_id: str, name: str, arguments: JsonObject) -> bool:
        """Return whether a person granted exactly this call."""
        return self.router is not None and self.router.calls.is_granted(call_id, name, arguments)

    @property
    def required_router(self) -> Router:
        """The router. Raises `ToolRefused` if there is none, because the tool needs one."""
        if self.router is None:
            message = "This tool works only inside of Fingerpost, not when its server runs alone."
            raise ToolRefused(message, hint="Name it in builtin.enabled and call it through Fingerpost.")
        return self.router

    def resolve_path(self, given: str | None, default: str = ".") -> Path:
        """Return a folder of the settings: relative to the working directory, `~` for home."""
        return (self.folder / Path(given or default).expanduser()).absolute()
