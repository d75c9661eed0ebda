"""The real command, serving on a port: started, killed, started again, asked from every side."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from tests.integration.scripted_upstream import ScriptedUpstream
from tests.kit import warm
from tests.kit.programs import PATH, program

PATIENCE_S = 50.0


@dataclass
class ServeProgram:
    """`fingerpost serve` in a folder of its own."""

    folder: Path
    environment: dict[str, str]
    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    address: str = ""
    _running: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def workspace(self) -> Path:
        """The folder the file server may write to."""
        return self.folder / "workspace"

    # -- its life -----------------------------------------------------------------------------------

    def start(self, **settings: str) -> None:
        """Serves; at the same address as before where it was started before."""
        port = self.address.rpartition(":")[2] or "0"
        with (self.folder / "log").open("a", encoding="utf-8") as log:
            self._running = subprocess.Popen(
                [*warm.command(), "serve", "--servers", "mcp.json", "--port", port, "--json"],
                cwd=self.folder,
                env={**self.environment, **settings},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._running.stdout is not None
        output = ""
        while (line := self._running.stdout.readline()) != "}\n":
            assert line, (self.folder / "log").read_text(encoding="utf-8")
            output += line
        self.address = json.loads(output + "}")["address"]

    def kill(self) -> None:
        """No good-bye: SIGKILL."""
        assert self._running is not None and self._running.stdout is not None
        self._running.kill()
        self._running.wait(PATIENCE_S)
        self._running.stdout.read()  # ends when the forked process is gone, and its port with it
        self._running.stdout.close()
        self._running = None

    # -- its surfaces -------------------------------------------------------------------------------

    def openai(self, key: str = "any key does") -> OpenAI:
        """The openai client, with nothing changed but the base URL."""
        return OpenAI(base_url=f"{self.address}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)

    def http(self, key: str | None = None) -> httpx2.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=PATIENCE_S)

    def get(self, path: str, **params: Any) -> Any:
        with self.http() as client:
            return client.get(path, params=params).raise_for_status().json()

    def runs(self, *arguments: str) -> str:
        """What another command says, on the same store."""
        done = subprocess.run(
            [*warm.command(), *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def sign_in(self) -> str:
        """The place in the console that `fingerpost console` leads to, where one is signed in."""
        address, _, path = self.runs("console", "--servers", "mcp.json").strip().partition("/#")
        assert address == self.address
        return f"#{path}"

    # -- what its file server did -------------------------------------------------------------------

    def writes(self) -> list[dict[str, Any]]:
        """Arguments of every call that reached the real file server, in order."""
        wire = self.folder / "files.wire"
        if not wire.exists():  # it has not been started yet
            return []
        data = [json.loads(line) for line in wire.read_text(encoding="utf-8").splitlines()]
        return [one["params"]["arguments"] for one in data if one.get("method") == "tools/call"]


@dataclass(frozen=True)
class ProgramWithModel:
    """A running program and the model it asks."""

    program: ServeProgram
    upstream: ScriptedUpstream


def file_server(folder: Path) -> dict[str, Any]:
    """The real file server, with a copy of all its input beside it."""
    workspace = folder / "workspace"
    workspace.mkdir()
    line = f"tee -a {folder}/files.wire | exec {program('mcp-server-filesystem')} {workspace}"
    return {"command": "sh", "args": ["-c", line]}


def clock_server() -> dict[str, Any]:
    return {"command": warm.server("mcp-server-time"), "args": ["--local-timezone", "Etc/UTC"]}


@contextmanager
def run_program(
    folder: Path, servers: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Generator[ServeProgram]:
    """A program with these servers, and with what the environment sets beside a store of its own."""
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": dict(servers)}), encoding="utf-8")
    given = {
        "PATH": os.pathsep.join([warm.folder(), PATH]),
        "HOME": str(folder),
        "COLUMNS": "200",
        "FINGERPOST_STORE__URL": f"sqlite:///{folder}/store.db",
        "FINGERPOST_COMPLETIONS__APPROVAL_SECONDS": "30",  # a test that fails does not wait for longer
        "FINGERPOST_FLAGS__DENSE_SCORES": "false",  # words are enough here; vectors take time to make
    }
    made = ServeProgram(folder, {**given, **(environment or {})}, dict(servers))
    made.start()
    try:
        yield made
    finally:
        made.kill()
