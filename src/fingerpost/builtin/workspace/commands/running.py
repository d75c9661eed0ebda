"""One command from its start to its end: its output kept within a bound, its time limited."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.commands.ending import end
from fingerpost.builtin.workspace.commands.hardened import prepare
from fingerpost.builtin.workspace.commands.rules import find_program, program_not_found
from fingerpost.builtin.workspace.commands.sandbox import Kind, Sandbox, find_kind
from fingerpost.builtin.workspace.ground import Ground
from fingerpost.records import ServerSpec
from fingerpost.servers.guard import guard
from fingerpost.servers.process import exits_within, how_it_ended, spawn
from fingerpost.servers.ring import Ring

# Beyond what every child process of ours gets: no secret has a name like these.
_PASSED_ON: Final = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_LAST_WORDS: Final = 1.0  # for what is still in the pipes once all processes are gone


@dataclass(slots=True, kw_only=True)
class Running:
    """A command, while it runs and after. `output` has the newest of both its streams, as they came."""

    words: Sequence[str]
    folder: str  # seen from the root
    seconds: float
    output: Ring
    sandbox: Sandbox | None = None  # None: it runs outside of one
    sandbox_required: bool = False
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    how: str = "running"
    status: int | None = None
    timed_out: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def took(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    async def run(self, ground: Ground, *, started: Callable[[], None] = lambda: None) -> None:
        """To its end, whatever that is. Nothing of it is left afterwards, also when this is cancelled.

        `started` hears that it runs. Raises `ToolRefused` when it cannot be started.
        """
        try:
            await self._run(ground, started)
        finally:
            self.ended = time.monotonic()
            if self.how == "running":
                self.how = "stopped"
            self.over.set()

    async def _run(self, ground: Ground, started: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(guard.expect, self.mark)  # in case we are killed next
            await self._run_expected(ground, started)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(guard.forget, self.mark)

    async def _run_expected(self, ground: Ground, started: Callable[[], None]) -> None:
        kind: Kind = "none" if self.sandbox is None else await anyio.to_thread.run_sync(find_kind)
        if self.sandbox_required and kind == "none":
            message = "There is no sandbox here, and builtin.workspace.sandbox requires one."
            raise ToolRefused(message, hint="It needs Linux with Landlock; `auto` runs commands without.")
        # Its private folder, where the sandbox cannot give it a /tmp of its own.
        scratch = None if kind != "files" else Path(await anyio.to_thread.run_sync(tempfile.mkdtemp))
        try:
            await self._run_in(ground, kind, scratch, started)
        finally:
            if scratch is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(shutil.rmtree, scratch, True)  # noqa: FBT003

    async def _run_in(
        self, ground: Ground, kind: Kind, scratch: Path | None, started: Callable[[], None]
    ) -> None:
        folder = await anyio.to_thread.run_sync(_open_folder, ground, self.folder)
        try:
            spec = await anyio.to_thread.run_sync(self._spec, ground, folder, kind, scratch)
            process = await self._spawn(spec)
        finally:
            os.close(folder)
        try:
            await anyio.to_thread.run_sync(guard.add, process.pid)
            started()
            async with anyio.create_task_group() as tasks:
                assert process.stdin is not None and process.stdout is not None and process.stderr is not None
                await process.stdin.aclose()
                tasks.start_soon(self._keep, process.stdout)
                tasks.start_soon(self._keep, process.stderr)
                self.timed_out = not await exits_within(process, self.seconds)
                self.status = process.returncode
                self.how = (
                    f"stopped after {self.seconds:g} seconds" if self.timed_out else how_it_ended(process)
                )
                with anyio.CancelScope(shield=True):
                    # What it left running holds its pipes open: no end of them comes before that is ended.
                    await end(process, self.mark, politely=self.timed_out)
                tasks.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS
        finally:
            with anyio.CancelScope(shield=True):
                await end(process, self.mark, politely=True)
                await anyio.to_thread.run_sync(guard.remove, process.pid)

    async def _spawn(self, spec: ServerSpec) -> Process:
        try:
            return await spawn(spec, self.mark)
        except FileNotFoundError:
            raise program_not_found(self.words[0]) from None
        except OSError as error:
            message = f"{self.words[0]} could not be started: {error.strerror}."
            raise ToolRefused(message, hint="Check that it is a program and may be run.") from None

    def _spec(self, ground: Ground, folder: int, kind: Kind, scratch: Path | None) -> ServerSpec:
        passed = {name: value for name in _PASSED_ON if (value := os.environ.get(name))}
        where = ground.root / self.folder
        words, variables = prepare(self.words, ground.root, where)
        if self.sandbox is not None and kind != "none":
            if find_program(words[0], where) is None:
                raise program_not_found(self.words[0])
            words = self.sandbox.wrap(words, where, kind, scratch)
            temporary = str(scratch or "/tmp")  # noqa: S108 - its own
            passed |= {"TMPDIR": temporary, "XDG_CACHE_HOME": f"{temporary}/.cache"}
        return ServerSpec(
            name="command",
            transport="stdio",
            command=words[0],
            args=words[1:],
            env={**passed, **variables, "PWD": str(where)},
            cwd=_held(folder, str(where)),
        )

    async def _keep(self, stream: ByteReceiveStream) -> None:
        try:
            async for piece in stream:
                self.output.write(piece)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return


def _open_folder(ground: Ground, folder: str) -> int:
    with ground.at(folder) as place:
        return place.open_folder()


def _held(folder: int, where: str) -> str:
    """The folder by its descriptor, where the system can: its path may lead elsewhere by then."""
    return f"/proc/self/fd/{folder}" if sys.platform.startswith("linux") else where
