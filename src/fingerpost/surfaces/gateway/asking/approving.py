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

from fingerpost.call.fingerprints import call_fingerprint
from fingerpost.errors import CallError
from fingerpost.records import Decision, Json, JsonObject, Outcome, Pending, utc_now
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking import approval
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT
from fingerpost.surfaces.gateway.asking.once import first_use
from fingerpost.surfaces.gateway.asking.round import INPUT_REQUIRED, Round, answers_of, question
from fingerpost.surfaces.gateway.asking.state import BadState, Seal, Sealed, binding_of
from fingerpost.surfaces.gateway.exchange import Refusal
from fingerpost.surfaces.web.deciding import decided

MOST_CARRIED: Final = 256 * 1024  # of a server's own state and answers, inside of ours


class Approving:
    """Puts waiting calls to the person, and takes their word."""

    def __init__(self, router: Router, seal: Seal) -> None:
        self._router = router
        self._seal = seal
        self._seconds = router.settings.gateway.approval_seconds
        self._grant_seconds = router.settings.call.grant_seconds

    async def ask_now(self, current: Round, pending_id: str) -> bool:
        """Ask a client with a session. Whether the call is decided, by this person or by anybody."""
        pending = await self._pending(pending_id)
        answer: JsonObject = {"action": "cancel"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._withdraw_when_decided, pending_id, tasks.cancel_scope)
            # A client that cannot be asked after all has said nothing: the call waits in the inbox.
            with anyio.move_on_after(self._seconds), suppress(Refusal):
                answer = await current.exchange.ask(ELICIT, self._form(current, pending))
            tasks.cancel_scope.cancel()
        return await self._take(current, pending, answer)

    async def _withdraw_when_decided(self, pending_id: str, question: anyio.CancelScope) -> None:
        """Somebody may decide elsewhere, in the terminal or the console: nobody waits for this one then."""
        if await decided(self._router, pending_id, self._seconds):
            question.cancel()

    async def ask_later(self, current: Round, pending_id: str) -> Outcome | None:
        """The question for a client without a session to take away; None when it cannot carry that much."""
        pending = await self._pending(pending_id)
        carried = _carried(current)
        if carried is not None and len(json.dumps(carried, default=dict)) > MOST_CARRIED:
            return None
        left = (pending.expires - utc_now()).total_seconds()
        state, _ = self._seal.close(
            "approval",
            pending_id,
            binding_of(current.request),
            seconds=min(self._seconds, left),
            carried=carried,
        )
        asked: JsonObject = {approval.KEY: {"method": ELICIT, "params": self._form(current, pending)}}
        result: JsonObject = {"resultType": INPUT_REQUIRED, "inputRequests": asked, "requestState": state}
        call_id = pending.call_id or current.context.call_id
        return question(current, result, call_id=call_id, pending_id=pending_id)

    async def answered(self, current: Round, sealed: Sealed) -> bool | None:
        """Take the answer a client brought back.

        Whether the call is decided now; None when there is no answer, so that the question is put again.
        """
        answer = answers_of(current.passage).get(approval.KEY)
        pending = await self._pending(sealed.subject)
        if not approval.is_answer(answer):
            return None
        await self._use(sealed, pending)
        return await self._take(current, pending, cast("JsonObject", answer))

    def further(self, current: Round, sealed_pending: str, outcome: Outcome) -> Outcome:
        """A server's own question after an approval: its state goes inside of ours.

        So the next round shows that this call was approved, and nobody is asked for that again.
        """
        assert outcome.result is not None
        inner = outcome.result.get("requestState")
        state, _ = self._seal.close(
            "further",
            sealed_pending,
            binding_of(current.request),
            seconds=self._grant_seconds,
            carried={"state": inner},
        )
        return question(current, {**outcome.result, "requestState": state}, call_id=outcome.call_id)

    async def begin_further(self, sealed: Sealed) -> None:
        """Use a state of `further`, once."""
        await self._use(sealed, await self._pending(sealed.subject))

    async def renew(self, approved_id: str, waiting_id: str) -> bool:
        """Let a further round of an approved call run, where the call path does not know of its first one.

        That is so after a restart, and in another gateway. Only the very same call passes: a
        definition that changed meanwhile makes it another one, and the person is asked.
        """
        approved, waiting = await self._pending(approved_id), await self._pending(waiting_id)
        if approved.decision is not Decision.APPROVED or waiting.call_fingerprint != _fingerprint(approved):
            return False
        by = f"{approved.decided_by} (a further round of {approved_id})"
        standing = await self._router.calls.decide(waiting_id, Decision.APPROVED, by=by)
        return standing.decision is Decision.APPROVED

    def _form(self, current: Round, pending: Pending) -> JsonObject:
        return approval.form(pending, current.request, grant_seconds=self._grant_seconds)

    async def _take(self, current: Round, pending: Pending, answer: JsonObject) -> bool:
        said = approval.understood(answer, pending, current.request)
        # A right may have been taken away since the question was put.
        if isinstance(said, approval.Undecided) or not current.request.principal.may_confirm:
            standing = await self._pending(pending.pending_id)
        else:
            standing = await self._router.calls.decide(
                pending.pending_id,
                said.decision,
                by=said.by,
                reason=said.reason,
                for_conversation=said.for_conversation,
            )
        return standing.decision is not Decision.WAITING

    async def _pending(self, pending_id: str) -> Pending:
        pending = await self._router.calls.approvals.get(pending_id)
        if pending is None:
            message = f"no call waits as {pending_id}"
            raise CallError(message, hint="make the call again")
        return pending

    async def _use(self, sealed: Sealed, pending: Pending) -> None:
        if not await first_use(self._router.store, sealed):
            message = f"was used already; what became of the call: `fingerpost trace {pending.call_id}`"
            raise BadState(message, begun=True)


def _fingerprint(pending: Pending) -> str:
    if pending.edited_arguments is None or pending.definition_fingerprint is None:
        return pending.call_fingerprint
    return call_fingerprint(pending.definition_fingerprint, pending.tool, pending.edited_arguments)


def _carried(current: Round) -> JsonObject | None:
    """What the client brought for the server: it must not be lost over our own question."""
    passage = current.passage
    if not passage.continues:
        return None
    return {"state": passage.request_state, "answers": passage.input_responses}


def carried_by(sealed: Sealed) -> tuple[JsonObject | None, str | None]:
    """The server's answers and state inside of ours, exactly as they were."""
    carried: Mapping[str, Json] = sealed.carried or {}
    answers, state = carried.get("answers"), carried.get("state")
    return (
        cast("JsonObject", answers) if isinstance(answers, Mapping) else None,
        state if isinstance(state, str) else None,
    )
