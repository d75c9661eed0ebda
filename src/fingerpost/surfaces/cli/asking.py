"""One request from a terminal or a pipe to its end, whoever has to be asked on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fingerpost.frozen import frozen
from fingerpost.records import Approval, Message, Pending, RouteOutcome, new_id
from fingerpost.redaction import scrub_json
from fingerpost.router.conversations import exchange, open_question
from fingerpost.settings import Loaded
from fingerpost.surfaces.cli.backstage import Backstage
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.dialogue import Dialogue
from fingerpost.surfaces.cli.explanation import show_explanation
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.permission import ask_permission, show_pending
from fingerpost.surfaces.cli.person import ask_line, at_terminal, person, refuse_tools
from fingerpost.surfaces.cli.screen import plain, print_json
from fingerpost.surfaces.cli.speaking import readable
from fingerpost.surfaces.cli.trace import events_of

if TYPE_CHECKING:
    from fingerpost.router import Asking, Route

MOST_QUESTIONS: Final = 5  # asked back about one request
EXIT_CODES: Final = {
    RouteOutcome.ANSWERED: 0,
    RouteOutcome.HANDED_BACK: 0,
    RouteOutcome.DECLINED: 1,
    RouteOutcome.FAILED: 1,
    RouteOutcome.LIMITED: 1,
    RouteOutcome.LEFT: 1,
    RouteOutcome.INTERRUPTED: 1,
    RouteOutcome.WAITING: 4,
    RouteOutcome.ASKED: 5,
}


@frozen
class Wish:
    """What the person wants, and how."""

    text: str
    conversation: str
    known: bool  # the conversation may have begun earlier
    resume: str | None = None
    server: str | None = None
    profile: str | None = None
    mode: str | None = None
    effort: str | None = None
    seconds: float | None = None
    max_turns: int | None = None
    dry_run: bool = False
    yes: bool = False
    explain: bool = False
    technical: bool = False
    as_json: bool = False
    wait: float = 10.0

    @classmethod
    def of(cls, text: str, options: Mapping[str, Any]) -> Wish:
        """The wish these options of the command line make."""
        same = (
            "resume",
            "server",
            "profile",
            "mode",
            "effort",
            "max_turns",
            "dry_run",
            "yes",
            "explain",
            "technical",
            "as_json",
            "wait",
        )
        return cls(
            text=text,
            conversation=options["conversation"] or new_id("ses"),
            known=options["conversation"] is not None,
            seconds=options["timeout"],
            **{name: options[name] for name in same},
        )

    def asking(self, history: tuple[Message, ...] | None, *, by: str) -> Asking:
        """What goes with the words; without a history the router recalls the conversation."""
        asking: Asking = {
            "conversation": self.conversation,
            "caller": by,
            "server": self.server,
            "profile": self.profile,
            "mode": self.mode,
            "effort": self.effort,
            "max_turns": self.max_turns,
            "seconds": self.seconds,
            "working_directory": str(Path.cwd()),
            "dry_run": self.dry_run,
        }
        if history is not None:
            asking["history"] = history
        return asking


def answer(loaded: Loaded, wish: Wish) -> int:
    """Have it answered and shown; the exit code says how it ended."""
    with Backstage(loaded) as stage:
        stage.ready(server=wish.server, wait=wish.wait)
        made = _Request(stage, wish)
        route = made.followed()
        made.show(route)
    return EXIT_CODES[route.outcome]


class _Request:
    """One wish on its way."""

    def __init__(self, stage: Backstage, wish: Wish) -> None:
        self._stage = stage
        self._wish = wish
        self._by = person()
        limits: Asking = {"max_turns": wish.max_turns, "seconds": wish.seconds}
        self._dialogue = Dialogue(stage, quiet=wish.as_json, limits=limits)
        self._can_ask = at_terminal() and not wish.as_json

    def followed(self) -> Route:
        """The route, after everything a person had to say was said."""
        route = self._dialogue.settle(self._first(), self._decide)
        for _ in range(MOST_QUESTIONS):
            if route.question is None or route.pending is not None or not self._can_ask:
                break
            show_question(route)
            said = (ask_line("> ") or "").strip()
            if not said:
                break
            asking = self._wish.asking(exchange(route.packet, route.answer), by=self._by)
            route = self._dialogue.settle(self._dialogue.follow(route, said, asking), self._decide)
        return route

    def _first(self) -> Route:
        wish = self._wish
        if wish.resume is not None:
            return self._dialogue.resume(wish.resume)
        if not wish.known:
            return self._dialogue.ask(wish.text, wish.asking((), by=self._by))
        store = self._stage.router.store
        asked = self._stage.run(lambda _: open_question(store, wish.conversation, caller=self._by))
        return self._dialogue.follow(asked, wish.text, wish.asking(None, by=self._by))

    def _decide(self, pending: Pending) -> Approval | None:
        if self._wish.yes:
            refuse_tools()
            return pending.approve(by=self._by)
        if not self._can_ask:
            return None
        try:
            return ask_permission(pending, by=self._by, card=self._stage.router.tools.get(pending.tool))
        except KeyboardInterrupt:  # the question is left, not the call: it waits as long as any other
            click.echo(f"\nstopped; the call still waits for you. {_onward(pending)}", err=True)
            raise

    def show(self, route: Route) -> None:
        if self._wish.as_json:
            _print_json(route)
        elif route.outcome not in (RouteOutcome.WAITING, RouteOutcome.ASKED):
            click.echo(styled(footer(route), dim=True), err=True)
        self._tell_how_to_go_on(route)
        if self._wish.technical and route.detail:
            click.echo(f"Technical details:\n{readable(route.detail)}", err=True)
        if self._wish.explain and not self._wish.as_json:
            show_explanation(route, self._events(route))

    def _tell_how_to_go_on(self, route: Route) -> None:
        if route.pending is not None:
            if not self._can_ask:
                show_pending(route.pending)
            click.echo(_onward(route.pending), err=True)
        elif route.question is not None:
            if not self._can_ask:
                show_question(route)
            again = f'fingerpost ask --conversation {route.packet.header.session_id} "…"'
            click.echo(repeatable(f"Answer it with `{plain(again)}`."), err=True)

    def _events(self, route: Route) -> Any:
        store = self._stage.router.store

        async def read() -> Any:
            await store.journal.flush()
            return await events_of(store, route.packet_id)

        return self._stage.run(lambda _: read()) or route.events


def _onward(pending: Pending) -> str:
    """How the call that waits comes to run, from any process."""
    waiting = pending.pending_id
    return repeatable(
        f"Approve it with `fingerpost approvals approve {waiting}`, "
        f"then go on with `fingerpost ask --resume {waiting}`."
    )


def show_question(route: Route) -> None:
    """What the person is asked, with what will do as an answer."""
    assert route.question is not None
    click.echo(readable(route.question.text), err=True)
    for missing in route.question.missing:
        if missing.options:
            options = ", ".join(plain(option) for option in missing.options[:20])
            click.echo(styled(f"  {plain(missing.name)}: {options}", dim=True), err=True)


def footer(route: Route) -> str:
    """Where the answer comes from and what it took, on one line."""
    parts = [", ".join(route.sources) or "no tool"]
    if route.answered_by:
        parts.append(f"by {route.answered_by}")
    parts.append(f"{route.milliseconds / 1000:.1f} s")
    if tokens := route.prompt_tokens + route.completion_tokens:
        parts.append(f"{tokens:,} tokens")
    if route.cost is not None:
        parts.append(f"cost {route.cost:.4f}")
    return " · ".join(plain(part) for part in (*parts, f"trace {route.packet_id}"))


def _print_json(route: Route) -> None:
    print_json(scrub_json(route.as_json()))
