"""`terminal_operations`, `ai.execute` and `run_tests`: commands are checked, then shown or run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

import anyio.to_thread

from fingerpost.builtin.toolkit import ToolCaller, ToolRefused, ToolReply, attribute_to
from fingerpost.builtin.workspace.command_rules import (
    build_program_not_found_error,
    check_allowed,
    explain_elevated,
    find_program,
    is_allowed,
    may_change_files,
    may_run_files,
    split_command,
)
from fingerpost.builtin.workspace.context import RunMode, ToolArguments, WorkspaceContext
from fingerpost.builtin.workspace.file_content import read_bytes
from fingerpost.builtin.workspace.processes import BackgroundJob, BackgroundJobs, RunningCommand
from fingerpost.builtin.workspace.sandbox import CommandSandbox, describe_sandbox
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.servers.process import RingBuffer

_MAX_FILE_BYTES: Final = 256 * 1024  # bytes read of a project file

# The first match counts, the most specific first: a file, text in it, and the command.
_TEST_COMMANDS: Final = (
    ("Makefile", re.compile(rb"^test\s*:", re.MULTILINE), "make test"),
    ("package.json", re.compile(rb'"test"\s*:\s*"(?!echo \\"Error: no test)'), "npm test"),
    ("pyproject.toml", re.compile(rb"pytest"), "python -m pytest"),
    ("pytest.ini", None, "python -m pytest"),
    ("tox.ini", None, "tox"),
    ("Cargo.toml", None, "cargo test"),
    ("go.mod", None, "go test ./..."),
    ("pyproject.toml", None, "python -m pytest"),
    ("setup.py", None, "python -m pytest"),
)


def find_test_command(workspace: WorkspaceContext) -> str:
    """Return the project's test command. Raises `ToolRefused` if there is none. Blocks."""
    for name, sign, command in _TEST_COMMANDS:
        content = _read_project_file(workspace, name)
        if content is not None and (sign is None or sign.search(content)):
            return command
    message = "Nothing in the working directory says how its tests are run."
    raise ToolRefused(message, hint="Give the command to ai.execute, such as pytest -q.")


def _read_project_file(workspace: WorkspaceContext, name: str) -> bytes | None:
    try:
        with workspace.root_folder.open_entry(name) as entry:
            return read_bytes(entry, _MAX_FILE_BYTES).data
    except ToolRefused:  # it does not exist or is not accessible
        return None


GET_OUTPUT_OPERATION: Final = "terminal_operations.get_output"
STOP_OPERATION: Final = "terminal_operations.stop"
_TIMEOUT_MARGIN_S: Final = 2.0  # of a caller's deadline, to end the command and reply


@frozen(kw_only=False)
class Terminal:
    """Runs the commands of one workspace."""

    workspace: WorkspaceContext
    jobs: BackgroundJobs
    sandbox: CommandSandbox

    async def run_command(
        self, args: ToolArguments, caller: ToolCaller, *, is_elevated: bool = False
    ) -> ToolReply:
        """Run a command and wait for its end, or start it in the background if requested."""
        if args.get_flag("isBackground"):
            return await self.run_background(args, caller)
        words, folder = await self._prepare_command(args, is_elevated=is_elevated)
        seconds = self._get_timeout(args, caller, self.workspace.settings.command_seconds)
        run_mode = self._get_run_mode(args)
        if run_mode.is_dry_run:
            return ToolReply(self._render_dry_run(run_mode, words, folder, seconds))
        await anyio.to_thread.run_sync(self._check_and_record_writes, words, folder, caller)
        running = self._build_command(words, folder, seconds, is_elevated=is_elevated)
        await running.run(self.workspace.root_folder)
        output = running.output
        lost = output.written - len(output.read_tail())
        heading = f"$ {shlex.join(running.words)}\n[{running.end_reason}, {running.duration:.2f} s]"
        if lost > 0:
            heading += f"\n[the first {lost} bytes of its output were not kept]"
        return ToolReply(f"{heading}\n{output.read_text()}".rstrip("\n"), failed=running.timed_out)

    async def run_background(self, args: ToolArguments, caller: ToolCaller) -> ToolReply:
        """Start a command in the background and return at once."""
        words, folder = await self._prepare_command(args, is_elevated=False)
        seconds = self._get_timeout(args, None, self.workspace.settings.background_seconds)
        run_mode = self._get_run_mode(args)
        if run_mode.is_dry_run:
            return ToolReply(self._render_dry_run(run_mode, words, folder, seconds))
        await anyio.to_thread.run_sync(self._check_and_record_writes, words, folder, caller)
        job = await self.jobs.start_job(caller.user, self._build_command(words, folder, seconds))
        how = f"{GET_OUTPUT_OPERATION} reads its output, {STOP_OPERATION} ends it."
        return ToolReply(f"{job.id} runs: {shlex.join(words)}\n{how}", data=_build_job_data(job))

    async def get_output(self, args: ToolArguments, caller: ToolCaller) -> ToolReply:
        """Return the output of a background command since `offset`."""
        job = self.jobs.get_job(caller.user, args.get_text("job"))
        output, since = job.command.output, args.get_number("offset", 0)
        kept = output.read_tail()
        lost = output.written - len(kept)  # bytes that are no longer kept
        text = kept[max(0, since - lost) :].decode("utf-8", "replace")
        gone = f"; the first {lost} bytes are no longer kept" if lost > since else ""
        heading = f"[{_describe_job(job)}; next offset {output.written}{gone}]"
        return ToolReply(f"{heading}\n{text}", data=_build_job_data(job))

    async def stop_job(self, args: ToolArguments, caller: ToolCaller) -> ToolReply:
        """End a background command."""
        job = self.jobs.get_job(caller.user, args.get_text("job"))
        await self.jobs.stop_job(job)
        return ToolReply(_describe_job(job), data=_build_job_data(job))

    async def list_jobs(self, args: ToolArguments, caller: ToolCaller) -> ToolReply:
        """Return all background commands of the caller."""
        own = self.jobs.list_jobs(caller.user)
        return ToolReply("\n".join(map(_describe_job, own)) or "Nothing runs in the background.")

    def check_arguments(self, args: ToolArguments, *, is_elevated: bool = False) -> None:
        """Raise `ToolRefused` for commands that are refused by their arguments alone."""
        with attribute_to("command"):
            words = split_command(args.get_text("command"))
            check_allowed(words, self.workspace.settings.commands, str(self.workspace.root_folder.root))
            why = explain_elevated(words, str(self.workspace.root_folder.root))
            if why is not None and not is_elevated:
                message = f"`{shlex.join(words)[:200]}` is an elevated command: {why}."
                hint = "terminal_operations with operation run_elevated runs it, and asks a person each time."
                raise ToolRefused(message, hint=hint)
        with attribute_to("folder"):
            self.workspace.root_folder.check_path(args.get_text("folder", "."))

    async def check_feasible(self, args: ToolArguments) -> None:
        """Raise `ToolRefused` if the command could not be started now."""
        await anyio.to_thread.run_sync(self._resolve_folder, args.get_text("folder", "."))

    async def get_grant_reason(self, args: ToolArguments) -> str:
        """Return why a person has to grant exactly this command, or an empty text."""
        if self._get_run_mode(args).is_dry_run:
            return ""
        words = split_command(args.get_text("command"))
        folder = args.get_text("folder", ".")
        return await anyio.to_thread.run_sync(self._explain_unreviewed, words, folder)

    def _explain_unreviewed(self, words: Sequence[str], folder: str) -> str:
        """Return why the files that the command may run are not trusted yet, or an empty text. Blocks."""
        root = self.workspace.root_folder.root
        written = self.workspace.unreviewed.describe()
        if not written or not may_run_files(words, root, root / folder):
            return ""
        if is_allowed(words, self.workspace.settings.commands_after_writes, str(root)):
            return ""
        return (
            f"{words[0]} may run files of the working directory, where callers have written since "
            f"a person last reviewed it: {written}"
        )

    def _check_and_record_writes(self, words: Sequence[str], folder: str, caller: ToolCaller) -> None:
        """Refuse the command if it needs approval by now. Record it as unreviewed if it may change files."""
        if caller.granted or caller.context is None:
            return  # a person approved exactly this command, or there is no person to ask
        root = self.workspace.root_folder.root
        # A program created now was not there when approval was decided.
        if find_program(words[0], root / folder) is None:
            raise build_program_not_found_error(words[0])
        if why := self._explain_unreviewed(words, folder):
            message = f"This needs a person's approval by now: {why}."
            raise ToolRefused(message, hint="Repeat the call: the person is then asked for approval.")
        if may_change_files(words) and not may_run_files(words, root, root / folder):
            self.workspace.unreviewed.record_names(f"({shlex.join(words)[:100]})")

    async def _prepare_command(self, args: ToolArguments, *, is_elevated: bool) -> tuple[Sequence[str], str]:
        self.check_arguments(args, is_elevated=is_elevated)
        folder = await anyio.to_thread.run_sync(self._resolve_folder, args.get_text("folder", "."))
        return split_command(args.get_text("command")), folder

    def _resolve_folder(self, given: str) -> str:
        with attribute_to("folder"), self.workspace.root_folder.open_entry(given) as entry:
            entry.require_stat()
            return entry.display_path

    def _get_run_mode(self, args: ToolArguments) -> RunMode:
        return self.workspace.switches.get_execute_mode(dry_run=args.get_flag("dry_run"))

    def _get_timeout(self, args: ToolArguments, caller: ToolCaller | None, maximum: float) -> float:
        asked = args.get_number("seconds", 0)
        seconds = min(asked, maximum) if asked > 0 else maximum
        context = None if caller is None else caller.context
        if context is not None and context.seconds is not None:
            seconds = min(seconds, max(1.0, context.seconds - _TIMEOUT_MARGIN_S))
        return seconds

    def _build_command(
        self, words: Sequence[str], folder: str, seconds: float, *, is_elevated: bool = False
    ) -> RunningCommand:
        """Build the command. An approved, elevated one runs without a sandbox unless it is required."""
        settings = self.workspace.settings
        required = settings.sandbox == "required"
        inside = settings.sandbox != "off" and (required or not is_elevated)
        return RunningCommand(
            words=words,
            folder=folder,
            seconds=seconds,
            output=RingBuffer(settings.output_bytes),
            sandbox=self.sandbox if inside else None,
            sandbox_required=required,
        )

    def _render_dry_run(self, run_mode: RunMode, words: Sequence[str], folder: str, seconds: float) -> str:
        root = self.workspace.root_folder.root
        lines = (
            run_mode.heading,
            "",
            f"Would run: {shlex.join(words)}",
            f"folder: {root if folder == '.' else root / folder}",
            f"limits: {seconds:g} seconds, {self.workspace.settings.output_bytes} bytes of output",
            "without a shell, with a small environment",
            describe_sandbox(self.workspace.settings),
        )
        return "\n".join(lines)


def _build_job_data(job: BackgroundJob) -> JsonObject:
    """Return the job as data: its name, its status, and the next output offset."""
    running = job.command
    return {
        "job": job.id,
        "state": running.end_reason,
        "exit_status": running.status,
        "next_offset": running.output.written,
    }


def _describe_job(job: BackgroundJob) -> str:
    running = job.command
    return f"{job.id}: {running.end_reason}, {running.duration:.1f} s: {shlex.join(running.words)}"
