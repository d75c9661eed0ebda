"""A conversation at the terminal: lines in, answers out, everything said is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fingerpost.errors import FingerpostError
from fingerpost.records import Approval, Message, Mode, Pending, new_id
from fingerpost.router.conversations import exchange, open_question, recall
from fingerpost.settings import Loaded
from fingerpost.surfaces.cli.asking import footer, show_question
from fingerpost.surfaces.cli.backstage import Backstage
from fingerpost.surfaces.cli.chat_commands import COMMANDS, is_command, obey
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.dialogue import Dialogue
from fingerpost.surfaces.cli.lines import Lines
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.permission import ask_permission, show_pending
from fingerpost.surfaces.cli.person import LineTooLong, person, refuse_tools
from fingerpost.surfaces.cli.screen import count, plain
from fingerpost.surfaces.cli.speaking import note
from fingerpost.surfaces.cli.typed_ahead import forget_typed_ahead

if TYPE_CHECKING:
    from fingerpost.router import Asking, Route

STILL_WAITS: Final = "\nstopped; the call still waits for you."
HOW_TO_DECIDE: Final = "Decide with /approve, /approve no REASON or /approve edit KEY=VALUE."


def talk(
    loaded: Loaded,
    *,
    conversation: str | None,
    mode: str | None,
    server: str | None,
    wait: float,
    profile: str | None = None,
) -> int:
    """Until the person ends it."""
    with Backstage(loaded) as stage:
        stage.ready(server=server, wait=wait)
        lines = Lines(list(COMMANDS))
        chat = Chat(stage, lines, conversation=conversation, mode=mode, server=server, profile=profile)
        chat.greet()
        chat.go_on()
    return 0


class Chat:
    """One person's conversation, or several after one another."""

    def __init__(
        self,
        stage: Backstage,
        lines: Lines,
        *,
        conversation: str | None,
        mode: str | None,
        server: str | None,
        profile: str | None = None,
    ) -> None:
        stage.router.profiles.meant(profile, caller=person())  # an unknown one is told of before anything
        self.profile = profile
        self.stage = stage
        self.mode = mode
        self.server = server
        self.by = person()
        self.conversation = conversation or new_id("ses")
        self.history: tuple[Message, ...] = ()
        self._asked: Route | None = None  # what the next line may answer, where no model reads along
        if conversation is not None:
            store = stage.router.store
            self.history = stage.run(lambda _: recall(store, conversation, caller=self.by))
            self._asked = stage.run(lambda _: open_question(store, conversation, caller=self.by))
        self.last: Route | None = None
        self.waiting: Route | None = None  # what /approve is about: the call of the last line, never an older
        self._lines = lines
        self._dialogue = Dialogue(stage)

    def greet(self) -> None:
        tools = count(len(self.stage.router.tools.cards), "tool")
        before = f", {count(len(self.history), 'message')} so far" if self.history else ""
        note(f"{tools}; conversation {plain(self.conversation)}{before}. /help says what else there is.")

    def go_on(self) -> None:
        """Line by line until there is no more."""
        while True:
            try:
                line = self._lines.next()
            except KeyboardInterrupt:
                note("\nCtrl-D ends the conversation.")
                continue
            except LineTooLong as refused:
                self.waiting = None
                _explain(refused)
                continue
            if line is None:
                break
            if line.strip():
                self._take(line.strip())
        if self._lines.typed:
            click.echo(err=True)
        note(repeatable(f"Go on later with `fingerpost chat --conversation {plain(self.conversation)}`."))

    def _take(self, line: str) -> None:
        """One line, whatever becomes of it: the conversation goes on."""
        try:
            if is_command(line):
                obey(self, line)
            else:
                self.ask(line)
        except KeyboardInterrupt:
            note("stopped")
        except FingerpostError as error:
            _explain(error)

    def ask(self, text: str) -> None:
        """A request, with everything said before it."""
        self.waiting = None
        asking: Asking = {
            "history": self.history,
            "conversation": self.conversation,
            "caller": self.by,
            "server": self.server,
            "profile": self.profile,
            "mode": self.mode,
            "working_directory": str(Path.cwd()),
        }
        route = self._dialogue.follow(self._asked, text, asking)
        self._heard(self._dialogue.settle(route, self._decide))

    def approve(self, approval: Approval) -> None:
        """What waited goes on."""
        assert self.waiting is not None
        refuse_tools()
        self._heard(self._dialogue.settle(self._dialogue.resume(self.waiting, approval), self._decide))

    def begin(self) -> None:
        """Another conversation, from nothing."""
        self.conversation, self.history = new_id("ses"), ()
        self.last = self.waiting = self._asked = None

    def _heard(self, route: Route) -> None:
        self.last = route
        self.waiting = route if route.pending is not None else None
        self._asked = route if route.pending is None and _is_kept(route) else None
        if route.pending is not None or route.question is not None:
            forget_typed_ahead()  # the next line is about this, so it has to be typed after it was shown
        if route.pending is not None:
            if not self._lines.typed:
                show_pending(route.pending)
            note(HOW_TO_DECIDE)
            return
        self.history = exchange(route.packet, route.answer)
        if route.question is not None:
            show_question(route)
        else:
            note(footer(route))

    def _decide(self, pending: Pending) -> Approval | None:
        # From a pipe the next line may be the next request: only /approve is an answer to this.
        if not self._lines.typed:
            return None
        try:
            return ask_permission(pending, by=self.by, card=self.stage.router.tools.get(pending.tool))
        except KeyboardInterrupt:  # the question is left, not the call: it waits as long as any other
            note(STILL_WAITS)
            return None


def _explain(error: FingerpostError) -> None:
    click.echo(styled("error: ", fg="red", bold=True) + plain(str(error)), err=True)
    if error.hint:
        click.echo(styled("  fix: ", fg="green") + plain(repeatable(error.hint)), err=True)


def _is_kept(route: Route) -> bool:
    """Whether the next line answers what was asked; else a model reads both in the conversation."""
    return route.mode is Mode.KEYLESS or (route.question is not None and route.question.call is not None)
