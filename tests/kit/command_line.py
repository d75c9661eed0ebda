"""A person at a terminal: a folder, a store of their own, and the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import warm
from tests.kit.programs import PATH, program
from tests.kit.stores import place_empty_store

FILE_SERVER = Path(__file__).with_name("file_server.py")
# `tests/choose/keyless/test_arguments.py` compares their input schemas with those of the real servers.
REAL_TOOLS = Path(__file__).parents[1] / "choose" / "keyless" / "real_tools.jsonl"


@dataclass
class CommandLine:
    """Runs `fingerpost` in a folder of their own."""

    home: Path
    servers: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        place_empty_store(self.home)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([warm.folder(), PATH]),
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "data"),
            "FINGERPOST_STORE__URL": f"sqlite:///{self.home}/store.db",
            "FINGERPOST_FLAGS__DENSE_SCORES": "false",  # loading the encoder takes longer than most commands
        }

    def has(self, name: str, tools: list[Any] | None = None, **entry: Any) -> Path:
        """Configure a server: from a list of tools, or as given. Returns the file its tools stand in."""
        file = self.home / f"{name}-tools.json"
        if tools is not None:
            file.write_text(json.dumps(tools), encoding="utf-8")
            # An interpreter without packages starts quicker than what has loaded everything is forked.
            arguments = ["-I", "-S", str(FILE_SERVER), str(file)]
            entry = {"command": sys.executable, "args": arguments, **entry}
        self.servers[name] = entry
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": self.servers}), encoding="utf-8")
        return file

    def has_files(self) -> None:
        """The definitions of the file-system server from npm, over tools that work anywhere.

        Starting Node takes longer than most commands do; `tests/servers/test_real_servers.py` starts it. Its
        hints are trusted, as those of the real one are.
        """
        lines = REAL_TOOLS.read_text(encoding="utf-8").splitlines()
        tools = [one["definition"] for one in map(json.loads, lines) if one["server"] == "files"]
        self.has("files", tools, trust_hints=True)

    def has_fault(self, name: str, fault: str) -> None:
        self.has(name, **_python("-m", "fingerpost.testing.faults.stdio", fault))

    def writes(self, name: str, text: str) -> Path:
        file = self.home / name
        file.write_text(text, encoding="utf-8")
        return file

    def command(self, *arguments: str) -> list[str]:
        """The command, forked from a process that has loaded it already."""
        return [*warm.command(), *self._build_arguments(arguments)]

    def cold_command(self, *arguments: str) -> list[str]:
        """The command as it is installed, with its start-up."""
        return [program("fingerpost"), *self._build_arguments(arguments)]

    def _build_arguments(self, arguments: tuple[str, ...]) -> list[str]:
        named = self.servers and "--servers" not in arguments
        return [*arguments, *(("--servers", str(self.home / "mcp.json")) if named else ())]

    def runs(
        self, *arguments: str, extra: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return warm.run_command(
            self._build_arguments(arguments),
            folder=self.home,
            environment={**self.environment, **(extra or {})},
            stdin=stdin,
            timeout=150,
        )

    def reads(self, *arguments: str) -> Any:
        """The JSON a command prints."""
        done = self.runs(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


def _python(*arguments: str) -> dict[str, Any]:
    command, *before = warm.python()
    return {"command": command, "args": [*before, *arguments]}


def tool(name: str, description: str = "Does something.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}
