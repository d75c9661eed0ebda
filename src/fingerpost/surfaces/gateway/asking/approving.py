"""Calls that need the approval of a person, when that person sits behind the client.

A client with a session is asked while its call waits. A client without one takes the
question away with it; the state it brings back names the waiting call in the store, so that the
answer counts in any gateway on the same store, also after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, cast

import anyio

from fingerpost.call.fingerprints import compute_call_fingerprint
from fingerpost.errors import CallError
from fingerpost.records import Decision, Json, JsonObject, Outcome, Pending, utc_now
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking import approval
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT_METHOD
from fingerpost.surfaces.gateway.asking.once import mark_first_use
from fingerpost.surfaces.gateway.asking.round import (
    INPUT_REQUIRED_TYPE,
    CallRound,
    build_question_outcome,
    get_input_responses,
)
from fingerpost.surfaces.gateway.asking.state import (
    InvalidRequestState,
    RequestState,
    RequestStateCipher,
    build_binding,
)
from fingerpost.surfaces.gateway.exchange import JsonRpcError
from fingerpost.surfaces.web.deciding import wait_for_decision

MAX_CARRIED_BYTES: Final = 256 * 1024  # of a server's own state and answers, inside of ours


class ElicitedApprovals:
    """Puts waiting calls to the person, and takes their word."""

    def __init__(self, router: Router, states: RequestStateCipher) -> None:
        self._router = router
        self._seal = states
        self._seconds = router.settings.gateway.approval_seconds
        self._grant_seconds = router.settings.call.grant_seconds

    async def ask_in_session(self, call_round: CallRound, pending_id: str) -> bool:
        """Ask a client with a session. Whether the call is decided, by this person or by anybody."""
        pending = await self._find_pending(pending_id)
        answer: JsonObject = {"action": "cancel"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_decided, pending_id, tasks.cancel_scope)
            # A client that cannot be asked after all has said nothing: the call waits in the inbox.
            with anyio.move_on_after(self._seconds), suppress(JsonRpcError):
                answer = await call_round.exchange.ask(ELICIT_METHOD, self._build_form(call_round, pending))
            tasks.cancel_scope.cancel()
        return await self._record_answer(call_round, pending, answer)

    async def _cancel_when_decided(self, pending_id: str, question_scope: anyio.CancelScope) -> None:
        """Somebody may decide elsewhere, in the terminal or the console: nobody waits for this one then."""
        if await wait_for_decision(self._router, pending_id, self._seconds):
            question_scope.cancel()

    async def build_approval_request(self, call_round: CallRound, pending_id: str) -> Outcome | None:
        """The question for a client without a session to take away; None when it cannot carry that much."""
        pending = await self._find_pending(pending_id)
        carried = _get_carried_input(call_round)
        if carried is not None and len(json.dumps(carried, default=dict)) > MAX_CARRIED_BYTES:
            return None
        left = (pending.expires - utc_now()).total_seconds()
        state, _ = self._seal.seal(
            "approval",
            pending_id,
            build_binding(call_round.request),
            seconds=min(self._seconds, left),
            carried=carried,
        )
        asked: JsonObject = {
            approval.APPROVAL_REQUEST_KEY: {
                "method": ELICIT_METHOD,
                "params": self._build_form(call_round, pending),
            }
        }
        result: JsonObject = {
            "resultType": INPUT_REQUIRED_TYPE,
            "inputRequests": asked,
            "requestState": state,
        }
        call_id = pending.call_id or call_round.context.call_id
        return build_question_outcome(call_round, result, call_id=call_id, pending_id=pending_id)

    async def accept_answer(self, call_round: CallRound, request_state: RequestState) -> bool | None:
        """Take the answer a client brought back.

        Whether the call is decided now; None when there is no answer, so that the question is put again.
        """
        answer = get_input_responses(call_round.request_context).get(approval.APPROVAL_REQUEST_KEY)
        pending = await self._find_pending(request_state.subject)
        if not approval.is_approval_answer(answer):
            return None
        await self._use_state(request_state, pending)
        return await self._record_answer(call_round, pending, cast("JsonObject", answer))

    def wrap_server_question(self, call_round: CallRound, approved_id: str, outcome: Outcome) -> Outcome:
        """A server's own question after an approval: its state goes inside of ours.

        So the next round shows that this call was approved, and nobody is asked for that again.
        """
        assert outcome.result is not None
        inner = outcome.result.get("requestState")
        state, _ = self._seal.seal(
            "further",
            approved_id,
            build_binding(call_round.request),
            seconds=self._grant_seconds,
            carried={"state": inner},
        )
        return build_question_outcome(
            call_round, {**outcome.result, "requestState": state}, call_id=outcome.call_id
        )

    async def use_wrapped_state(self, request_state: RequestState) -> None:
        """Use a state of `wrap_server_question`, once."""
        await self._use_state(request_state, await self._find_pending(request_state.subject))

    async def renew_approval(self, approved_id: str, waiting_id: str) -> bool:
        """Let a further round of an approved call run, where the call path does not know of its first one.

        That is so after a restart, and in another gateway. Only the very same call passes: a
        definition that changed meanwhile makes it another one, and the person is asked.
        """
        approved, waiting = await self._find_pending(approved_id), await self._find_pending(waiting_id)
        if approved.decision is not Decision.APPROVED or waiting.call_fingerprint != _get_fingerprint(
            approved
        ):
            return False
        by = f"{approved.decided_by} (a further round of {approved_id})"
        standing = await self._router.calls.decide(waiting_id, Decision.APPROVED, by=by)
        return standing.decision is Decision.APPROVED

    def _build_form(self, call_round: CallRound, pending: Pending) -> JsonObject:
        return approval.build_approval_form(pending, call_round.request, grant_seconds=self._grant_seconds)

    async def _record_answer(self, call_round: CallRound, pending: Pending, answer: JsonObject) -> bool:
        said = approval.parse_approval(answer, pending, call_round.request)
        # A right may have been taken away since the question was put.
        if isinstance(said, approval.ApprovalUndecided) or not call_round.request.principal.may_confirm:
            standing = await self._find_pending(pending.pending_id)
        else:
            standing = await self._router.calls.decide(
                pending.pending_id,
                said.decision,
                by=said.by,
                reason=said.reason,
                for_conversation=said.for_conversation,
            )
        return standing.decision is not Decision.WAITING

    async def _find_pending(self, pending_id: str) -> Pending:
        pending = await self._router.calls.approvals.get(pending_id)
        if pending is None:
            message = f"no call waits as {pending_id}"
            raise CallError(message, hint="make the call again")
        return pending

    async def _use_state(self, request_state: RequestState, pending: Pending) -> None:
        if not await mark_first_use(self._router.store, request_state):
            message = f"was used already; what became of the call: `fingerpost trace {pending.call_id}`"
            raise InvalidRequestState(message, started=True)


def _get_fingerprint(pending: Pending) -> str:
    if pending.edited_arguments is None or pending.definition_fingerprint is None:
        return pending.call_fingerprint
    return compute_call_fingerprint(pending.definition_fingerprint, pending.tool, pending.edited_arguments)


def _get_carried_input(call_round: CallRound) -> JsonObject | None:
    """What the client brought for the server: it must not be lost over our own question."""
    passage = call_round.request_context
    if not passage.is_continuation:
        return None
    return {"state": passage.request_state, "answers": passage.input_responses}


def get_carried_input(request_state: RequestState) -> tuple[JsonObject | None, str | None]:
    """The server's answers and state inside of ours, exactly as they were."""
    carried: Mapping[str, Json] = request_state.carried or {}
    answers, state = carried.get("answers"), carried.get("state")
    return (
        cast("JsonObject", answers) if isinstance(answers, Mapping) else None,
        state if isinstance(state, str) else None,
    )
