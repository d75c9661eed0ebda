"""Calls that wait inside their server while the client answers a question."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ToolFailed
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Outcome, create_id
from fingerpost.records.codec import from_plain, to_plain
from fingerpost.store.store import ProcessMessages
from fingerpost.surfaces.gateway.elicitation.client import (
    ELICIT_METHOD,
    GatewayCaller,
    build_unanswered_reply,
    is_elicitation_answer,
)
from fingerpost.surfaces.gateway.elicitation.request_state import (
    InvalidRequestState,
    RequestState,
    RequestStateCipher,
    StateBinding,
)
from fingerpost.surfaces.gateway.protocol import TOO_MANY_CODE, ClientExchange

log = logging.getLogger("fingerpost.gateway")

MAX_SUSPENDED: Final = 256
MAX_SUSPENDED_PER_CALLER: Final = 32  # so that one caller cannot take all slots

CallValue = Outcome | JsonObject
CallWork = Callable[[], Awaitable[CallValue]]


@frozen(kw_only=False)
class InputRequired:
    """An `input_required` result: what the client must answer before the call can continue."""

    result: JsonObject


@dataclass(slots=True)
class _ServerQuestion:
    method: str
    params: JsonObject
    answer: JsonObject | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class _CallEnd:
    value: CallValue | None = None
    error: Exception | None = None


class _SuspendedCall:
    """One call that runs in its own task."""

    def __init__(self, caller: GatewayCaller) -> None:
        self.call_id = create_id("prk")
        self.caller = caller
        self.binding = StateBinding.from_request(caller.request)
        self.scope = anyio.CancelScope()
        self.questions: dict[str, _ServerQuestion] = {}
        self.question_count = 0
        self.awaited_state: str | None = None  # id of the only state that is accepted now
        self.abandoned = False  # a question timed out: no further questions are asked
        self.returned = anyio.Event()  # set when the client sends its latest state
        self._ended: _CallEnd | None = None
        self._changed = anyio.Event()

    async def run_work(self, work: CallWork) -> None:
        try:
            with self.scope:
                self._ended = _CallEnd(value=await work())
        except Exception as error:  # noqa: BLE001 - raised again in the request that waits for this call
            self._ended = _CallEnd(error=error)
        finally:
            if self.abandoned and self._ended is not None and self._ended.error is not None:
                log.info("an abandoned call ended with an error: %s", self._ended.error)
            self.notify_change()

    def notify_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_for_change(self) -> CallValue | None:
        """Return the call's value when it ends, or None when it has questions. Raises the call's error."""
        while self._ended is None:
            if self.questions:
                return None
            if self.scope.cancel_called:
                break
            await self._changed.wait()
        if self._ended is None:
            raise FingerpostError("the call was cancelled")
        if self._ended.error is not None:
            raise self._ended.error
        assert self._ended.value is not None
        return self._ended.value


_RESUME_TOPIC: Final = "resume_call"


def _encode_resumption(value: CallValue | InputRequired) -> JsonObject:
    if isinstance(value, InputRequired):
        return {"input_required": value.result}
    return {"outcome": to_plain(value)} if isinstance(value, Outcome) else {"result": value}


def _decode_resumption(reply: JsonObject) -> CallValue | InputRequired:
    """Return what the other process returned. Raises what it raised."""
    [(kind, value), *_] = reply.items()
    match kind:
        case "input_required":
            return InputRequired(cast("JsonObject", value))
        case "outcome":
            return from_plain(Outcome, value)
        case "result":
            return cast("JsonObject", value)
        case "refused":
            raise InvalidRequestState(str(value), started=True)
        case _:
            raise FingerpostError(str(value), hint=cast("str | None", reply.get("hint")))


class SuspendedCalls:
    """All calls that may have to wait for their client."""

    def __init__(
        self,
        tasks: TaskGroup,
        cipher: RequestStateCipher,
        *,
        seconds: float,
        messages: ProcessMessages,
        on_abandoned: Callable[[GatewayCaller, str], None],
    ) -> None:
        """`on_abandoned` is called with the caller and the method of every question that timed out. Answers
        to questions of other processes are passed on through `messages`.
        """
        self._tasks = tasks
        self._messages = messages
        messages.answer_questions(_RESUME_TOPIC, self._find_resumption)
        self._on_abandoned = on_abandoned
        self._cipher = cipher
        self._seconds = seconds
        self._waiting: dict[str, _SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def run_call(self, caller: GatewayCaller, work: CallWork) -> CallValue | InputRequired:
        """Start the call. Return its value, or the first questions of its server.

        A client that lost the response repeats the call. It then gets the same question, and no second call
        is started.
        """
        if (suspended := self._find_same_call(caller)) is not None:
            return self._build_input_required(suspended)
        suspended = _SuspendedCall(caller)
        caller.set_question_sender(lambda method, params: self._ask_client(suspended, method, params))
        self._tasks.start_soon(self._run_suspended, suspended, work)
        return await self._wait_for_result(suspended)

    async def resume(
        self, request_state: RequestState, exchange: ClientExchange, answers: JsonObject
    ) -> CallValue | InputRequired:
        """Deliver answers. Return the call's value, or the questions that are still open."""
        suspended = self._waiting.get(request_state.subject)
        if suspended is None:
            return await self._resume_elsewhere(request_state, answers)
        return await self._resume(suspended, request_state.state_id, exchange, answers)

    async def _resume_elsewhere(
        self, request_state: RequestState, answers: JsonObject
    ) -> CallValue | InputRequired:
        """Deliver answers to the process in which the call waits."""
        given: JsonObject = {
            "subject": request_state.subject,
            "state_id": request_state.state_id,
            "answers": answers,
        }
        reply = await self._messages.ask(_RESUME_TOPIC, given, seconds=self._seconds)
        if reply is None:
            raise InvalidRequestState("has expired, or the gateway was restarted", started=True)
        return _decode_resumption(reply)

    def _find_resumption(self, given: JsonObject) -> Awaitable[JsonObject] | None:
        """Return the work that delivers answers from another process, or None if the call is not here."""
        suspended = self._waiting.get(str(given["subject"]))
        if suspended is None:
            return None

        async def resume() -> JsonObject:
            answers = cast("JsonObject", given["answers"])
            try:
                return _encode_resumption(
                    await self._resume(suspended, str(given["state_id"]), None, answers)
                )
            except InvalidRequestState as refused:
                return {"refused": str(refused)}
            except FingerpostError as error:
                return {"error": str(error), "hint": error.hint}

        return resume()

    async def _resume(
        self, suspended: _SuspendedCall, state_id: str, exchange: ClientExchange | None, answers: JsonObject
    ) -> CallValue | InputRequired:
        if suspended.awaited_state != state_id:
            raise InvalidRequestState("was used already", started=True)
        suspended.awaited_state = None
        suspended.returned.set()
        suspended.caller.exchange = exchange
        for key, question in tuple(suspended.questions.items()):
            answer = answers.get(key)
            if is_elicitation_answer(answer) or (
                isinstance(answer, Mapping) and question.method != ELICIT_METHOD
            ):
                question.answer = cast("JsonObject", answer)
                question.answered.set()
                del suspended.questions[key]
        return await self._wait_for_result(suspended)

    def _find_same_call(self, caller: GatewayCaller) -> _SuspendedCall | None:
        """Return the same call of the same caller if it waits for an answer now."""
        if not self._waiting:
            return None
        wanted = StateBinding.from_request(caller.request)
        for suspended in self._waiting.values():
            if suspended.questions and not suspended.abandoned and suspended.binding == wanted:
                return suspended
        return None

    async def _run_suspended(self, suspended: _SuspendedCall, work: CallWork) -> None:
        """Run the call. If it ends while the client answers, keep its value until the client returns."""
        try:
            await suspended.run_work(work)
            if suspended.awaited_state is not None and not suspended.abandoned:
                with anyio.move_on_after(self._seconds):
                    await suspended.returned.wait()
        finally:
            self._waiting.pop(suspended.call_id, None)

    async def _wait_for_result(self, suspended: _SuspendedCall) -> CallValue | InputRequired:
        completed = False
        try:
            value = await suspended.wait_for_change()
            completed = True
            return self._build_input_required(suspended) if value is None else value
        finally:
            suspended.caller.exchange = None
            if not completed:  # the client disconnected, or the call failed
                suspended.scope.cancel()

    def _build_input_required(self, suspended: _SuspendedCall) -> InputRequired:
        suspended.returned = anyio.Event()
        state, suspended.awaited_state = self._cipher.seal(
            "parked", suspended.call_id, suspended.binding, seconds=self._seconds
        )
        asked = {
            key: {"method": question.method, "params": question.params}
            for key, question in suspended.questions.items()
        }
        return InputRequired({"resultType": "input_required", "inputRequests": asked, "requestState": state})

    async def _ask_client(self, suspended: _SuspendedCall, method: str, params: JsonObject) -> JsonObject:
        """Ask a server's question from the call's task, and wait for the answer."""
        server = suspended.caller.server
        if suspended.abandoned:
            return build_unanswered_reply(method, server)
        self._reserve_slot(suspended)
        suspended.question_count += 1
        key = f"question-{suspended.question_count}"
        question = suspended.questions[key] = _ServerQuestion(method, params)
        suspended.notify_change()
        try:
            with anyio.move_on_after(self._seconds):
                await question.answered.wait()
        finally:
            suspended.questions.pop(key, None)
        if question.answer is None:
            suspended.abandoned = True
            self._on_abandoned(suspended.caller, method)
            return build_unanswered_reply(method, server)
        return question.answer

    def _reserve_slot(self, suspended: _SuspendedCall) -> None:
        """Reserve a slot for a waiting call until it ends. Raises `ToolFailed` if there is none."""
        if suspended.call_id in self._waiting:
            return
        same = sum(other.caller.key == suspended.caller.key for other in self._waiting.values())
        if len(self._waiting) >= MAX_SUSPENDED or same >= MAX_SUSPENDED_PER_CALLER:
            message = "too many calls wait for answers; try again later"
            raise ToolFailed(message, server=suspended.caller.server, code=TOO_MANY_CODE)
        self._waiting[suspended.call_id] = suspended
