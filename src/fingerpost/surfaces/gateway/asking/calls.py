"""Calls whose server or whose rules may have a question for the person behind the client.

`AskedCalls` is the call path plus everything that needs that person: the questions of
servers in every pairing of protocol eras, and approvals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, NoReturn, Self

import anyio

from fingerpost.catalog.names import tool_key
from fingerpost.errors import CallError, StoreError, UnknownServer
from fingerpost.events import AccessRefused
from fingerpost.records import CallContext, JsonObject, Outcome, ToolCall, new_id
from fingerpost.router import Router
from fingerpost.servers.caller import Passage
from fingerpost.surfaces.gateway.asking.answerable import cannot_answer, failed_for_input, refused_for_input
from fingerpost.surfaces.gateway.asking.approving import Approving, carried_by
from fingerpost.surfaces.gateway.asking.capabilities import can_be_asked, can_confirm
from fingerpost.surfaces.gateway.asking.origin import marked_result
from fingerpost.surfaces.gateway.asking.parking import Parking, Questions
from fingerpost.surfaces.gateway.asking.reading import Reading
from fingerpost.surfaces.gateway.asking.round import (
    Round,
    answers_of,
    asks,
    awaited_approval,
    question,
    waits,
    wants_input,
)
from fingerpost.surfaces.gateway.asking.side import Side
from fingerpost.surfaces.gateway.asking.state import (
    BadState,
    Seal,
    Sealed,
    binding_of,
    installation_secret,
    is_ours,
)
from fingerpost.surfaces.gateway.exchange import MODERN, ClientRequest, Exchange, Refusal
from fingerpost.tasks import leave

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
MOST_APPROVALS: Final = 3  # questions about one call: two equal calls at once may need the second

_NOT_BEGUN: Final = "Nothing was run. Make the call again without requestState."
_BEGUN: Final = (
    "Nothing more was run for it, but the call it was made for may have run: check that before you make "
    "the call again, without requestState."
)

_Run = Callable[[Passage], Awaitable[Outcome]]


class AskedCalls:
    """The way from a client's request to a tool. `async with` holds the calls that wait for answers."""

    def __init__(self, router: Router, *, console: str | None) -> None:
        self._router = router
        self._console = console
        self._seconds = router.settings.gateway.approval_seconds

    async def __aenter__(self) -> Self:
        self._seal = Seal(await installation_secret(self._router.store))
        self._tasks = await anyio.create_task_group().__aenter__()
        self.parking = Parking(self._tasks, self._seal, seconds=self._seconds, abandoned=self._note_abandoned)
        self._approving = Approving(self._router, self._seal)
        self._reading = Reading(self._router, self._approving, console=self._console)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await leave(self._tasks, kind, error, trace)

    # -- tools ----------------------------------------------------------------------------------------

    async def call(
        self,
        request: ClientRequest,
        exchange: Exchange,
        wish: ToolCall,
        context: CallContext,
        passage: Passage,
        *,
        server: str,
    ) -> Outcome:
        """Call a tool of this server, or go on with a call. An outcome may be a question: `input_required`.

        `passage` holds what the client sent beyond the arguments; its caller is filled in here.
        Raises `Refusal` when the client brings a state that is not taken; nothing runs then.
        """
        current = Round(
            request=request, exchange=exchange, wish=wish, context=context, passage=passage, server=server
        )
        try:
            if self._continues(request, passage):
                if request.modern and is_ours(passage.request_state):
                    return await self._go_on(current)
                current = replace(current, passage=self._cleared(request, current.server, passage))
            outcome = await self._run(current, lambda way: self._router.calls.call(wish, context, way))
            return await self._settled(current, outcome)
        except StoreError as error:  # what needs a record of a person's word does not run without one
            message = f"{error}. Nothing was run. {error.hint or 'Try again later.'}"
            raise Refusal(INTERNAL_ERROR, message) from None

    async def _go_on(self, current: Round) -> Outcome:
        """A further round of a call about which we asked something."""
        sealed = self._opened(current.request, current.passage)
        try:
            match sealed.kind:
                case "parked":
                    answers = answers_of(current.passage)
                    value = await self.parking.go_on(sealed, current.exchange, answers)
                    return await self._settled(current, self._outcome(current, value))
                case "approval":
                    return await self._go_on_approved(current, sealed)
                case "further":
                    return await self._go_further(current, sealed)
        except (BadState, CallError) as refused:
            self._refuse(current.request, _sentence(refused), begun=_had_begun(refused))

    async def _go_on_approved(self, current: Round, sealed: Sealed) -> Outcome:
        decided = await self._approving.answered(current, sealed)
        current = current.carrying(*carried_by(sealed))
        if decided is None:
            asked = await self._approving.ask_later(current, sealed.subject)
            assert asked is not None  # what it carries fitted once
            return asked
        return await self._resumed(current, sealed.subject)

    async def _go_further(self, current: Round, sealed: Sealed) -> Outcome:
        """The server's own question, put after an approval, is answered."""
        await self._approving.begin_further(sealed)
        current = current.carrying(current.passage.input_responses, carried_by(sealed)[1])
        approved_id = sealed.subject
        outcome = await self._resume(current, approved_id)
        waiting_id = awaited_approval(outcome)
        if waiting_id is not None and await self._approving.renew(approved_id, waiting_id):
            outcome = await self._resume(current, waiting_id)
        return await self._rounded(current, approved_id, outcome)

    async def _settled(self, current: Round, outcome: Outcome) -> Outcome:
        """The outcome, after the person was asked for their approval where that is what it waits for."""
        for _ in range(MOST_APPROVALS):
            pending_id = awaited_approval(outcome)
            if pending_id is None:
                return outcome
            if not can_confirm(current.request):
                break
            if current.request.modern:
                return await self._approving.ask_later(current, pending_id) or self._waits(current, outcome)
            if not await self._approving.ask_now(current, pending_id):
                break
            outcome = await self._resume(current, pending_id)
        return outcome if awaited_approval(outcome) is None else self._waits(current, outcome)

    def _waits(self, current: Round, outcome: Outcome) -> Outcome:
        return waits(outcome, current.request, console=self._console)

    async def _resumed(self, current: Round, pending_id: str) -> Outcome:
        """A call without a session, after the person's word."""
        outcome = await self._resume(current, pending_id)
        if awaited_approval(outcome) == pending_id:  # they did not decide: ask once, not again and again
            return self._waits(current, outcome)
        return await self._rounded(current, pending_id, outcome)

    async def _rounded(self, current: Round, approved_id: str, outcome: Outcome) -> Outcome:
        if asks(outcome):
            return self._approving.further(current, approved_id, outcome)
        return await self._settled(current, outcome)

    async def _resume(self, current: Round, pending_id: str) -> Outcome:
        return await self._run(
            current, lambda way: self._router.calls.resume(pending_id, current.context, way)
        )

    async def _run(self, current: Round, work: _Run) -> Outcome:
        side = self._side(current.request, current.exchange, current.server, current.passage)
        way = current.passage.for_caller(side)
        if not self._may_park(current.request, current.server):
            outcome = await work(way)
        else:
            outcome = self._outcome(current, await self.parking.run(side, lambda: work(way)))
        if asks(outcome):
            assert outcome.result is not None
            needed = self._beyond_answering(current.request, current.server, outcome.result)
            if needed is not None:
                return failed_for_input(outcome, needed)
            outcome = replace(outcome, result=marked_result(current.server, outcome.result))
        return outcome

    def _outcome(self, current: Round, value: Outcome | JsonObject | Questions) -> Outcome:
        if isinstance(value, Questions):
            return question(current, value.result, call_id=current.context.call_id)
        assert isinstance(value, Outcome)  # a state is bound to its method
        return value

    # -- everything else that a server may have questions about -----------------------------------------

    async def ask(
        self,
        request: ClientRequest,
        exchange: Exchange,
        server: str,
        method: str,
        params: JsonObject,
        passage: Passage,
        *,
        timeout: float,
        reason: str | None = None,
    ) -> JsonObject:
        """Ask a server (`prompts/get`, `resources/read`), or go on with that. May be `input_required`.

        `reason` says why a person is asked first, where they are.
        """
        current = _reading(request, exchange, server, method, params, passage)
        asked = False
        if self._continues(request, passage):
            if request.modern and is_ours(passage.request_state):
                sealed = self._opened(request, passage)
                if sealed.kind == "parked":
                    return await self._go_on_asking(current, sealed)
                asked = await self._word_brought(current, sealed)
                current = current.carrying(*carried_by(sealed))
            else:
                current = replace(current, passage=self._cleared(request, server, passage))
        if reason is not None:
            question = await self._reading.asked_first(current, reason, asked=asked)
            if question is not None:
                return question
        return await self._ask(current, method, params, timeout=timeout)

    async def _ask(self, current: Round, method: str, params: JsonObject, *, timeout: float) -> JsonObject:
        request, server = current.request, current.server
        side = self._side(request, current.exchange, server, current.passage)
        way = replace(current.passage, caller=side)

        async def work() -> JsonObject:
            return await self._router.servers.ask(server, method, params, timeout=timeout, passage=way)

        may_park = self._may_park(request, server)
        value = await (self.parking.run(side, work) if may_park else work())
        if isinstance(value, Questions):
            return value.result
        result = _result(value)
        if not wants_input(result):
            return result
        if (needed := self._beyond_answering(request, server, result)) is not None:
            raise refused_for_input(server, method, needed)
        return marked_result(server, result)

    async def _go_on_asking(self, current: Round, sealed: Sealed) -> JsonObject:
        try:
            return _result(await self.parking.go_on(sealed, current.exchange, answers_of(current.passage)))
        except BadState as refused:
            self._refuse(current.request, _sentence(refused), begun=refused.begun)

    async def _word_brought(self, current: Round, sealed: Sealed) -> bool:
        """Whether the client brought what its person said about reading this."""
        try:
            return await self._approving.answered(current, sealed) is not None
        except (BadState, CallError) as refused:
            self._refuse(current.request, _sentence(refused), begun=_had_begun(refused))

    # -- common ------------------------------------------------------------------------------------------

    def _side(self, request: ClientRequest, exchange: Exchange, server: str, passage: Passage) -> Side:
        return Side(request, exchange, server=server, seconds=self._seconds, log_level=passage.log_level)

    def _may_park(self, request: ClientRequest, server: str) -> bool:
        """Whether this server might ask this caller in the middle of a call that cannot be answered there.

        A task of its own costs time, so a call has one only where it may be needed.
        """
        if not request.modern or not server or not can_be_asked(request.capabilities):
            return False
        return not self._speaks_rounds(server)

    def _beyond_answering(self, request: ClientRequest, server: str, result: JsonObject) -> JsonObject | None:
        """What this caller lacks to answer what a server asks with its result; None: nothing."""
        if not request.modern:  # asked on the way, and answered
            return None
        return cannot_answer(result, request.capabilities, rounds=self._speaks_rounds(server))

    def _speaks_rounds(self, server: str) -> bool:
        try:
            protocol = self._router.servers.status(server).protocol
        except UnknownServer:  # gone meanwhile: the call path says so
            return True
        return protocol is not None and protocol >= MODERN

    def _continues(self, request: ClientRequest, passage: Passage) -> bool:
        """Whether this is a further round. A state that is no text is nobody's: nothing runs for it."""
        state = request.params.get("requestState")
        if request.modern and state is not None and not isinstance(state, str):
            self._refuse(request, "This requestState is not a text.")
        return passage.continues

    def _cleared(self, request: ClientRequest, server: str, passage: Passage) -> Passage:
        """Without answers that no server can have asked for. A state that nobody can have made is refused."""
        if request.modern and (not server or self._speaks_rounds(server)):
            return passage
        if passage.request_state is not None:
            self._refuse(request, "This requestState was not made by this gateway.")
        return replace(passage, input_responses=None)

    def _opened(self, request: ClientRequest, passage: Passage) -> Sealed:
        assert passage.request_state is not None
        try:
            return self._seal.open(passage.request_state, binding_of(request))
        except BadState as refused:
            self._refuse(request, _sentence(refused), begun=refused.begun)

    def _refuse(self, request: ClientRequest, reason: str, *, begun: bool = False) -> NoReturn:
        self._router.events.emit(
            AccessRefused(endpoint=request.endpoint.path, reason=reason, principal=request.principal.name)
        )
        message = f"{reason} {_BEGUN if begun else _NOT_BEGUN}"
        raise Refusal(INVALID_PARAMS, message, {"reason": "invalid_request_state"})

    def _note_abandoned(self, side: Side, method: str) -> None:
        request = side.request
        reason = f"a question of {side.server} ({method}) was not answered within {self._seconds:g} s"
        self._router.events.emit(
            AccessRefused(endpoint=request.endpoint.path, reason=reason, principal=request.principal.name)
        )


def open_asking(router: Router, *, console: str | None = None) -> AskedCalls:
    """The calls of one gateway; enter it with `async with`. `console`: where people find one."""
    return AskedCalls(router, console=console)


def _reading(
    request: ClientRequest,
    exchange: Exchange,
    server: str,
    method: str,
    params: JsonObject,
    passage: Passage,
) -> Round:
    """What is asked of a server besides tools, as one round."""
    return Round(
        request=request,
        exchange=exchange,
        wish=ToolCall(name=tool_key(server, method), arguments=params),
        context=CallContext(
            call_id=new_id("cal"),
            conversation=request.session,
            caller=request.principal.name,
            asker=request.principal_key,
        ),
        passage=passage,
        server=server,
    )


def _result(value: Outcome | JsonObject | Questions) -> JsonObject:
    if isinstance(value, Questions):
        return value.result
    assert not isinstance(value, Outcome)  # a state is bound to its method
    return value


def _sentence(refused: BadState | CallError) -> str:
    return f"This requestState {refused}." if isinstance(refused, BadState) else f"{refused}."


def _had_begun(refused: BadState | CallError) -> bool:
    """Whether the call may have run. Of one that is not known any more nobody can tell."""
    return refused.begun if isinstance(refused, BadState) else True
