"""A folder, a home and an environment of the test's own, and short ways to load settings in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fingerpost.errors import ConfigError
from fingerpost.settings import Loaded, Problem, check, load


@dataclass
class SettingsFolders:
    """Where a test's files lie. Nothing of the person who runs the tests is looked at."""

    cwd: Path
    home: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config"), **self.variables}

    def write(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def load(
        self,
        *,
        config: Path | None = None,
        servers: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        lenient_servers: bool = True,
    ) -> Loaded:
        return load(config, servers, overrides, self.environ, self.cwd, lenient_servers=lenient_servers)

    def check(
        self, *, servers: Path | None = None, overrides: Mapping[str, Any] | None = None
    ) -> tuple[Problem, ...]:
        return check(None, servers, overrides, self.environ, self.cwd)

    def refusal(self) -> ConfigError:
        """The error that loading raises here."""
        try:
            self.load()
        except ConfigError as error:
            return error
        raise AssertionError("loading was expected to fail")
