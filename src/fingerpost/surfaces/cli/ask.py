"""`fingerpost ask`: answer one request. The router runs on a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import click
from anyio.from_thread import start_blocking_portal

from fingerpost.events import Event
from fingerpost.events.route import NO_MODEL_NAME
from fingerpost.frozen import frozen
from fingerpost.records import Approval, MissingArgument, Pending, Question, RouteOutcome, create_id
from fingerpost.redaction import scrub_json
from fingerpost.router.conversations import append_exchange, find_open_question
from fingerpost.router.options import RouteOptions
from fingerpost.settings import Loaded
from fingerpost.surfaces.cli.answer_output import AnswerWriter, make_readable
from fingerpost.surfaces.cli.approvals import CallChoice, ask_permission, find_call, show_pending
from fingerpost.surfaces.cli.common import (
    connect_servers,
    open_any_router,
    open_router,
    read_settings,
    settle_tools,
)
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, print_dim, print_json
from fingerpost.surfaces.cli.streams import style_text
from fingerpost.surfaces.cli.terminal_input import (
    ask_line,
    get_person,
    is_at_terminal,
    read_request,
    refuse_tools,
)

if TYPE_CHECKING:
    from fingerpost.llm import OnText
    from fingerpost.router import Route, Router

    RouteWork: TypeAlias = Callable[[OnText | None], Coroutine[Any, Any, Route]]


R = TypeVar("R")

RouterOutput = str | Event  # a piece of the answer, or an event
OutputHandler = Callable[[RouterOutput], None]

CANCEL_TIMEOUT_S: Final = 10.0  # time for a cancelled answer to release its resources
POLL_SECONDS: Final = 0.2  # a wait without a timeout cannot be interrupted on all platforms


class RouterThread:
    """Context manager: a router on an event loop in another thread. The main thread stays free for input.

    It is an event sink: while work runs, its events are passed to the handler of the work.
    """

    router: Router

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._on_event: OutputHandler | None = None
        self._stack = ExitStack()

    def emit(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            opened = self._portal.wrap_async_context_manager(_open_answering_router(self._loaded))
            self.router = stack.enter_context(opened)
            self.router.events.add(self)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # The event loop cannot handle exceptions of this thread (Ctrl-C, a closed pipe).
        self._stack.close()

    def connect(self, *, server: str | None, wait: float, request: str | None = None) -> None:
        """Connect all servers or one, and wait for the vectors of the tools if `request` may need them."""

        async def work() -> None:
            await connect_servers(self.router, server, wait=wait)
            await settle_tools(self.router, request)

        self.run(lambda _: work())

    def ask_permission(self, pending: Pending, *, by: str) -> Approval | None:
        """Ask the person about a call. Return the decision, or None if there was no answer."""
        card = self.router.tools.get(pending.tool)

        def mark_read_only() -> None:
            fingerprint = pending.definition_fingerprint
            assert fingerprint is not None
            self.run(lambda _: self.router.say_only_reads(pending.tool, by=by, fingerprint=fingerprint))

        return ask_permission(pending, by=by, card=card, mark_read_only=mark_read_only)

    def run(
        self, work: Callable[[OutputHandler], Coroutine[Any, Any, R]], handle: OutputHandler | None = None
    ) -> R:
        """Run `work` on the event loop; `handle` gets its output and events on this thread.

        Ctrl-C cancels the work; `KeyboardInterrupt` is raised when it has ended.
        """
        outputs: SimpleQueue[RouterOutput | None] = SimpleQueue()

        async def run_work() -> R:
            self._on_event = outputs.put
            try:
                return await work(outputs.put)
            finally:
                self._on_event = None
                outputs.put(None)

        task = self._portal.start_task_soon(run_work)
        try:
            while (output := _get_output(outputs)) is not None:
                if handle is not None:
                    handle(output)
        except BaseException:  # Ctrl-C, or the output is closed
            task.cancel()
            _drain(outputs)
            raise
        return task.result()


@asynccontextmanager
async def _open_answering_router(loaded: Loaded) -> AsyncGenerator[Router]:
    """Open the router. Servers are required only if no model is configured."""
    models = loaded.settings.models
    no_model = models.lite is None and models.prime is None
    async with (open_router if no_model else open_any_router)(loaded) as router:
        yield router


def _get_output(outputs: SimpleQueue[RouterOutput | None]) -> RouterOutput | None:
    while True:
        with suppress(Empty):
            return outputs.get(timeout=POLL_SECONDS)


def _drain(outputs: SimpleQueue[RouterOutput | None]) -> None:
    """Discard output until the work has ended."""
    with suppress(Empty):
        while outputs.get(timeout=CANCEL_TIMEOUT_S) is not None:
            pass


MAX_APPROVALS: Final = 50  # per request: limits a model that requests ever more approvals

Decide: TypeAlias = "Callable[[Pending], Approval | None]"


class AnswerDialog:
    """Runs requests and writes their answers as they arrive; `quiet` writes nothing.

    `limits` apply to resumed requests, too.
    """

    def __init__(
        self, thread: RouterThread, *, quiet: bool = False, limits: RouteOptions | None = None
    ) -> None:
        self.thread = thread
        self._quiet = quiet
        self._limits = limits or RouteOptions()

    def ask(self, text: str, route_options: RouteOptions) -> Route:
        """Run a request and return its route."""
        router = self.thread.router
        return self._run(lambda on_text: router.requests.route(text, replace(route_options, on_text=on_text)))

    def follow(self, question_route: Route | None, text: str, route_options: RouteOptions) -> Route:
        """Run a line that may answer the question of the route before it.

        A line that does not answer it, or is a question itself, is a new request.
        """
        if question_route is None or question_route.question is None or text.rstrip().endswith("?"):
            return self.ask(text, route_options)
        router = self.thread.router
        route = self._run(
            lambda on_text: router.requests.reply(
                question_route, text, replace(route_options, on_text=on_text)
            )
        )
        return self.ask(text, route_options) if route.question == question_route.question else route

    def resume(self, route: Route | str, approval: Approval | None = None) -> Route:
        """Resume a request after a decision."""
        router = self.thread.router
        return self._run(
            lambda on_text: router.requests.resume(route, approval, replace(self._limits, on_text=on_text))
        )

    def settle(self, route: Route, decide: Decide) -> Route:
        """Resume while `decide` returns a decision about the waiting call."""
        for _ in range(MAX_APPROVALS):
            if route.pending is None or (approval := decide(route.pending)) is None:
                break
            route = self.resume(route, approval)
        return route

    def _run(self, run_route: RouteWork) -> Route:
        if self._quiet:
            return self.thread.run(lambda _: run_route(None))
        writer = AnswerWriter()
        try:
            route = self.thread.run(run_route, writer.handle)
        except BaseException:
            writer.stop()
            raise
        # A pending call or question is not the answer. The code that asks the person shows it.
        writer.finish("" if route.pending is not None or route.question is not None else route.answer)
        return route


MAX_QUESTIONS: Final = 5  # questions per request
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
class AskOptions:
    """The options of `fingerpost ask`."""

    text: str
    route: RouteOptions
    known: bool  # the conversation may have started earlier
    resume: str | None
    yes: bool
    explain: bool
    technical: bool
    as_json: bool


def run_request(loaded: Loaded, options: AskOptions, *, wait: float) -> int:
    """Answer the request, show the answer and return the exit code."""
    with RouterThread(loaded) as thread:
        request_text = None if options.known or options.resume else options.text
        thread.connect(server=options.route.server, wait=wait, request=request_text)
        request = _AskRequest(thread, options)
        route = request.run()
        request.show(route)
    return EXIT_CODES[route.outcome]


class _AskRequest:
    """One request of `fingerpost ask`."""

    def __init__(self, thread: RouterThread, options: AskOptions) -> None:
        self._thread = thread
        self._options = options
        self._by = get_person()
        limits = RouteOptions(max_turns=options.route.max_turns, seconds=options.route.seconds)
        self._dialogue = AnswerDialog(thread, quiet=options.as_json, limits=limits)
        self._can_ask = is_at_terminal() and not options.as_json

    def run(self) -> Route:
        """Run the request, asking the person where needed, and return the route."""
        route = self._dialogue.settle(self._start(), self._decide)
        for _ in range(MAX_QUESTIONS):
            if route.question is None or route.pending is not None:
                break
            if not (line := self._answer_question(route)):
                break
            history = append_exchange(route.packet, route.answer)
            route_options = replace(self._options.route, history=history)
            route = self._dialogue.settle(self._dialogue.follow(route, line, route_options), self._decide)
        return route

    def _answer_question(self, route: Route) -> str:
        """Return the answer to the question of the route, or an empty text if there is none."""
        if self._options.yes and (tool := find_tool_to_confirm(route.question)) is not None:
            refuse_tools()
            return tool
        if not self._can_ask:
            return ""
        show_question(route)
        return (ask_line("> ") or "").strip()

    def _start(self) -> Route:
        options = self._options
        if options.resume is not None:
            return self._dialogue.resume(self._thread.run(lambda _: self._find_pending_id(options.resume)))
        if not options.known:
            return self._dialogue.ask(options.text, replace(options.route, history=()))
        store, conversation = self._thread.router.store, options.route.conversation
        assert conversation is not None
        question_route = self._thread.run(lambda _: find_open_question(store, conversation, caller=self._by))
        return self._dialogue.follow(question_route, options.text, options.route)

    async def _find_pending_id(self, given: str | None) -> str:
        router = self._thread.router
        found = await find_call(router.store, router.calls.approvals, CallChoice(given, last=False))
        return found.pending.pending_id

    def _decide(self, pending: Pending) -> Approval | None:
        if self._options.yes:
            refuse_tools()
            return pending.approve(by=self._by)
        if not self._can_ask:
            return None
        try:
            return self._thread.ask_permission(pending, by=self._by)
        except KeyboardInterrupt:  # ends the question, not the call, which keeps waiting
            click.echo(
                f"\nStopped. The call still waits for approval. {_format_next_step(pending)}", err=True
            )
            raise

    def show(self, route: Route) -> None:
        if self._options.as_json:
            print_json(scrub_json(route.as_json()))
        elif route.outcome not in (RouteOutcome.WAITING, RouteOutcome.ASKED):
            print_dim(format_footer(route))
        self._show_next_step(route)
        if self._options.technical and route.detail:
            click.echo(f"Technical details:\n{make_readable(route.detail)}", err=True)
        if self._options.explain and not self._options.as_json:
            self._explain(route)

    def _show_next_step(self, route: Route) -> None:
        if route.pending is not None:
            if not self._can_ask:
                show_pending(route.pending)
            click.echo(_format_next_step(route.pending), err=True)
        elif route.question is not None:
            if not self._can_ask:
                show_question(route)
            again = f'fingerpost ask --conversation {route.packet.header.session_id} "…"'
            click.echo(repeat_options(f"Answer it with `{clean_text(again)}`."), err=True)

    def _explain(self, route: Route) -> None:
        from fingerpost.surfaces.cli import explanation, trace  # both load rich

        store = self._thread.router.store

        async def read() -> Any:
            await store.journal.flush()
            return await trace.read_events(store, route.packet_id)

        explanation.show_explanation(route, self._thread.run(lambda _: read()) or route.events)


def _format_next_step(pending: Pending) -> str:
    """Return how to approve the waiting call and resume."""
    waiting = pending.pending_id
    return repeat_options(
        f"Approve it with `fingerpost approvals approve {waiting}`, "
        f"then continue with `fingerpost ask --resume {waiting}`."
    )


def find_tool_to_confirm(question: Question | None) -> str | None:
    """Return the only tool that the question offers, or None if it asks something else than yes or no."""
    if question is None or question.tool is not None or question.call is not None:
        return None
    match question.missing:
        case (MissingArgument(name="tool", options=(tool,)),):
            return tool
        case _:
            return None


def show_question(route: Route) -> None:
    """Print the question and the possible answers to stderr."""
    assert route.question is not None
    click.echo(make_readable(route.question.text), err=True)
    for missing in route.question.missing:
        if missing.options:
            options = ", ".join(clean_text(option) for option in missing.options[:20])
            click.echo(style_text(f"  {clean_text(missing.name)}: {options}", dim=True), err=True)


def format_footer(route: Route) -> str:
    """Return one line with the sources, time, tokens and cost of the answer."""
    parts = [", ".join(route.sources) or "no tool"]
    if route.answered_by:
        parts.append("no model used" if route.answered_by == NO_MODEL_NAME else f"by {route.answered_by}")
    parts.append(f"{route.milliseconds / 1000:.1f} s")
    if tokens := route.prompt_tokens + route.completion_tokens:
        parts.append(f"{tokens:,} tokens")
    if route.cost is not None:
        parts.append(f"cost {route.cost:.4f}")
    return " · ".join(clean_text(part) for part in (*parts, f"trace {route.packet_id}"))


def answer_request(*, request: tuple[str, ...], common: CommonOptions, **options: Any) -> int:
    """Answer REQUEST, with a tool where it needs one. With - it is read from stdin."""
    text = _read_text(request, options["resume"])
    same = ("server", "profile", "mode", "effort", "max_turns", "dry_run")
    route_options = RouteOptions(
        history=None,  # the router loads the conversation
        conversation=options["conversation"] or create_id("ses"),
        caller=get_person(),
        seconds=options["timeout"],
        working_directory=str(Path.cwd()),
        **{name: options[name] for name in same},
    )
    asked = AskOptions(
        text=text,
        route=route_options,
        known=options["conversation"] is not None,
        as_json=common.as_json,
        **{name: options[name] for name in ("resume", "yes", "explain", "technical")},
    )
    return run_request(read_settings(common), asked, wait=options["wait"])


def _read_text(request: tuple[str, ...], resume: str | None) -> str:
    if resume is not None:
        if request:
            raise click.UsageError("--resume continues an earlier request; leave the request out")
        return ""
    text = read_request() if request == ("-",) else " ".join(request).strip()
    if not text:
        message = "the request is missing; write it after the command, or - to read it from stdin"
        raise click.UsageError(message)
    return text
