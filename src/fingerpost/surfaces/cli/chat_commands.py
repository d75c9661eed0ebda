"""What a person can say to the conversation itself: lines that begin with a slash."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fingerpost.call.approvals import why_only_once
from fingerpost.records import Approval, Pending, ToolCard
from fingerpost.surfaces.cli.commands import CHOICES, MODES
from fingerpost.surfaces.cli.conversations import write_transcript
from fingerpost.surfaces.cli.feedback import kept
from fingerpost.surfaces.cli.journey import draw
from fingerpost.surfaces.cli.pairs import read_pairs
from fingerpost.surfaces.cli.permission import edited
from fingerpost.surfaces.cli.prefer import keep_preference, preference_line
from fingerpost.surfaces.cli.route import show_narrowing
from fingerpost.surfaces.cli.screen import count, output, plain, print_lines, table
from fingerpost.surfaces.cli.speaking import note
from fingerpost.surfaces.cli.trace import children_of, events_of
from fingerpost.surfaces.cli.why import explain_tool

if TYPE_CHECKING:
    from fingerpost.surfaces.cli.chatting import Chat

SHOWN: Final = 12


def is_command(line: str) -> bool:
    """A slash and letters: `/tools`. A path such as `/etc/hosts` at the beginning is a request."""
    word = line.split(maxsplit=1)[0]
    return word in COMMANDS or (word.startswith("/") and word[1:].isalpha())


def obey(chat: Chat, line: str) -> None:
    """Do what the line says, or say what could have been meant."""
    word, _, rest = line.partition(" ")
    if word in COMMANDS:
        COMMANDS[word][1](chat, rest.strip())
        return
    near = get_close_matches(word, COMMANDS, n=1)
    note(
        f"There is no {plain(word)}."
        + (f" Did you mean {near[0]}?" if near else " /help lists what there is.")
    )


def _help(chat: Chat, _: str) -> None:
    """This list."""
    del chat
    width = max(len(words) for words, _ in COMMANDS.values())
    print_lines([f"{words:<{width}}  {does.__doc__}" for words, does in COMMANDS.values()])
    print_lines([f"{'Ctrl-C':<{width}}  Stop the answer.", f"{'Ctrl-D':<{width}}  End the conversation."])


def _tools(chat: Chat, _: str) -> None:
    """What was offered for the last request, and how many tools there are."""
    router = chat.stage.router
    if chat.last is not None:
        offered = chat.last.packet.context.available_tools
        print_lines(["offered for the last request: " + (", ".join(map(plain, offered)) or "none")])
    cards = router.tools.cards
    by_server = {status.name: len(router.tools.by_server(status.name)) for status in router.servers.statuses}
    made = table(
        f"{count(len(cards), 'tool')} of {count(len(by_server), 'server')}", "server", "tools", "state"
    )
    for status in router.servers.statuses:
        made.add_row(plain(status.name), str(by_server[status.name]), str(status.state))
    output().print(made)


def _why(chat: Chat, tool: str) -> None:
    """Why these tools were offered, or why this one was not."""
    if chat.last is None or chat.last.narrowing is None:
        note("Nothing was asked yet.")
    elif not tool:
        show_narrowing(chat.last.narrowing, explain=True)
    else:
        last, text = chat.last, chat.last.packet.content.original_prompt
        _, sentences = chat.stage.run(lambda _: explain_tool(chat.stage.router, tool, text, last))
        print_lines([plain(line) for line in sentences])


def _trace(chat: Chat, _: str) -> None:
    """The journey of the last request."""
    if chat.last is None:
        note("Nothing was asked yet.")
        return
    store, packet_id = chat.stage.router.store, chat.last.packet_id

    async def read() -> object:
        await store.journal.flush()
        events = await events_of(store, packet_id)
        return draw(packet_id, events, await children_of(store, events))

    output().print(chat.stage.run(lambda _: read()))


def _mode(chat: Chat, name: str) -> None:
    """How requests are answered; with a name, from now on that way."""
    if name and name not in MODES:
        note(f"There is no mode {plain(name)}. There are: {', '.join(MODES)}.")
        return
    if name:
        chat.mode = name
    print_lines([f"mode {chat.mode or chat.stage.router.settings.choose.mode}"])


def _model(chat: Chat, _: str) -> None:
    """Which models are asked."""
    models = chat.stage.router.settings.models
    named = {"lite": models.lite, "prime": models.prime}
    found = [f"{role}: {plain(one.model)}" for role, one in named.items() if one is not None]
    print_lines(
        found or ["no model is configured (models.lite, models.prime): answers come from tools alone"]
    )


def _prefer(chat: Chat, what: str) -> None:
    """What you want of answers: quick, thorough or usual ones; it is kept."""
    if what and what not in CHOICES:
        note(f"There is no preference {plain(what)}. There are: {', '.join(CHOICES)}.")
        return
    router = chat.stage.router
    effort = chat.stage.run(lambda _: keep_preference(router, chat.by, what or None))
    print_lines([plain(preference_line(chat.by, effort))])


def _approve(chat: Chat, words: str) -> None:
    """Let the call that waits run: once, for the `conversation`, with `edit KEY=VALUE`, or `no REASON`."""
    pending = chat.waiting.pending if chat.waiting is not None else None
    if pending is None:
        note("Nothing waits for you here. `fingerpost approvals` lists what waits elsewhere.")
        return
    try:
        card = chat.stage.router.tools.get(pending.tool)
        approval = _approval(pending, words, by=chat.by, card=card)
    except click.BadParameter as wrong:
        note(wrong.message)
        return
    if approval is None:
        note("Say /approve, /approve conversation, /approve edit KEY=VALUE or /approve no REASON.")
    else:
        chat.approve(approval)


def _approval(pending: Pending, words: str, *, by: str, card: ToolCard | None) -> Approval | None:
    word, _, rest = words.partition(" ")
    match word.lower():
        case "" | "y" | "yes" | "once":
            return pending.approve(by=by)
        case "c" | "conversation":
            if (why := why_only_once(pending)) is not None:
                message = f"This call can only be approved once: {why}."
                raise click.BadParameter(plain(message))
            return pending.approve(by=by, for_conversation=True)
        case "n" | "no":
            return pending.reject(by=by, reason=rest.strip() or None)
        case "e" | "edit" if rest.strip():
            try:
                return edited(pending, read_pairs(shlex.split(rest)), by=by, card=card)
            except ValueError as error:  # a quotation mark without its partner
                raise click.BadParameter(str(error)) from error
        case _:
            return None


def _good(chat: Chat, _: str) -> None:
    """The last request got the right tool."""
    _say(chat, "good", None)


def _bad(chat: Chat, tool: str) -> None:
    """It did not; with a name, that is the tool it should have used."""
    _say(chat, "bad", tool or None)


def _say(chat: Chat, verdict: str, should_have: str | None) -> None:
    if chat.last is None:
        note("Nothing was asked yet.")
        return
    router, packet_id = chat.stage.router, chat.last.packet_id
    said = chat.stage.run(lambda _: router.feedback(packet_id, verdict, by=chat.by, should_have=should_have))
    print_lines(chat.stage.run(lambda _: kept(router, said)))


def _new(chat: Chat, _: str) -> None:
    """Begin another conversation."""
    chat.begin()
    note(f"conversation {chat.conversation}")


def _save(chat: Chat, name: str) -> None:
    """Write the conversation to FILE, as Markdown."""
    if not name:
        note("Name a file: /save FILE")
        return
    path = Path(name).expanduser()
    try:
        write_transcript(path, chat.history)
    except OSError as error:
        note(f"{plain(name)} cannot be written: {error.strerror or error}")
        return
    note(f"{count(len(chat.history), 'message')} written to {plain(str(path))}")


COMMANDS: Final[dict[str, tuple[str, Callable[[Chat, str], None]]]] = {
    "/tools": ("/tools", _tools),
    "/why": ("/why [TOOL]", _why),
    "/trace": ("/trace", _trace),
    "/mode": ("/mode [NAME]", _mode),
    "/model": ("/model", _model),
    "/prefer": ("/prefer [quick|thorough|usual]", _prefer),
    "/approve": ("/approve", _approve),
    "/good": ("/good", _good),
    "/bad": ("/bad [TOOL]", _bad),
    "/new": ("/new", _new),
    "/save": ("/save FILE", _save),
    "/help": ("/help", _help),
}
