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
from fingerpost.builtin.workspace.commands.ending import end_process
from fingerpost.builtin.workspace.commands.hardened import prepare_command
from fingerpost.builtin.workspace.commands.rules import build_program_not_found, find_program
from fingerpost.builtin.workspace.commands.sandbox import CommandSandbox, SandboxKind, find_sandbox_kind
from fingerpost.builtin.workspace.ground import RootFolder
from fingerpost.records import ServerSpec
from fingerpost.servers.guard import watchdog_client
from fingerpost.servers.process import describe_exit, spawn, wait_for_exit
from fingerpost.servers.ring import RingBuffer

# Beyond what every child process of ours gets: no secret has a name like these.
_PASSED_VARIABLES: Final = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_OUTPUT_DRAIN_S: Final = 1.0  # for what is still in the pipes once all processes are gone


@dataclass(slots=True, kw_only=True)
class RunningCommand:
    """A command, while it runs and after. `output` has the newest of both its streams, as they came."""

    words: Sequence[str]
    folder: str  # seen from the root
    seconds: float
    output: RingBuffer
    sandbox: CommandSandbox | None = None  # None: it runs outside of one
    sandbox_required: bool = False
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    end_reason: str = "running"
    status: int | None = None
    timed_out: bool = False
    finished: anyio.Event = field(default_factory=anyio.Event)

    @property
    def duration(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    async def run(self, root_folder: RootFolder, *, started: Callable[[], None] = lambda: None) -> None:
        """To its end, whatever that is. Nothing of it is left afterwards, also when this is cancelled.

        `started` hears that it runs. Raises `ToolRefused` when it cannot be started.
        """
        try:
            await self._run_command(root_folder, started)
        finally:
            self.ended = time.monotonic()
            if self.end_reason == "running":
                self.end_reason = "stopped"
            self.finished.set()

    async def _run_command(self, root_folder: RootFolder, started: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(watchdog_client.add_mark, self.mark)  # in case we are killed next
            await self._run_expected(root_folder, started)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(watchdog_client.remove_mark, self.mark)

    async def _run_expected(self, root_folder: RootFolder, started: Callable[[], None]) -> None:
        kind: SandboxKind = (
            "none" if self.sandbox is None else await anyio.to_thread.run_sync(find_sandbox_kind)
        )
        if self.sandbox_required and kind == "none":
            message = "There is no sandbox here, and builtin.workspace.sandbox requires one."
            raise ToolRefused(message, hint="It needs Linux with Landlock; `auto` runs commands without.")
        # Its private folder, where the sandbox cannot give it a /tmp of its own.
        scratch = None if kind != "files" else Path(await anyio.to_thread.run_sync(tempfile.mkdtemp))
        try:
            await self._run_in_sandbox(root_folder, kind, scratch, started)
        finally:
            if scratch is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(shutil.rmtree, scratch, True)  # noqa: FBT003

    async def _run_in_sandbox(
        self, root_folder: RootFolder, kind: SandboxKind, scratch: Path | None, started: Callable[[], None]
    ) -> None:
        folder = await anyio.to_thread.run_sync(_open_folder, root_folder, self.folder)
        try:
            spec = await anyio.to_thread.run_sync(self._build_spec, root_folder, folder, kind, scratch)
            process = await self._spawn_process(spec)
        finally:
            os.close(folder)
        try:
            await anyio.to_thread.run_sync(watchdog_client.add_group, process.pid)
            started()
            async with anyio.create_task_group() as tasks:
                assert process.stdin is not None and process.stdout is not None and process.stderr is not None
                await process.stdin.aclose()
                tasks.start_soon(self._read_output, process.stdout)
                tasks.start_soon(self._read_output, process.stderr)
                self.timed_out = not await wait_for_exit(process, self.seconds)
                self.status = process.returncode
                self.end_reason = (
                    f"stopped after {self.seconds:g} seconds" if self.timed_out else describe_exit(process)
                )
                with anyio.CancelScope(shield=True):
                    # What it left running holds its pipes open: no end of them comes before that is ended.
                    await end_process(process, self.mark, politely=self.timed_out)
                tasks.cancel_scope.deadline = anyio.current_time() + _OUTPUT_DRAIN_S
        finally:
            with anyio.CancelScope(shield=True):
                await end_process(process, self.mark, politely=True)
                await anyio.to_thread.run_sync(watchdog_client.remove_group, process.pid)

    async def _spawn_process(self, spec: ServerSpec) -> Process:
        try:
            return await spawn(spec, self.mark)
        except FileNotFoundError:
            raise build_program_not_found(self.words[0]) from None
        except OSError as error:
            message = f"{self.words[0]} could not be started: {error.strerror}."
            raise ToolRefused(message, hint="Check that it is a program and may be run.") from None

    def _build_spec(
        self, root_folder: RootFolder, folder: int, kind: SandboxKind, scratch: Path | None
    ) -> ServerSpec:
        passed = {name: value for name in _PASSED_VARIABLES if (value := os.environ.get(name))}
        where = root_folder.root / self.folder
        words, variables = prepare_command(self.words, root_folder.root, where)
        if self.sandbox is not None and kind != "none":
            if find_program(words[0], where) is None:
                raise build_program_not_found(self.words[0])
            words = self.sandbox.wrap_command(words, where, kind, scratch)
            temporary = str(scratch or "/tmp")  # noqa: S108 - its own
            passed |= {"TMPDIR": temporary, "XDG_CACHE_HOME": f"{temporary}/.cache"}
        return ServerSpec(
            name="command",
            transport="stdio",
            command=words[0],
            args=words[1:],
            env={**passed, **variables, "PWD": str(where)},
            cwd=_get_descriptor_path(folder, str(where)),
        )

    async def _read_output(self, stream: ByteReceiveStream) -> None:
        try:
            async for piece in stream:
                self.output.write(piece)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return


def _open_folder(root_folder: RootFolder, folder: str) -> int:
    with root_folder.open_entry(folder) as place:
        return place.open_folder()


def _get_descriptor_path(folder: int, where: str) -> str:
    """The folder by its descriptor, where the system can: its path may lead elsewhere by then."""
    return f"/proc/self/fd/{folder}" if sys.platform.startswith("linux") else where
