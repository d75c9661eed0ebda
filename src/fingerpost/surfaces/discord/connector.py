"""From a message to its answer: who may ask, where it is answered, what is said meanwhile."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import aiohttp
import anyio
import discord
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import Pending, RouteOutcome
from fingerpost.redaction import scrub
from fingerpost.router import Asking, Router
from fingerpost.router.route import Route
from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.discord.approvals import Approvals, Posted
from fingerpost.surfaces.discord.desk import Desk
from fingerpost.surfaces.discord.incoming import Incoming
from fingerpost.surfaces.discord.inert import plain
from fingerpost.surfaces.discord.memory import Conversations, Talk
from fingerpost.surfaces.discord.note import EVERY_S, STOPPED, Channel, Note, watch
from fingerpost.surfaces.discord.outgoing import deliver, enclosed_in
from fingerpost.surfaces.discord.people import Person, channel_of, conversation_of

log = logging.getLogger("fingerpost.discord")

HELP: Final = "Ask me something: I look for a tool that helps, and ask before anything is changed."
BEGUN: Final = "Reading your request…"
THREAD_NAME: Final = 80
GOODBYE_S: Final = 3.0
AGAIN_S: Final = (5.0, 30.0, 120.0)  # between tries to go on while Discord refuses
MOST_OPTIONS: Final = 20


@frozen
class Heard:
    """A message that is meant for us."""

    message: discord.Message
    person: Person
    text: str


class Connector:
    """Takes messages to answers, one after another in each conversation."""

    def __init__(
        self,
        router: Router,
        settings: DiscordSettings,
        tasks: TaskGroup,
        *,
        channel: Callable[[int], Awaitable[Channel | None]],
        every: float = EVERY_S,
    ) -> None:
        """`channel` finds one by its id; `every` is how many seconds lie between edits of one message."""
        self._router = router
        self._settings = settings
        self._tasks = tasks
        self._channel = channel
        self._every = every
        self._desk = Desk(settings)
        self._incoming = Incoming(router.calls.results, settings)
        self.conversations = Conversations(router.store)
        self.approvals = Approvals(
            router,
            settings,
            channel=channel,
            go_on=self._go_on,
            offer=self._offer,
            is_busy=self._desk.is_busy,
            start=self.start,
        )

    def start(self, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Have it done; whatever goes wrong is logged and costs nobody else anything."""

        async def guarded() -> None:
            try:
                await work(*given)
            except discord.HTTPException as error:
                log.warning("Discord refused something: %s", scrub(str(error)))
            except Exception:
                log.exception("a message could not be dealt with")

        self._tasks.start_soon(guarded)

    # -- asking -------------------------------------------------------------------------------------

    async def take(self, heard: Heard) -> None:
        """Answer a message."""
        message, caller = heard.message, heard.person.caller
        home = message.channel
        conversation = conversation_of(home.id)
        refusal = self._desk.why_not(caller, conversation)
        if refusal is None and not heard.text and not message.attachments:
            refusal = HELP
        if refusal is not None:
            if refusal:
                await Note.post(home, refusal, answering=message)
            return
        place = await _place(message, heard.text)
        conversation = conversation_of(place.id)
        async with self._desk.turn(conversation):
            answering = message if place.id == home.id else None
            note = await Note.post(place, BEGUN, answering=answering, every=self._every)
            await self._answer(heard, conversation, note)

    async def _answer(self, heard: Heard, conversation: str, note: Note) -> None:
        caller = heard.person.caller
        attached = await self._incoming.take(heard.message.attachments, caller=caller)
        text = "\n\n".join(part for part in (heard.text, attached.told) if part)
        if not text:
            await note.become("\n".join(plain(line) for line in attached.left_out))
            return
        talk = await self.conversations.recall(conversation)
        asking = Asking(
            history=talk.history,
            conversation=conversation,
            caller=caller,
            profile=self._settings.profile,
        )
        asked = talk.question_to(caller)
        route = await self._followed(note, conversation, lambda: self._routed(asked, text, asking))
        if route is not None:
            await self._tell(note, conversation, talk, route, left_out=attached.left_out)

    async def _routed(self, asked: Route | None, text: str, asking: Asking) -> Route:
        """A line may answer what was asked before it; a question of their own never does."""
        if asked is None or text.rstrip().endswith("?"):
            return await self._router.route(text, **asking)
        route = await self._router.reply(asked, text, **asking)
        return await self._router.route(text, **asking) if route.question == asked.question else route

    async def _followed(
        self,
        note: Note,
        conversation: str,
        work: Callable[[], Awaitable[Route]],
        *,
        packet_id: str | None = None,
    ) -> Route | None:
        """What `work` came to, its progress shown meanwhile; None where it failed, and was told so."""
        routes: list[Route] = []
        failures: list[Exception] = []
        try:
            with self._router.live.subscribe() as events:
                async with anyio.create_task_group() as tasks:

                    async def follow() -> None:
                        await watch(
                            events, note, self._router, conversation=conversation, packet_id=packet_id
                        )

                    tasks.start_soon(follow)
                    tasks.start_soon(note.keep_showing)
                    try:
                        routes.append(await work())
                    except Exception as error:  # noqa: BLE001 - told below; the group would wrap it
                        failures.append(error)
                    tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            await _say_goodbye(note)
            raise
        if routes:
            return routes[0]
        await self._excuse(note, failures[0])
        return None

    async def _excuse(self, note: Note, error: Exception) -> None:
        if isinstance(error, FingerpostError):
            log.warning("a request failed: %s", error)
            await note.become(f"This could not be answered: {plain(str(error), 500)}.")
            return
        log.error("a request failed", exc_info=error)
        await note.become("This could not be answered: something failed here. The log has the details.")

    async def _tell(
        self,
        note: Note,
        conversation: str,
        talk: Talk,
        route: Route,
        *,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """The person reads how it ended, or decides about what waits."""
        self.conversations.keep(conversation, talk, route)
        if route.pending is not None and route.outcome is RouteOutcome.WAITING:
            packets = route.pending.packets
            own = route.packet_id if route.packet_id in packets else packets[0]
            await self.approvals.show(note, route.pending, own)
            return
        text = route.answer
        if route.question is not None:
            text = "\n".join([text, *_options(route)])
        if left_out:
            text = "\n".join([text, "", *(f"-# Not taken: {plain(line)}" for line in left_out)])
        await deliver(note, text, await enclosed_in(route, self._router.calls.results))

    # -- going on -----------------------------------------------------------------------------------

    async def _offer(self, pending: Pending, packet_id: str) -> None:
        """Show a waiting call that was not shown to this request yet."""
        channel = await self._channel(channel_of(pending.conversation) or 0)
        if channel is None or pending.conversation is None:
            return
        async with self._desk.turn(pending.conversation):
            await self.approvals.show(await Note.post(channel, BEGUN), pending, packet_id)

    async def _go_on(self, pending: Pending, posted: Posted) -> None:
        """A call was decided: its message says so, and its request goes on, as soon as Discord lets us."""
        for pause in AGAIN_S:
            try:
                await self._follow_decision(pending, posted)
            except (discord.NotFound, discord.Forbidden):  # there is no place left to say it
                raise
            except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
                log.warning("%s cannot go on yet: %s", pending.pending_id, scrub(str(error)))
                await anyio.sleep(pause)
            else:
                return

    async def _follow_decision(self, pending: Pending, posted: Posted) -> None:
        channel = await self._channel(posted.channel)
        if channel is None or pending.conversation is None:
            return
        await self.approvals.show_decision(channel, pending, posted)
        async with self._desk.turn(pending.conversation):
            note = await Note.post(channel, "Going on…", every=self._every)
            asking = Asking(caller=pending.caller, profile=self._settings.profile)
            route = await self._followed(
                note,
                pending.conversation,
                lambda: self._router.resume(pending.pending_id, packet_id=posted.packet_id, **asking),
                packet_id=posted.packet_id,
            )
            # Told to its end, and noted: whoever stops us in between would have it told once more.
            with anyio.CancelScope(shield=True):
                if route is not None:
                    talk = await self.conversations.recall(pending.conversation)
                    await self._tell(note, pending.conversation, talk, route)
                await self.approvals.settled(posted)


async def _say_goodbye(note: Note) -> None:
    """We are being stopped: nobody should wait for an answer that does not come."""
    with anyio.move_on_after(GOODBYE_S, shield=True), suppress(discord.HTTPException, OSError):
        await note.become(STOPPED)


async def _place(message: discord.Message, text: str) -> discord.Thread | discord.abc.MessageableChannel:
    """Where it is answered: in private and in threads right there, else in a thread of its own."""
    channel = message.channel
    if message.guild is None or isinstance(channel, discord.Thread):
        return channel
    name = re.sub(r"\s+", " ", text).strip()[:THREAD_NAME] or "A request"
    try:
        return await message.create_thread(name=name, auto_archive_duration=1440)
    except (discord.HTTPException, ValueError) as error:  # not allowed, or not that kind of channel
        log.info("no thread could be opened: %s", error)
        return channel


def _options(route: Route) -> list[str]:
    """What will do as an answer, where that is known and the question does not say it."""
    missing = () if route.question is None else route.question.missing
    return [
        f"-# {plain(each.name, 60)}: {', '.join(plain(option, 60) for option in each.options[:MOST_OPTIONS])}"
        for each in missing
        if not all(option in route.answer for option in each.options)
    ]
