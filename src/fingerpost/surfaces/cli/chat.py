"""`fingerpost chat`: a conversation, and the commands that begin with a slash."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fingerpost.call.approvals import explain_once_only
from fingerpost.errors import FingerpostError
from fingerpost.records import Approval, Message, Mode, Pending, ToolCard, create_id
from fingerpost.router.conversations import append_exchange, find_open_question, read_history
from fingerpost.router.options import RouteOptions
from fingerpost.surfaces.cli.approvals import approve_edited, show_pending
from fingerpost.surfaces.cli.ask import AnswerDialog, RouterThread, format_footer, show_question
from fingerpost.surfaces.cli.commands import CHOICES, MODES
from fingerpost.surfaces.cli.common import read_pairs, read_settings
from fingerpost.surfaces.cli.learning import describe_feedback, format_preference, update_preference
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.route import explain_tool, show_narrowing
from fingerpost.surfaces.cli.screen import (
    clean_text,
    format_count,
    get_output,
    print_dim,
    print_error,
    print_lines,
    print_table,
)
from fingerpost.surfaces.cli.terminal_input import (
    InputLineTooLong,
    LineReader,
    discard_typed_ahead,
    get_person,
    refuse_tools,
)
from fingerpost.surfaces.cli.trace import draw_trace, read_children, read_events

if TYPE_CHECKING:
    from fingerpost.router import Route


def is_command(line: str) -> bool:
    """Return whether the line is a command such as `/tools`, and not a path such as `/etc/hosts`."""
    word = line.split(maxsplit=1)[0]
    return word in CHAT_COMMANDS or (word.startswith("/") and word[1:].isalpha())


def run_command(chat: ChatSession, line: str) -> None:
    """Run the command of the line, or suggest a similar one."""
    word, _, rest = line.partition(" ")
    if word in CHAT_COMMANDS:
        CHAT_COMMANDS[word][1](chat, rest.strip())
        return
    near = get_close_matches(word, CHAT_COMMANDS, n=1)
    print_dim(
        f"Unknown command {clean_text(word)}."
        + (f" Did you mean {near[0]}?" if near else " /help lists the commands.")
    )


def _show_help(chat: ChatSession, _: str) -> None:
    """This list."""
    del chat
    width = max(len(words) for words, _ in CHAT_COMMANDS.values())
    print_lines([f"{words:<{width}}  {handler.__doc__}" for words, handler in CHAT_COMMANDS.values()])
    print_lines([f"{'Ctrl-C':<{width}}  Stop the answer.", f"{'Ctrl-D':<{width}}  End the chat."])


def _show_tools(chat: ChatSession, _: str) -> None:
    """What was offered for the last request, and how many tools there are."""
    router = chat.thread.router
    if chat.last is not None:
        offered = chat.last.packet.context.available_tools
        click.echo("offered for the last request: " + (", ".join(map(clean_text, offered)) or "none"))
    cards = router.tools.cards
    by_server = {status.name: len(router.tools.by_server(status.name)) for status in router.servers.statuses}
    print_table(
        f"{format_count(len(cards), 'tool')} of {format_count(len(by_server), 'server')}",
        ("server", "tools", "state"),
        ((status.name, str(by_server[status.name]), str(status.state)) for status in router.servers.statuses),
    )


def _show_why(chat: ChatSession, tool: str) -> None:
    """Why these tools were offered, or why this one was not."""
    if chat.last is None or chat.last.narrowing is None:
        print_dim("There is no request yet.")
    elif not tool:
        show_narrowing(chat.last.narrowing, explain=True)
    else:
        last, text = chat.last, chat.last.packet.content.original_prompt
        _, sentences = chat.thread.run(lambda _: explain_tool(chat.thread.router, tool, text, last))
        print_lines([clean_text(line) for line in sentences])


def _show_trace(chat: ChatSession, _: str) -> None:
    """The events of the last request."""
    if chat.last is None:
        print_dim("There is no request yet.")
        return
    store, packet_id = chat.thread.router.store, chat.last.packet_id

    async def read() -> object:
        await store.journal.flush()
        events = await read_events(store, packet_id)
        return draw_trace(packet_id, events, await read_children(store, events))

    get_output().print(chat.thread.run(lambda _: read()))


def _set_mode(chat: ChatSession, name: str) -> None:
    """How requests are answered; with a name, from now on that way."""
    if name and name not in MODES:
        print_dim(f"There is no mode {clean_text(name)}. There are: {', '.join(MODES)}.")
        return
    if name:
        chat.mode = name
    click.echo(f"mode {chat.mode or chat.thread.router.settings.choose.mode}")


def _show_models(chat: ChatSession, _: str) -> None:
    """Which models are asked."""
    models = chat.thread.router.settings.models
    named = {"lite": models.lite, "prime": models.prime}
    found = [f"{role}: {clean_text(one.model)}" for role, one in named.items() if one is not None]
    print_lines(
        found or ["no model is configured (models.lite, models.prime): answers are the results of tools"]
    )


def _set_preference(chat: ChatSession, what: str) -> None:
    """What you want of answers: quick, thorough or usual ones; it is kept."""
    if what and what not in CHOICES:
        print_dim(f"There is no preference {clean_text(what)}. There are: {', '.join(CHOICES)}.")
        return
    router = chat.thread.router
    effort = chat.thread.run(lambda _: update_preference(router, chat.by, what or None))
    click.echo(clean_text(format_preference(chat.by, effort)))


def _approve_waiting(chat: ChatSession, words: str) -> None:
    """Let the call that waits run: once, for the `conversation`, with `edit KEY=VALUE`, or `no REASON`."""
    pending = chat.waiting.pending if chat.waiting is not None else None
    if pending is None:
        print_dim("No call waits for approval here. `fingerpost approvals` lists those of other requests.")
        return
    try:
        card = chat.thread.router.tools.get(pending.tool)
        approval = _read_approval(pending, words, by=chat.by, card=card)
    except click.BadParameter as wrong:
        print_dim(wrong.message)
        return
    if approval is None:
        print_dim("Type /approve, /approve conversation, /approve edit KEY=VALUE or /approve no REASON.")
    else:
        chat.approve(approval)


def _read_approval(pending: Pending, words: str, *, by: str, card: ToolCard | None) -> Approval | None:
    word, _, rest = words.partition(" ")
    match word.lower():
        case "" | "y" | "yes" | "once":
            return pending.approve(by=by)
        case "c" | "conversation":
            if (why := explain_once_only(pending)) is not None:
                message = f"This call can only be approved once: {why}."
                raise click.BadParameter(clean_text(message))
            return pending.approve(by=by, for_conversation=True)
        case "n" | "no":
            return pending.reject(by=by, reason=rest.strip() or None)
        case "e" | "edit" if rest.strip():
            try:
                return approve_edited(pending, read_pairs(shlex.split(rest)), by=by, card=card)
            except ValueError as error:  # unbalanced quotation marks
                raise click.BadParameter(str(error)) from error
        case _:
            return None


def _mark_good(chat: ChatSession, _: str) -> None:
    """The last request got the right tool."""
    _record_verdict(chat, "good", None)


def _mark_bad(chat: ChatSession, tool: str) -> None:
    """It did not; with a name, that is the tool it should have used."""
    _record_verdict(chat, "bad", tool or None)


def _record_verdict(chat: ChatSession, verdict: str, should_have: str | None) -> None:
    if chat.last is None:
        print_dim("There is no request yet.")
        return
    router, packet_id = chat.thread.router, chat.last.packet_id
    feedback = chat.thread.run(
        lambda _: router.feedback(packet_id, verdict, by=chat.by, should_have=should_have)
    )
    print_lines(chat.thread.run(lambda _: describe_feedback(router, feedback)))


def _start_conversation(chat: ChatSession, _: str) -> None:
    """Begin another conversation."""
    chat.start_over()
    print_dim(f"conversation {chat.conversation}")


def _end_chat(chat: ChatSession, _: str) -> None:
    """End the chat; also `quit` and `exit`."""
    chat.is_over = True


def _save_transcript(chat: ChatSession, name: str) -> None:
    """Write the conversation to FILE, as Markdown."""
    if not name:
        print_dim("Name a file: /save FILE")
        return
    path = Path(name).expanduser()
    names = {"user": "You", "assistant": "Fingerpost"}
    parts = [f"**{names.get(one.role, one.role)}**\n\n{one.text.strip()}\n" for one in chat.history]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(parts))
    except OSError as error:
        print_dim(f"{clean_text(name)} cannot be written: {error.strerror or error}")
        return
    print_dim(f"{format_count(len(chat.history), 'message')} written to {clean_text(str(path))}")


CHAT_COMMANDS: Final[dict[str, tuple[str, Callable[[ChatSession, str], None]]]] = {
    "/tools": ("/tools", _show_tools),
    "/why": ("/why [TOOL]", _show_why),
    "/trace": ("/trace", _show_trace),
    "/mode": ("/mode [NAME]", _set_mode),
    "/model": ("/model", _show_models),
    "/prefer": ("/prefer [quick|thorough|usual]", _set_preference),
    "/approve": ("/approve", _approve_waiting),
    "/good": ("/good", _mark_good),
    "/bad": ("/bad [TOOL]", _mark_bad),
    "/new": ("/new", _start_conversation),
    "/save": ("/save FILE", _save_transcript),
    "/help": ("/help", _show_help),
    "/quit": ("/quit", _end_chat),
}
_QUIT_WORDS: Final = frozenset({"quit", "exit", "/exit"})


STILL_WAITING_MESSAGE: Final = "\nStopped. The call still waits for approval."
DECIDE_HINT: Final = "Decide with /approve, /approve no REASON or /approve edit KEY=VALUE."


class ChatSession:
    """The state of one person's conversation."""

    def __init__(
        self,
        thread: RouterThread,
        lines: LineReader,
        *,
        conversation: str | None,
        mode: str | None,
        server: str | None,
        profile: str | None,
    ) -> None:
        thread.router.profiles.resolve_profile(profile, caller=get_person())  # report an unknown name first
        self.profile = profile
        self.thread = thread
        self.mode = mode
        self.server = server
        self.by = get_person()
        self.conversation = conversation or create_id("ses")
        self.history: tuple[Message, ...] = ()
        self._question_route: Route | None = None  # the question that the next line may answer
        if conversation is not None:
            store = thread.router.store
            self.history = thread.run(lambda _: read_history(store, conversation, caller=self.by))
            self._question_route = thread.run(
                lambda _: find_open_question(store, conversation, caller=self.by)
            )
        self.last: Route | None = None
        self.waiting: Route | None = None  # the call for /approve: that of the last line, never an older one
        self.is_over = False
        self._lines = lines
        self._dialogue = AnswerDialog(thread)

    def greet(self) -> None:
        tools = format_count(len(self.thread.router.tools.cards), "tool")
        before = f", {format_count(len(self.history), 'message')} so far" if self.history else ""
        print_dim(
            f"{tools}; conversation {clean_text(self.conversation)}{before}. "
            "Type /help for commands, quit to end."
        )

    def read_lines(self) -> None:
        """Handle lines until the input ends."""
        while not self.is_over:
            try:
                line = self._lines.next()
            except KeyboardInterrupt:
                print_dim("\nTo end the chat, type quit or press Ctrl-D.")
                continue
            except InputLineTooLong as refused:
                self.waiting = None
                _report_error(refused)
                continue
            if line is None:
                break
            if line.strip():
                self._handle_line(line.strip())
        if self._lines.is_interactive and not self.is_over:
            click.echo(err=True)  # Ctrl-D leaves the prompt on the line
        print_dim(
            repeat_options(
                f"Continue later with `fingerpost chat --conversation {clean_text(self.conversation)}`."
            )
        )

    def _handle_line(self, line: str) -> None:
        """Handle one line; errors are printed."""
        try:
            if line.lower() in _QUIT_WORDS:
                self.is_over = True
            elif is_command(line):
                run_command(self, line)
            else:
                self.ask(line)
        except KeyboardInterrupt:
            print_dim("stopped")
        except FingerpostError as error:
            _report_error(error)

    def ask(self, text: str) -> None:
        """Run a request with the history of the conversation."""
        self.waiting = None
        route_options = RouteOptions(
            history=self.history,
            conversation=self.conversation,
            caller=self.by,
            server=self.server,
            profile=self.profile,
            mode=self.mode,
            working_directory=str(Path.cwd()),
        )
        route = self._dialogue.follow(self._question_route, text, route_options)
        self._show_result(self._dialogue.settle(route, self._decide))

    def approve(self, approval: Approval) -> None:
        """Resume the waiting call with this decision."""
        assert self.waiting is not None
        refuse_tools()
        self._show_result(self._dialogue.settle(self._dialogue.resume(self.waiting, approval), self._decide))

    def start_over(self) -> None:
        """Start an empty conversation."""
        self.conversation, self.history = create_id("ses"), ()
        self.last = self.waiting = self._question_route = None

    def _show_result(self, route: Route) -> None:
        self.last = route
        self.waiting = route if route.pending is not None else None
        self._question_route = route if route.pending is None and _takes_answer(route) else None
        if route.pending is not None or route.question is not None:
            discard_typed_ahead()  # the next line answers this, so it must be typed after it is shown
        if route.pending is not None:
            if not self._lines.is_interactive:
                show_pending(route.pending)
            print_dim(DECIDE_HINT)
            return
        self.history = append_exchange(route.packet, route.answer)
        if route.question is not None:
            show_question(route)
        else:
            print_dim(format_footer(route))

    def _decide(self, pending: Pending) -> Approval | None:
        # In a pipe the next line may be the next request, so only /approve counts as an answer.
        if not self._lines.is_interactive:
            return None
        try:
            return self.thread.ask_permission(pending, by=self.by)
        except KeyboardInterrupt:  # ends the question, not the call, which keeps waiting
            print_dim(STILL_WAITING_MESSAGE)
            return None


def _report_error(error: FingerpostError) -> None:
    print_error(clean_text(str(error)), clean_text(repeat_options(error.hint)) if error.hint else None)


def _takes_answer(route: Route) -> bool:
    """Return whether the next line is taken as the answer to the question."""
    return route.mode is Mode.KEYLESS or (route.question is not None and route.question.call is not None)


def start_chat(*, common: CommonOptions, wait: float, server: str | None, **options: Any) -> int:
    """Talk with your tools: each line is a request, and what was said before is remembered."""
    if common.as_json:
        message = "`fingerpost chat` has no JSON output; use `fingerpost ask --json --conversation ID`"
        raise click.UsageError(message)
    with RouterThread(read_settings(common)) as thread:
        thread.connect(server=server, wait=wait)
        chat = ChatSession(thread, LineReader(list(CHAT_COMMANDS)), server=server, **options)
        chat.greet()
        chat.read_lines()
    return 0
