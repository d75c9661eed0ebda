"""Commands as processes: start, limits, end, and background jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process, TaskStatus

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.command_rules import (
    PROGRAM_DATA,
    PROGRAMS,
    build_program_not_found_error,
    find_program,
    find_unsafe,
)
from fingerpost.builtin.workspace.paths import RootFolder
from fingerpost.builtin.workspace.sandbox import CommandSandbox, SandboxKind, find_sandbox_kind
from fingerpost.frozen import frozen
from fingerpost.records import ServerSpec
from fingerpost.servers.process import (
    KILL_GRACE,
    TERM_GRACE,
    RingBuffer,
    close_pipes,
    describe_exit,
    spawn,
    wait_for_exit,
    watchdog_client,
)
from fingerpost.servers.watchdog import kill_marked
from fingerpost.tasks import TaskOwner


async def end_process(process: Process, process_mark: str, *, politely: bool) -> None:
    """End the command with all its child processes, within a time limit."""
    if politely and process.returncode is None:
        _send_signal(process.pid, signal.SIGTERM)
        await wait_for_exit(process, TERM_GRACE)
    _send_signal(process.pid, signal.SIGKILL)  # even if it has ended: its children are in the same group
    await anyio.to_thread.run_sync(kill_marked, process_mark)
    await wait_for_exit(process, KILL_GRACE)
    await close_pipes(process)


def _send_signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


PreparedCommand = tuple[tuple[str, ...], Mapping[str, str]]  # the words, and additional environment variables

# Settings whose names depend on the repository. `.gitattributes`, which a model may write, selects them.
_GIT_NAMED_SETTING_PATTERN: Final = re.compile(
    r"(?P<filter>filter\..+\.(clean|smudge|process))|(?P<required>filter\..+\.required)"
    r"|(?P<other>diff\..+\.(command|textconv)|credential\..+\.helper|remote\..+\.(vcs|uploadpack|proxy))",
    re.IGNORECASE | re.DOTALL,
)
_GIT: Final[Mapping[str, Any]] = PROGRAM_DATA["git"]
_LIST_TIMEOUT_S: Final = 20.0


def prepare_command(words: Sequence[str], root: Path, folder: Path) -> PreparedCommand:
    """Return the command as it is started. Only known safe commands are changed. Blocks."""
    if words[0] not in PROGRAMS or find_unsafe(words, str(root)) is not None:
        return tuple(words), {}
    if words[0] == "rg":
        return ("rg", "--no-config", *words[1:]), {}
    return _prepare_git(words, folder) if words[0] == "git" else (tuple(words), {})


def _prepare_git(words: Sequence[str], folder: Path) -> PreparedCommand:
    _refuse_bare_repository(folder)
    settings: list[str] = [*_GIT["settings"]]
    for name in _list_git_settings(folder):
        found = _GIT_NAMED_SETTING_PATTERN.fullmatch(name)
        if found is not None:
            settings.append(f"{name}={'false' if found['required'] else ''}")
    options = [part for setting in settings for part in ("-c", setting)]
    subcommand, *rest = words[1:]
    added: Sequence[str] = _GIT["options"].get(subcommand, ())
    return ("git", "--no-pager", *options, subcommand, *added, *rest), _GIT["variables"]


def _list_git_settings(folder: Path) -> list[str]:
    """Return the names of all settings of the repository, without starting programs they name."""
    passed = ("HOME", "PATH", "XDG_CONFIG_HOME")
    environment = {name: os.environ[name] for name in passed if name in os.environ}
    command = shlex.split("git --no-pager -c safe.bareRepository=explicit config -z --name-only --list")
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, **_GIT["variables"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return []  # git is not installed: starting the command reports that
    except subprocess.TimeoutExpired:
        raise ToolRefused("git did not list its settings in time.", hint="Try again.") from None
    return [name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if "=" not in name]


def _refuse_bare_repository(folder: Path) -> None:
    """Raise `ToolRefused` if git would take the folder for a bare repository, as older versions do."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return
        if all((candidate / name).exists() for name in ("HEAD", "objects", "refs")):
            message = f"{candidate} looks like a bare repository, whose settings could run programs."
            raise ToolRefused(message, hint="git is used only in folders with a .git of their own.")


# In addition to the variables of every child process. None of these can hold a secret.
_PASSED_VARIABLES: Final = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_OUTPUT_DRAIN_S: Final = 1.0  # to read the pipes after all processes have ended


@dataclass(slots=True, kw_only=True)
class RunningCommand:
    """A running or ended command. `output` holds the latest part of both streams, in order of arrival."""

    words: Sequence[str]
    folder: str  # relative to the root
    seconds: float
    output: RingBuffer
    sandbox: CommandSandbox | None = None  # None: without a sandbox
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

    async def run(self, root_folder: RootFolder, *, on_started: Callable[[], None] = lambda: None) -> None:
        """Run the command to its end. No process of it is left afterwards, even on cancellation.

        `started` is called when it runs. Raises `ToolRefused` if it cannot be started.
        """
        try:
            try:
                # The watchdog ends processes with this mark if this process is killed.
                await anyio.to_thread.run_sync(watchdog_client.add_mark, self.mark)
                await self._run_with_scratch(root_folder, on_started)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(watchdog_client.remove_mark, self.mark)
        finally:
            self.ended = time.monotonic()
            if self.end_reason == "running":
                self.end_reason = "stopped"
            self.finished.set()

    async def _run_with_scratch(self, root_folder: RootFolder, on_started: Callable[[], None]) -> None:
        kind: SandboxKind = "none"
        if self.sandbox is not None:
            kind = await anyio.to_thread.run_sync(find_sandbox_kind)
        if self.sandbox_required and kind == "none":
            message = "There is no sandbox here, and builtin.workspace.sandbox requires one."
            raise ToolRefused(message, hint="It needs Linux with Landlock; `auto` runs commands without.")
        # A private folder, if the sandbox cannot provide its own /tmp.
        scratch = None if kind != "files" else Path(await anyio.to_thread.run_sync(tempfile.mkdtemp))
        try:
            await self._run_in_sandbox(root_folder, kind, scratch, on_started)
        finally:
            if scratch is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(shutil.rmtree, scratch, True)  # noqa: FBT003

    async def _run_in_sandbox(
        self, root_folder: RootFolder, kind: SandboxKind, scratch: Path | None, on_started: Callable[[], None]
    ) -> None:
        folder = await anyio.to_thread.run_sync(_open_folder, root_folder, self.folder)
        try:
            spec = await anyio.to_thread.run_sync(self._build_spec, root_folder, folder, kind, scratch)
            process = await self._spawn_process(spec)
        finally:
            os.close(folder)
        try:
            await anyio.to_thread.run_sync(watchdog_client.add_group, process.pid)
            on_started()
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
                    # Remaining child processes hold the pipes open, so they are ended first.
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
            raise build_program_not_found_error(self.words[0]) from None
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
                raise build_program_not_found_error(self.words[0])
            words = self.sandbox.wrap_command(words, where, kind, scratch)
            temporary = str(scratch or "/tmp")  # noqa: S108 - private to the command
            passed |= {"TMPDIR": temporary, "XDG_CACHE_HOME": f"{temporary}/.cache"}
        return ServerSpec(
            name="command",
            transport="stdio",
            command=words[0],
            args=words[1:],
            env={**passed, **variables, "PWD": str(where)},
            # By descriptor if the system supports it: the plain path may change.
            cwd=f"/proc/self/fd/{folder}" if sys.platform.startswith("linux") else str(where),
        )

    async def _read_output(self, stream: ByteReceiveStream) -> None:
        try:
            async for piece in stream:
                self.output.write(piece)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return


def _open_folder(root_folder: RootFolder, folder: str) -> int:
    with root_folder.open_entry(folder) as entry:
        return entry.open_folder()


log = logging.getLogger("fingerpost.builtin")

MAX_JOBS_KEPT: Final = 50  # ended jobs whose output can still be read


@frozen(kw_only=False)
class BackgroundJob:
    """A background command. Only `owner` sees it."""

    id: str
    owner: str | None
    command: RunningCommand
    scope: anyio.CancelScope


class BackgroundJobs(TaskOwner):
    """All background commands of a server. They end with the server."""

    def __init__(self, root_folder: RootFolder, limit: int) -> None:
        self._root_folder = root_folder
        self._limit = limit
        self._jobs: dict[str, BackgroundJob] = {}
        self._count = 0

    async def start_job(self, owner: str | None, command: RunningCommand) -> BackgroundJob:
        """Start a command. Raises `ToolRefused` if too many run or it cannot be started."""
        if self._tasks is None:
            raise ToolRefused("Nothing can run in the background: the server is not open.")
        active = sum(not job.command.finished.is_set() for job in self._jobs.values())
        if active >= self._limit:
            message = f"{active} commands run in the background already; {self._limit} is the most."
            raise ToolRefused(message, hint="Stop one of them; `list` shows yours.")
        self._count += 1
        job = BackgroundJob(f"job-{self._count}", owner, command, anyio.CancelScope())
        await self._tasks.start(self._run_job, job)
        self._jobs[job.id] = job
        over = [job.id for job in self._jobs.values() if job.command.finished.is_set()]
        for name in over[: max(0, len(over) - MAX_JOBS_KEPT)]:
            del self._jobs[name]
        return job

    async def _run_job(self, job: BackgroundJob, *, task_status: TaskStatus[None]) -> None:
        has_started = False

        def note_start() -> None:
            nonlocal has_started
            has_started = True
            task_status.started()

        with job.scope:
            try:
                await job.command.run(self._root_folder, on_started=note_start)
            except Exception:
                if not has_started:
                    raise  # the caller that waits for the start gets the error
                log.exception("a background command failed unexpectedly")

    def list_jobs(self, owner: str | None) -> list[BackgroundJob]:
        """Return the caller's jobs, oldest first."""
        return [job for job in self._jobs.values() if job.owner == owner]

    def get_job(self, owner: str | None, name: str) -> BackgroundJob:
        """Return one of the caller's jobs. Raises `ToolRefused`."""
        job = self._jobs.get(name)
        if job is None or job.owner != owner:
            own = ", ".join(each.id for each in self.list_jobs(owner)) or "none"
            message = f"There is no background command {name[:40]} of yours."
            raise ToolRefused(message, hint=f"There are: {own}.")
        return job

    async def stop_job(self, job: BackgroundJob) -> None:
        """End the job with all its child processes."""
        job.scope.cancel()
        await job.command.finished.wait()
