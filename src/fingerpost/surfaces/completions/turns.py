"""A question taken to its answer: routed, held while a person decides, gone on with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol

import anyio

from fingerpost.errors import FingerpostError
from fingerpost.events import AttemptStarted, ModelAnswered, PacketReceived
from fingerpost.frozen import frozen
from fingerpost.records import Decision, Message, Pending, RouteOutcome
from fingerpost.router import AnswerPiece, Asking, Route, Router
from fingerpost.router.route import StreamItem
from fingerpost.router.router import FIRST_CONNECT_S
from fingerpost.surfaces.completions import approvals
from fingerpost.surfaces.completions.asking import Turn, asking_for, going_on
from fingerpost.surfaces.completions.awaited import Awaited
from fingerpost.surfaces.completions.chats import Chats
from fingerpost.surfaces.completions.faults import ApiFault, fault_of
from fingerpost.surfaces.completions.hidden import Hidden
from fingerpost.surfaces.completions.messages import Talk
from fingerpost.surfaces.web.deciding import decided
from fingerpost.surfaces.web.links import approval_page

MOST_WAITS: Final = 50  # calls of one request a person decides about, while it is held


class Listener(Protocol):
    """Who hears of an answer while it is made."""

    async def began(self, packet_id: str) -> None:
        """The request has its id."""
        ...

    async def text(self, piece: str) -> None:
        """A piece of the answer."""
        ...

    async def note(self, words: str) -> None:
        """What is being done; not part of the answer."""
        ...


class RecordingListener:
    """A listener that keeps the words that were passed on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.began = listener.began
        self.note = listener.note
        self.said: list[str] = []

    async def text(self, piece: str) -> None:
        self.said.append(piece)
        await self._listener.text(piece)


@frozen
class Ended:
    """The end of a question: the last route, and what all of them together cost."""

    route: Route
    text: str  # what the caller reads
    finish: str
    refusal: str = ""  # in place of the text
    reasoning: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: float = 0.0
    model_milliseconds: float = 0.0
    parts: tuple[Route, ...] = ()  # more than one where a person decided in between
    approve_at: str | None = None


class Turns:
    """Takes questions to their answers."""

    def __init__(self, router: Router, *, address: str) -> None:
        self._router = router
        self._address = (router.settings.gateway.public_url or address).rstrip("/")
        self._hidden = Hidden(router.store)
        self._awaited = Awaited(router.store)
        self._chats = Chats(router.store)
        self._waits_until = time.monotonic() + FIRST_CONNECT_S
        self._settled = False

    async def take(self, turn: Turn, listener: Listener | None = None) -> Ended:
        """The answer. Raises `ApiFault` where there is none to give."""
        began = time.monotonic()
        if turn.manner.conversation is None:
            chat = await self._chats.find(turn.whose, turn.question.talk.messages)
            turn = replace(turn, chat=chat)
        heard = None if listener is None else RecordingListener(listener)
        try:
            routes = await self._routes(turn, heard)
        except FingerpostError as error:
            raise fault_of(error) from error
        route = routes[-1]
        await self._remember(turn, routes)
        if (fault := _failure(route)) is not None:
            raise fault
        if route.hidden and route.tool_calls:
            await self._hidden.keep(_whose(turn), route.tool_calls, route.hidden)
        ended = self._ended(routes, (time.monotonic() - began) * 1000)
        if turn.manner.conversation is None:
            await self._keep_chat(turn, ended, "" if heard is None else "".join(heard.said))
        return ended

    async def _keep_chat(self, turn: Turn, ended: Ended, said: str) -> None:
        """The chat goes on behind what its caller has read."""
        answer = Message(
            role="assistant",
            text=ended.refusal or said + rest_of(ended.text, said),
            tool_calls=ended.route.tool_calls,
        )
        messages = (*turn.question.talk.messages, answer)
        durable = bool(answer.tool_calls) or ended.approve_at is not None
        await self._chats.keep(turn.whose, messages, turn.conversation, durable=durable)

    async def _routes(self, turn: Turn, listener: Listener | None) -> list[Route]:
        await self.ready()
        talk, waiting = await self._waiting(turn)
        await self._check_server(turn)
        if talk is None:
            asking = going_on(asking_for(turn, turn.question.talk, self._router))
        else:
            asking = asking_for(turn, talk, self._router)
            asking["since"] = await self._hidden.restored(_whose(turn), talk.since)
        if waiting is not None and waiting.packet_id is not None:
            if listener is not None:
                await listener.began(waiting.packet_id)
            route = await self._resumed(waiting.pending_id, asking, listener)
        else:
            route = await self._routed(turn.question.talk.request.text, asking, listener)
        routes = [route]
        until = time.monotonic() + self._router.settings.completions.approval_seconds
        while route.outcome is RouteOutcome.WAITING and route.pending is not None:
            settled = await self._decided(route.pending, until - time.monotonic(), listener)
            if not settled or len(routes) > MOST_WAITS:
                break
            route = await self._resumed(route.pending.pending_id, asking, listener, route.packet_id)
            routes.append(route)
        return routes

    async def ready(self) -> None:
        """Whoever comes early waits for the servers to connect; not for long, and only at first."""
        if not self._settled:
            left = max(0.0, self._waits_until - time.monotonic())
            settled = await self._router.servers.settled(timeout=left)
            self._settled = settled or time.monotonic() >= self._waits_until

    async def _check_server(self, turn: Turn) -> None:
        """Whoever may not use everything does not hear which servers there are."""
        server, reach = turn.manner.server, turn.reach
        if server is None or not reach.scopes:
            return
        view = await self._router.look(caller=turn.principal.name, profile=reach.profile, scopes=reach.scopes)
        if all(card.server != server for card in view.visible.cards):
            raise ApiFault(400, f"There is no server {server[:60]!r} for you.", "fingerpost.server")

    # -- the ways to a route ------------------------------------------------------------------------

    async def _routed(self, text: str, asking: Asking, listener: Listener | None) -> Route:
        if listener is None:
            return await self._router.route(text, **asking)
        async with aclosing(self._router.stream(text, **asking)) as items:
            failed = False
            async for item in items:
                if isinstance(item, Route):
                    return item
                # Words that are not the model's wait for the end: it may have to be an error.
                failed = failed or (isinstance(item, ModelAnswered) and item.error is not None)
                await _tell(listener, item, silent=failed)
        message = "a stream ended without its route"
        raise RuntimeError(message)

    async def _resumed(
        self, pending_id: str, asking: Asking, listener: Listener | None, packet_id: str | None = None
    ) -> Route:
        asking = asking.copy()
        if listener is None:
            return await self._router.resume(pending_id, packet_id=packet_id, **asking)
        routes: list[Route] = []
        failures: list[Exception] = []
        send, receive = anyio.create_memory_object_stream[str](float("inf"))

        def pass_on(piece: str) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the reader has left
                send.send_nowait(piece)

        asking["on_text"] = pass_on

        async def run() -> None:
            with send:
                try:
                    routes.append(await self._router.resume(pending_id, packet_id=packet_id, **asking))
                except Exception as error:  # noqa: BLE001 - raised below; the group would wrap it
                    failures.append(error)

        async with anyio.create_task_group() as tasks, aclosing(receive):
            tasks.start_soon(run)
            async for piece in receive:
                await listener.text(piece)
        if failures:
            raise failures[0]
        return routes[0]

    # -- a person's word ----------------------------------------------------------------------------

    async def _waiting(self, turn: Turn) -> tuple[Talk | None, Pending | None]:
        """The call this turn is about, asked for by id or spoken of in the last answer, and its request.

        Only a call of the same caller's: for anybody else there is none. No talk: it is not told again,
        and what the journal has of it counts.
        """
        asked = turn.manner.resume
        talk, noted = approvals.before_note(turn.question.talk)
        if asked is None and noted is None and (decided := await self._decided_before(turn)) is not None:
            return None, decided
        named = asked or noted
        pending = None if named is None else await self._router.store.approvals.get(named)
        if pending is not None and pending.caller == turn.principal.name and pending.packet_id is not None:
            return talk, pending
        if asked is None:
            return turn.question.talk, None
        raise ApiFault(
            404, f"Nothing of yours waits as {asked[:60]!r}.", param="fingerpost.resume", code="not_found"
        )

    async def _decided_before(self, turn: Turn) -> Pending | None:
        """What was decided about since the last answer, where a caller sends nothing but what is new.

        While it waits, what they say is a request of its own: a name may be given to more than one chat.
        """
        if turn.manner.conversation is None or not turn.question.talk.is_bare:
            return None
        named = await self._awaited.by(_whose(turn))
        pending = None if named is None else await self._router.store.approvals.get(named)
        if pending is None or pending.caller != turn.principal.name or pending.packet_id is None:
            return None
        return pending if pending.decision in (Decision.APPROVED, Decision.REJECTED) else None

    async def _remember(self, turn: Turn, routes: Sequence[Route]) -> None:
        """Which call the conversation waits for now, where it has a name it can be known by."""
        route = routes[-1]
        if turn.manner.conversation is None:
            return
        if route.outcome is RouteOutcome.WAITING and route.pending is not None:
            await self._awaited.keep(_whose(turn), route.pending.pending_id)
        elif (named := await self._awaited.by(_whose(turn))) is not None and await self._is_over(
            named, route
        ):
            await self._awaited.forget(_whose(turn))

    async def _is_over(self, pending_id: str, route: Route) -> bool:
        """Whether this route is what came of that call."""
        pending = await self._router.store.approvals.get(pending_id)
        return pending is None or route.packet_id in pending.packets

    async def _decided(self, pending: Pending, seconds: float, listener: Listener | None) -> bool:
        if pending.decision is not Decision.WAITING:
            return True
        if seconds <= 0:
            return False
        if listener is not None:
            where = approval_page(self._address, pending.pending_id)
            await listener.note(f"{pending.tool} waits for approval at {where}")
        return await decided(self._router, pending.pending_id, seconds)

    # -- the end ------------------------------------------------------------------------------------

    def _ended(self, routes: Sequence[Route], milliseconds: float) -> Ended:
        route = routes[-1]
        waiting = route.pending if route.outcome is RouteOutcome.WAITING else None
        return Ended(
            route=route,
            text=_text(route) if waiting is None else _waiting_text(route, waiting, self._address),
            finish=_finish(route),
            refusal=route.refusal,
            reasoning=route.reasoning,
            prompt_tokens=sum(part.prompt_tokens for part in routes),
            completion_tokens=sum(part.completion_tokens for part in routes),
            milliseconds=milliseconds,
            model_milliseconds=sum(part.model_milliseconds for part in routes),
            parts=tuple(routes),
            approve_at=None if waiting is None else approval_page(self._address, waiting.pending_id),
        )


async def _tell(listener: Listener, item: StreamItem, *, silent: bool) -> None:
    if isinstance(item, AnswerPiece):
        if not silent:
            await listener.text(item.text)
    elif isinstance(item, PacketReceived):
        await listener.began(item.packet.packet_id)
    elif isinstance(item, AttemptStarted):
        await listener.note(f"calling {item.tool}")


def rest_of(answer: str, said: str) -> str:
    """What of the answer has not been streamed yet: journeys without a model stream nothing."""
    answer, streamed = answer.strip(), said.strip()
    if not answer or streamed.endswith(answer):
        return ""
    if answer.startswith(streamed):
        return answer[len(streamed) :]
    return f"\n\n{answer}"


def _whose(turn: Turn) -> str:
    return f"{turn.principal.name}\n{turn.conversation}"


def _waiting_text(route: Route, waiting: Pending, address: str) -> str:
    """What was read before, where no model will tell it later, and how the call can be approved."""
    read = route.answer.removesuffix(route.question.text).strip() if route.question is not None else ""
    note = approvals.note_for(waiting, address)
    return f"{read}\n\n{note}" if read else note


def _text(route: Route) -> str:
    """The answer as the model wrote it: where it wrote none, words of ours would be a surprise."""
    return "" if route.refusal or route.wordless else route.answer


def _finish(route: Route) -> str:
    if route.outcome is RouteOutcome.HANDED_BACK:
        return "tool_calls"
    if route.outcome is RouteOutcome.LIMITED:
        return "length"
    models_own = route.outcome is RouteOutcome.ANSWERED or route.refusal or route.wordless
    return route.finish if models_own and route.finish != "tool_calls" else "stop"


def _failure(route: Route) -> ApiFault | None:
    """Something failed and no tool answered: other words in place of the model's would surprise."""
    if route.failure is None or route.packet.tool_routing.worked:
        return None
    return fault_of(route.failure)
