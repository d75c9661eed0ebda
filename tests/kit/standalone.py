"""A command that runs until it is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.kit.command_line import CommandLine

KEY = "a-key-that-nobody-guesses-0123456789"
PATIENCE = 60.0


class StandaloneServer:
    """Between `with` and its end. `output` is the JSON it prints once it serves."""

    def __init__(self, person: CommandLine, *arguments: str, extra: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            person.command(*arguments),
            cwd=person.home,
            env={**person.environment, **(extra or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.output: dict[str, Any] = {}

    def __enter__(self) -> Self:
        assert self.process.stdout is not None and self.process.stderr is not None
        text = ""
        while line := self.process.stdout.readline():
            text += line
            if line == "}\n":
                self.output = json.loads(text)
                return self
        raise AssertionError(self.process.stderr.read())

    def stop(self) -> int:
        """Ctrl-C, and how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.process.kill()
