"""A call that waits inside of its server while its caller is away to answer a question.

Servers of the handshake era ask in the middle of a call; clients of 2026-07-28 cannot be
asked there. So the call runs in a task of its own. When its server asks, the client's
request is answered with the question (`input_required`); its next round brings the answer
in and waits for whatever comes next. How many calls may wait so, and for how long, is
bounded: a question nobody answers in time is answered with "cancelled", and the call
goes on to its end, with its record written as for any other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ToolFailed
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Outcome, new_id
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT
from fingerpost.surfaces.gateway.asking.side import Side, unanswered
from fingerpost.surfaces.gateway.asking.state import BadState, Seal, Sealed, binding_of
from fingerpost.surfaces.gateway.exchange import Exchange

log = logging.getLogger("fingerpost.gateway")

MOST: Final = 256
MOST_OF_ONE: Final = 32  # of one caller, so that nobody takes all the places
TOO_MANY: Final = -32000

_ACTIONS: Final = ("accept", "decline", "cancel")

Value = Outcome | JsonObject
Work = Callable[[], Awaitable[Value]]


@frozen(kw_only=False)
class Questions:
    """What the client must answer before the call can go on: an `input_required` result."""

    result: JsonObject


@dataclass(slots=True)
class _Question:
    method: str
    params: JsonObject
    answer: JsonObject | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class _Ended:
    value: Value | None = None
    error: Exception | None = None


class _Parked:
    """One call in a task of its own."""

    def __init__(self, side: Side) -> None:
        self.parked_id = new_id("prk")
        self.side = side
        self.binding = binding_of(side.request)
        self.scope = anyio.CancelScope()
        self.questions: dict[str, _Question] = {}
        self.asked = 0
        self.awaited_state: str | None = None  # the one state that may come back now
        self.abandoned = False  # nobody came back with an answer: nobody is asked again
        self.returned = anyio.Event()  # the client came back with the state it was given last
        self._ended: _Ended | None = None
        self._news = anyio.Event()

    async def drive(self, work: Work) -> None:
        try:
            with self.scope:
                self._ended = _Ended(value=await work())
        except Exception as error:  # noqa: BLE001 - raised again in the request that waits for this call
            self._ended = _Ended(error=error)
        finally:
            if self.abandoned and self._ended is not None and self._ended.error is not None:
                log.info("a call nobody came back for ended: %s", self._ended.error)
            self.news()

    def news(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def next(self) -> Value | None:
        """Wait for the end, whose value this is, or for questions: None."""
        while self._ended is None:
            if self.questions:
                return None
            if self.scope.cancel_called:
                break
            await self._news.wait()
        if self._ended is None:
            message = "the call was given up"
            raise FingerpostError(message)
        if self._ended.error is not None:
            raise self._ended.error
        assert self._ended.value is not None
        return self._ended.value


class Parking:
    """All calls that may have to wait for their caller."""

    def __init__(
        self, tasks: TaskGroup, seal: Seal, *, seconds: float, abandoned: Callable[[Side, str], None]
    ) -> None:
        """`abandoned` hears of every question (its method) that nobody answered in time."""
        self._tasks = tasks
        self._abandoned = abandoned
        self._seal = seal
        self._seconds = seconds
        self._waiting: dict[str, _Parked] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def run(self, side: Side, work: Work) -> Value | Questions:
        """Begin the call; its end, or the first questions of its server.

        A client that lost our answer issues the same call again: it gets the question again, not a
        second call beside the one that waits. A write would not run beside the first anyway.
        """
        if (parked := self._same(side)) is not None:
            return self._questions(parked)
        parked = _Parked(side)
        side.carry_by(lambda method, params: self._ask(parked, method, params))
        self._tasks.start_soon(self._drive, parked, work)
        return await self._step(parked)

    async def go_on(self, sealed: Sealed, exchange: Exchange, answers: JsonObject) -> Value | Questions:
        """Bring answers in; the end of the call, or what is still to be answered."""
        parked = self._waiting.get(sealed.subject)
        if parked is None:
            message = "is not waited for any more: its time was over, or the gateway was restarted"
            raise BadState(message, begun=True)
        if parked.awaited_state != sealed.state_id:
            message = "was used already"
            raise BadState(message, begun=True)
        parked.awaited_state = None
        parked.returned.set()
        parked.side.exchange = exchange
        for key, question in tuple(parked.questions.items()):
            answer = answers.get(key)
            if _answers(question, answer):
                question.answer = cast("JsonObject", answer)
                question.answered.set()
                del parked.questions[key]
        return await self._step(parked)

    def _same(self, side: Side) -> _Parked | None:
        """The same call of the same caller, if it waits for an answer now."""
        if not self._waiting:
            return None
        wanted = binding_of(side.request)
        for parked in self._waiting.values():
            if parked.questions and not parked.abandoned and parked.binding == wanted:
                return parked
        return None

    async def _drive(self, parked: _Parked, work: Work) -> None:
        """Run it. One that ends while its caller is away with a question is kept until they come back."""
        try:
            await parked.drive(work)
            if parked.awaited_state is not None and not parked.abandoned:
                with anyio.move_on_after(self._seconds):
                    await parked.returned.wait()
        finally:
            self._waiting.pop(parked.parked_id, None)

    async def _step(self, parked: _Parked) -> Value | Questions:
        come = False
        try:
            value = await parked.next()
            come = True
            return self._questions(parked) if value is None else value
        finally:
            parked.side.exchange = None
            if not come:  # the client left, or the call failed
                parked.scope.cancel()

    def _questions(self, parked: _Parked) -> Questions:
        parked.returned = anyio.Event()
        state, parked.awaited_state = self._seal.close(
            "parked", parked.parked_id, parked.binding, seconds=self._seconds
        )
        asked = {
            key: {"method": question.method, "params": question.params}
            for key, question in parked.questions.items()
        }
        return Questions({"resultType": "input_required", "inputRequests": asked, "requestState": state})

    async def _ask(self, parked: _Parked, method: str, params: JsonObject) -> JsonObject:
        """A server's question, inside of the call's own task."""
        server = parked.side.server
        if parked.abandoned:
            return unanswered(method, server)
        self._admit(parked)
        parked.asked += 1
        key = f"question-{parked.asked}"
        question = parked.questions[key] = _Question(method, params)
        parked.news()
        try:
            with anyio.move_on_after(self._seconds):
                await question.answered.wait()
        finally:
            parked.questions.pop(key, None)
        if question.answer is None:
            parked.abandoned = True
            self._abandoned(parked.side, method)
            return unanswered(method, server)
        return question.answer

    def _admit(self, parked: _Parked) -> None:
        """A place for a call that waits; it keeps it until its end."""
        if parked.parked_id in self._waiting:
            return
        same = sum(other.side.key == parked.side.key for other in self._waiting.values())
        if len(self._waiting) >= MOST or same >= MOST_OF_ONE:
            message = "too many calls wait for answers of their callers; try again later"
            raise ToolFailed(message, server=parked.side.server, code=TOO_MANY)
        self._waiting[parked.parked_id] = parked


def _answers(question: _Question, answer: object) -> bool:
    """Whether this is an answer at all; what it says is for the server to judge."""
    if not isinstance(answer, Mapping):
        return False
    return question.method != ELICIT or cast("JsonObject", answer).get("action") in _ACTIONS
