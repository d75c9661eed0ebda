"""From a message to its answer: queues, conversations, progress and results."""

from __future__ import annotations

import logging
import math
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import aiohttp
import anyio
import discord
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import CallContext, Message, Pending, RouteOutcome, create_id
from fingerpost.redaction import scrub
from fingerpost.router import RouteOptions, Router
from fingerpost.router.conversations import append_exchange, find_question, find_reply
from fingerpost.router.route import Route
from fingerpost.settings import DiscordSettings
from fingerpost.store import Store
from fingerpost.surfaces.discord.approvals import (
    DiscordApprovals,
    DiscordPerson,
    PostedApproval,
    build_conversation_id,
    parse_channel_id,
)
from fingerpost.surfaces.discord.messages import (
    EDIT_INTERVAL_S,
    SHUTDOWN_TEXT,
    AttachmentReader,
    Channel,
    ProgressMessage,
    collect_files,
    deliver_answer,
    escape_line,
    get_typed_text,
    show_progress,
)
from fingerpost.surfaces.http.access import RateLimiter

MAX_CONCURRENT: Final = 8  # running requests of all conversations
MAX_QUEUED: Final = 200  # of all conversations


@dataclass(slots=True)
class _ConversationQueue:
    """The queue of one conversation. The lock is fair, so requests run in order."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    length: int = 0


class DiscordQueue:
    """Limits and orders requests."""

    def __init__(self, settings: DiscordSettings) -> None:
        self._rate = RateLimiter(settings.requests_per_minute)
        self._max_waiting = settings.max_waiting
        self._queues: dict[str, _ConversationQueue] = {}
        self._concurrency = anyio.CapacityLimiter(MAX_CONCURRENT)
        self._warned: set[str] = set()  # callers that were informed about their rate limit

    def explain_refusal(self, caller: str, conversation: str) -> str | None:
        """Count a request. Return why the caller must wait, empty if it was told a moment ago, or None."""
        if sum(queue.length for queue in self._queues.values()) >= MAX_QUEUED:
            return "Too many requests are waiting. Please try again in a few minutes."
        queue = self._queues.get(conversation)
        if queue is not None and queue.length > self._max_waiting:
            many = "1 request waits" if self._max_waiting == 1 else f"{self._max_waiting} requests wait"
            return f"{many} here already. Please wait for the answers."
        wait = self._rate.take_token(caller)
        if wait == 0:
            self._warned.discard(caller)
            return None
        if caller in self._warned:
            return ""
        self._warned.add(caller)
        return f"Too many requests. Please try again in {math.ceil(wait)} seconds."

    def is_busy(self, conversation: str) -> bool:
        return conversation in self._queues

    @asynccontextmanager
    async def wait_turn(self, conversation: str) -> AsyncGenerator[None]:
        """Wait for this request's turn, and keep it for the duration of the block."""
        queue = self._queues.setdefault(conversation, _ConversationQueue())
        queue.length += 1
        try:
            async with queue.lock, self._concurrency:
                yield
        finally:
            queue.length -= 1
            if queue.length == 0:
                del self._queues[conversation]


MAX_MESSAGES: Final = 60  # per conversation; models may get fewer
MAX_CONVERSATIONS: Final = 500  # in memory; others are restored from the journal
ATTACHED_FILE: Final = "an attached file"
MAX_QUESTIONS: Final = 10  # open questions per conversation
JOURNAL_LOOK_BACK: Final = 20  # packets


@frozen
class DiscordConversation:
    """The state of a conversation: its messages, its callers, and open questions to them."""

    history: tuple[Message, ...] = ()
    askers: frozenset[str] = frozenset()
    asked: tuple[Route, ...] = ()  # open questions, each to the caller of its request
    said: tuple[tuple[str | None, str], ...] = ()  # callers and what they typed, oldest first

    def list_words(self, caller: str | None) -> tuple[str, ...]:
        """Return what this caller typed: words of others in the channel, and files, are not the caller's."""
        return tuple(text for who, text in self.said if who == caller)


class DiscordConversations:
    """The conversations of the connector."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._conversations: OrderedDict[str, DiscordConversation] = OrderedDict()

    async def load(self, conversation: str) -> DiscordConversation:
        """Return a conversation. Secrets are masked if it comes from the journal."""
        if conversation not in self._conversations:
            self._cache(conversation, await self._restore_from_journal(conversation))
        self._conversations.move_to_end(conversation)
        return self._conversations[conversation]

    def remember(self, conversation: str, before: DiscordConversation, route: Route) -> None:
        """Add this request and its answer to the conversation."""
        prompt = Message(role="user", text=route.packet.content.original_prompt)
        reply = Message(role="assistant", text=route.answer)
        caller = route.packet.header.caller
        now = self._conversations.get(conversation, before)
        others = tuple(each for each in now.asked if each.packet.header.caller != caller)
        # A request that waits for an approval is added later, when there is an answer.
        exchange = () if route.outcome is RouteOutcome.WAITING else (prompt, reply)
        asked = (route,) if route.outcome is RouteOutcome.ASKED else ()
        state = DiscordConversation(
            history=(*now.history, *exchange)[-MAX_MESSAGES:],
            askers=now.askers if caller is None else now.askers | {caller},
            asked=(*others[-MAX_QUESTIONS:], *asked),
            said=(*now.said, (caller, get_typed_text(prompt.text)))[-MAX_MESSAGES:],
        )
        self._cache(conversation, state)

    def _cache(self, conversation: str, conversation_state: DiscordConversation) -> None:
        self._conversations[conversation] = conversation_state
        if len(self._conversations) > MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)

    async def _restore_from_journal(self, conversation: str) -> DiscordConversation:
        """Restore a conversation from its newest answered packet, which contains the messages before it."""
        journal = self._store.journal
        await journal.flush()
        found = await journal.list_session_packets(conversation, limit=JOURNAL_LOOK_BACK)
        packets = [packet for packet in found if packet.header.parent_id is None]
        callers = frozenset(packet.header.caller for packet in packets if packet.header.caller)
        said = [(one.header.caller, get_typed_text(one.content.original_prompt)) for one in packets]
        state = DiscordConversation(askers=callers, said=tuple(reversed(said)))
        for number, packet in enumerate(packets):
            events = [entry.event for entry in await journal.list_events(packet_id=packet.packet_id)]
            reply = find_reply(events)
            if reply is None:
                continue
            asked = find_question(events) if number == 0 else None
            history = append_exchange(packet, reply)[-MAX_MESSAGES:]
            return replace(state, history=history, asked=() if asked is None else (asked,))
        return state


log = logging.getLogger("fingerpost.discord")

HELP_TEXT: Final = "Ask me something: I find a fitting tool, and ask before anything is changed."
STARTED_TEXT: Final = "Reading your request…"
MAX_THREAD_NAME_LENGTH: Final = 80
SHUTDOWN_MESSAGE_S: Final = 3.0
RETRY_S: Final = (5.0, 30.0, 120.0)  # pauses between attempts while Discord refuses
MAX_OPTIONS: Final = 20


@frozen
class IncomingMessage:
    """A message addressed to the bot."""

    message: discord.Message
    person: DiscordPerson
    text: str


class DiscordConnector:
    """Answers messages, in order within each conversation."""

    def __init__(
        self,
        router: Router,
        settings: DiscordSettings,
        tasks: TaskGroup,
        *,
        channel: Callable[[int], Awaitable[Channel | None]],
        interval: float = EDIT_INTERVAL_S,
    ) -> None:
        """`channel` finds a channel by id; `interval` is the time in seconds between edits of one message."""
        self._router = router
        self._settings = settings
        self._tasks = tasks
        self._channel = channel
        self._interval = interval
        self._queue = DiscordQueue(settings)
        self._incoming = AttachmentReader(router.calls.results, settings)
        self.conversations = DiscordConversations(router.store)
        self.approvals = DiscordApprovals(
            router,
            settings,
            channel=channel,
            resume=self._resume,
            show_pending=self._show_pending,
            is_busy=self._queue.is_busy,
            start=self.start,
        )

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run `work` in the background. Errors are logged and do not affect other work."""

        async def run_guarded() -> None:
            try:
                await work(*arguments)
            except discord.HTTPException as error:
                log.warning("Discord refused something: %s", scrub(str(error)))
            except Exception:
                log.exception("a message could not be dealt with")

        self._tasks.start_soon(run_guarded)

    async def answer_message(self, incoming: IncomingMessage) -> None:
        """Answer a message."""
        message, caller = incoming.message, incoming.person.caller
        source = message.channel
        conversation = build_conversation_id(source.id)
        refusal = self._queue.explain_refusal(caller, conversation)
        if refusal is None and not incoming.text and not message.attachments:
            refusal = HELP_TEXT
        if refusal is not None:
            if refusal:
                await ProgressMessage.post(source, refusal, answering=message)
            return
        channel = await _open_channel(message, incoming.text)
        conversation = build_conversation_id(channel.id)
        async with self._queue.wait_turn(conversation):
            answering = message if channel.id == source.id else None
            note = await ProgressMessage.post(
                channel, STARTED_TEXT, answering=answering, interval=self._interval
            )
            await self._answer_in_turn(incoming, conversation, note)

    async def _answer_in_turn(
        self, incoming: IncomingMessage, conversation: str, progress: ProgressMessage
    ) -> None:
        caller = incoming.person.caller
        attached = await self._incoming.receive_attachments(incoming.message.attachments, caller=caller)
        text = "\n\n".join(part for part in (incoming.text, attached.text) if part)
        if not text:
            await progress.replace_content("\n".join(escape_line(line) for line in attached.left_out))
            return
        state = await self.conversations.load(conversation)
        options = RouteOptions(
            history=state.history,
            conversation=conversation,
            caller=caller,
            profile=self._settings.profile,
            words=(*state.list_words(caller), incoming.text),
            trail=f"channel {conversation}",  # what one person in it read, others read in the history
        )
        if attached.text:
            context = CallContext(call_id=create_id("cal"), caller=caller, trail=options.trail)
            await self._router.calls.data_trails.note_untrusted(ATTACHED_FILE, context, attached.text)
        asked = next((each for each in state.asked if each.packet.header.caller == caller), None)
        work = partial(self._route_text, asked, text, options)
        route = await self._run_with_progress(progress, conversation, work)
        if route is not None:
            await self._deliver_result(progress, conversation, state, route, left_out=attached.left_out)

    async def _route_text(self, asked: Route | None, text: str, options: RouteOptions) -> Route:
        """Route the text: as the reply to an open question, or as a new request."""
        if asked is not None and not text.rstrip().endswith("?"):
            route = await self._router.requests.reply(asked, text, options)
            if route.question != asked.question:
                return route
        return await self._router.requests.route(text, options)

    async def _run_with_progress(
        self,
        progress: ProgressMessage,
        conversation: str,
        work: Callable[[], Awaitable[Route]],
        *,
        packet_id: str | None = None,
    ) -> Route | None:
        """Run `work` and show its progress. Return None if it failed; the error was shown then."""
        routes: list[Route] = []
        failures: list[Exception] = []
        try:
            with self._router.live.subscribe() as events:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(show_progress, events, progress, self._router, conversation, packet_id)
                    tasks.start_soon(progress.keep_updating)
                    try:
                        routes.append(await work())
                    except Exception as error:  # noqa: BLE001 - told below; the group would wrap it
                        failures.append(error)
                    tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with (
                anyio.move_on_after(SHUTDOWN_MESSAGE_S, shield=True),
                suppress(discord.HTTPException, OSError),
            ):
                await progress.replace_content(SHUTDOWN_TEXT)
            raise
        if routes:
            return routes[0]
        await self._report_error(progress, failures[0])
        return None

    async def _report_error(self, progress: ProgressMessage, error: Exception) -> None:
        if isinstance(error, FingerpostError):
            log.warning("a request failed: %s", error)
            await progress.replace_content(f"This could not be answered: {escape_line(str(error), 500)}.")
            return
        log.error("a request failed", exc_info=error)
        text = "This could not be answered because of an internal error; see the log."
        await progress.replace_content(text)

    async def _deliver_result(
        self,
        progress: ProgressMessage,
        conversation: str,
        before: DiscordConversation,
        route: Route,
        *,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """Show the answer, or the call that waits for a decision."""
        self.conversations.remember(conversation, before, route)
        if route.pending is not None and route.outcome is RouteOutcome.WAITING:
            packets = route.pending.packets
            own = route.packet_id if route.packet_id in packets else packets[0]
            await self.approvals.show(progress, route.pending, own)
            return
        text = route.answer
        if route.question is not None:
            text = "\n".join([text, *_get_options(route)])
        if left_out:
            text = "\n".join([text, "", *(f"-# Not used: {escape_line(line)}" for line in left_out)])
        await deliver_answer(progress, text, await collect_files(route, self._router.calls.results))

    async def _show_pending(self, pending: Pending, packet_id: str) -> None:
        """Show a waiting call for a request that has no message for it yet."""
        channel = await self._channel(parse_channel_id(pending.conversation) or 0)
        if channel is None or pending.conversation is None:
            return
        async with self._queue.wait_turn(pending.conversation):
            await self.approvals.show(await ProgressMessage.post(channel, STARTED_TEXT), pending, packet_id)

    async def _resume(self, pending: Pending, posted: PostedApproval) -> None:
        """Show the decision and resume the request. Retry while Discord refuses."""
        for pause in RETRY_S:
            try:
                await self._apply_decision(pending, posted)
            except (discord.NotFound, discord.Forbidden):  # the channel is gone
                raise
            except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
                log.warning("%s cannot go on yet: %s", pending.pending_id, scrub(str(error)))
                await anyio.sleep(pause)
            else:
                return

    async def _apply_decision(self, pending: Pending, posted: PostedApproval) -> None:
        channel = await self._channel(posted.channel)
        if channel is None or pending.conversation is None:
            return
        await self.approvals.show_decision(channel, pending, posted)
        async with self._queue.wait_turn(pending.conversation):
            note = await ProgressMessage.post(channel, "Going on…", interval=self._interval)
            said = (await self.conversations.load(pending.conversation)).list_words(pending.caller)
            options = RouteOptions(caller=pending.caller, profile=self._settings.profile, words=said)
            own = posted.packet_id
            resume = partial(self._router.requests.resume, pending.pending_id, None, options, packet_id=own)
            route = await self._run_with_progress(note, pending.conversation, resume, packet_id=own)
            # Not cancelled between the answer and its record; otherwise it would be sent twice.
            with anyio.CancelScope(shield=True):
                if route is not None:
                    state = await self.conversations.load(pending.conversation)
                    await self._deliver_result(note, pending.conversation, state, route)
                await self.approvals.mark_settled(posted)


async def _open_channel(
    message: discord.Message, text: str
) -> discord.Thread | discord.abc.MessageableChannel:
    """Return where to answer: direct messages and threads in place, other channels in a new thread."""
    channel = message.channel
    if message.guild is None or isinstance(channel, discord.Thread):
        return channel
    name = re.sub(r"\s+", " ", text).strip()[:MAX_THREAD_NAME_LENGTH] or "A request"
    try:
        return await message.create_thread(name=name, auto_archive_duration=1440)
    except (discord.HTTPException, ValueError) as error:  # not permitted, or not a text channel
        log.info("no thread could be opened: %s", error)
        return channel


def _get_options(route: Route) -> list[str]:
    """Return the possible answers to a question, if they are known and not in its text."""
    missing = () if route.question is None else route.question.missing
    return [
        f"-# {escape_line(each.name, 60)}: "
        f"{', '.join(escape_line(option, 60) for option in each.options[:MAX_OPTIONS])}"
        for each in missing
        if not all(option in route.answer for option in each.options)
    ]
