"""What `terminal_operations` and `ai.execute` do with a command: look at it, then show it or run it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

import anyio.to_thread

from fingerpost.builtin.kit import Caller, Reply, ToolRefused, attribute_to
from fingerpost.builtin.workspace.commands.elevated import elevated
from fingerpost.builtin.workspace.commands.jobs import Job, Jobs
from fingerpost.builtin.workspace.commands.line import words_of
from fingerpost.builtin.workspace.commands.rules import (
    changes_files,
    check_allowed,
    find_program,
    is_allowed,
    program_not_found,
    runs_files,
)
from fingerpost.builtin.workspace.commands.running import Running
from fingerpost.builtin.workspace.commands.sandbox import Sandbox, describe
from fingerpost.builtin.workspace.given import Given
from fingerpost.builtin.workspace.switches import Act
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.servers.ring import Ring

GET_OUTPUT: Final = "terminal_operations.get_output"
STOP: Final = "terminal_operations.stop"
_MARGIN: Final = 2.0  # seconds of a caller's deadline left for ending the command and answering


@frozen(kw_only=False)
class Terminal:
    """Commands of one workplace."""

    work: Workplace
    jobs: Jobs
    sandbox: Sandbox

    async def run_command(self, given: Given, caller: Caller, *, raised: bool = False) -> Reply:
        """Run it and wait for its end, or begin it in the background where that is wished."""
        if given.flag("isBackground"):
            return await self.run_background(given, caller)
        words, folder = await self._ready(given, raised=raised)
        seconds = self._seconds(given, caller, self.work.settings.command_seconds)
        act = self._act(given)
        if act.dry:
            return Reply(self._shown(act, words, folder, seconds))
        await anyio.to_thread.run_sync(self._note, words, folder, caller)
        running = self._running(words, folder, seconds, raised=raised)
        await running.run(self.work.ground)
        return Reply(_finished(running), failed=running.timed_out)

    async def run_background(self, given: Given, caller: Caller) -> Reply:
        """Begin it and answer at once."""
        words, folder = await self._ready(given, raised=False)
        seconds = self._seconds(given, None, self.work.settings.background_seconds)
        act = self._act(given)
        if act.dry:
            return Reply(self._shown(act, words, folder, seconds))
        await anyio.to_thread.run_sync(self._note, words, folder, caller)
        job = await self.jobs.start(caller.user, self._running(words, folder, seconds))
        told = f"{job.id} runs: {shlex.join(words)}\n{GET_OUTPUT} reads what it says, {STOP} ends it."
        return Reply(told, data=_handle(job))

    async def get_output(self, given: Given, caller: Caller) -> Reply:
        """What a background command has said since `offset`."""
        job = self.jobs.get(caller.user, given.text("job"))
        output, since = job.running.output, given.number("offset", 0)
        kept = output.tail()
        lost = output.written - len(kept)  # bytes before the oldest that is kept
        text = kept[max(0, since - lost) :].decode("utf-8", "replace")
        gone = f"; the first {lost} bytes are no longer kept" if lost > since else ""
        return Reply(f"[{_state(job)}; next offset {output.written}{gone}]\n{text}", data=_handle(job))

    async def stop(self, given: Given, caller: Caller) -> Reply:
        """End a background command."""
        job = self.jobs.get(caller.user, given.text("job"))
        await self.jobs.stop(job)
        return Reply(_state(job), data=_handle(job))

    async def list(self, given: Given, caller: Caller) -> Reply:
        """All background commands of the caller."""
        own = self.jobs.of(caller.user)
        return Reply("\n".join(map(_state, own)) or "Nothing runs in the background.")

    def check(self, given: Given, *, raised: bool = False) -> None:
        """Refuse what can be seen from the arguments alone."""
        with attribute_to("command"):
            words = words_of(given.text("command"))
            check_allowed(words, self.work.settings.commands, str(self.work.ground.root))
            why = elevated(words, str(self.work.ground.root))
            if why is not None and not raised:
                message = f"`{shlex.join(words)[:200]}` is an elevated command: {why}."
                hint = "terminal_operations with operation run_elevated runs it, and asks a person each time."
                raise ToolRefused(message, hint=hint)
        with attribute_to("folder"):
            self.work.ground.check_path(given.text("folder", "."))

    async def feasible(self, given: Given) -> None:
        """Refuse what could not be started now."""
        await anyio.to_thread.run_sync(self._folder, given.text("folder", "."))

    async def reason_for_grant(self, given: Given) -> str:
        """Why a person has to grant this very command; empty: they need not."""
        if self._act(given).dry:
            return ""
        words = words_of(given.text("command"))
        folder = given.text("folder", ".")
        return await anyio.to_thread.run_sync(self._unreviewed, words, folder)

    def _unreviewed(self, words: Sequence[str], folder: str) -> str:
        """Why the files that the command may run are not to be trusted yet; empty: they are. Blocks."""
        root = self.work.ground.root
        written = self.work.unreviewed.describe()
        if not written or not runs_files(words, root, root / folder):
            return ""
        if is_allowed(words, self.work.settings.commands_after_writes, str(root)):
            return ""
        return (
            f"{words[0]} may run files of the working directory, where callers have written since "
            f"a person last reviewed it: {written}"
        )

    def _note(self, words: Sequence[str], folder: str, caller: Caller) -> None:
        """Just before it runs: what changes files leaves them unreviewed."""
        if caller.granted or caller.context is None:
            return  # a person saw this very command, or there is no one to ask
        root = self.work.ground.root
        if (
            find_program(words[0], root / folder) is None
        ):  # one that comes now was not there to be asked about
            raise program_not_found(words[0])
        if why := self._unreviewed(words, folder):
            message = f"This needs a person's approval by now: {why}."
            raise ToolRefused(message, hint="Make the call again: they are asked then.")
        if changes_files(words) and not runs_files(words, root, root / folder):
            self.work.unreviewed.record(f"({shlex.join(words)[:100]})")

    async def _ready(self, given: Given, *, raised: bool) -> tuple[Sequence[str], str]:
        self.check(given, raised=raised)
        folder = await anyio.to_thread.run_sync(self._folder, given.text("folder", "."))
        return words_of(given.text("command")), folder

    def _folder(self, given: str) -> str:
        with attribute_to("folder"), self.work.ground.at(given) as place:
            place.there()
            return place.shown

    def _act(self, given: Given) -> Act:
        return self.work.switches.executing(wished_dry=given.flag("dry_run"))

    def _seconds(self, given: Given, caller: Caller | None, most: float) -> float:
        asked = given.number("seconds", 0)
        seconds = min(asked, most) if asked > 0 else most
        context = None if caller is None else caller.context
        if context is not None and context.seconds is not None:
            seconds = min(seconds, max(1.0, context.seconds - _MARGIN))
        return seconds

    def _running(self, words: Sequence[str], folder: str, seconds: float, *, raised: bool = False) -> Running:
        """Elevated commands do what no sandbox lets through: a person saw them."""
        settings = self.work.settings
        required = settings.sandbox == "required"
        inside = settings.sandbox != "off" and (required or not raised)
        return Running(
            words=words,
            folder=folder,
            seconds=seconds,
            output=Ring(settings.output_bytes),
            sandbox=self.sandbox if inside else None,
            sandbox_required=required,
        )

    def _shown(self, act: Act, words: Sequence[str], folder: str, seconds: float) -> str:
        lines = (
            act.heading,
            "",
            f"Would run: {shlex.join(words)}",
            f"folder: {self.work.ground.root if folder == '.' else self.work.ground.root / folder}",
            f"limits: {seconds:g} seconds, {self.work.settings.output_bytes} bytes of output",
            "without a shell, with a small environment",
            describe(self.work.settings),
        )
        return "\n".join(lines)


def _handle(job: Job) -> JsonObject:
    """The job for a program: its name, how it is doing, and where the next of its output begins."""
    running = job.running
    return {
        "job": job.id,
        "state": running.how,
        "exit_status": running.status,
        "next_offset": running.output.written,
    }


def _state(job: Job) -> str:
    running = job.running
    return f"{job.id}: {running.how}, {running.took:.1f} s: {shlex.join(running.words)}"


def _finished(running: Running) -> str:
    output = running.output
    lost = output.written - len(output.tail())
    heading = f"$ {shlex.join(running.words)}\n[{running.how}, {running.took:.2f} s]"
    if lost > 0:
        heading += f"\n[the first {lost} bytes of its output were not kept]"
    return f"{heading}\n{output.text()}".rstrip("\n")
