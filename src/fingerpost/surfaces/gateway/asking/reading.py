"""A person's leave to read what is no tool, where a rule asks about everything of a server.

A resource or a prompt waits as a call does: under an id, in the inbox of every surface, and
where the client can ask its person, in front of them. Who was given leave reads it once.
"""

from __future__ import annotations

from typing import Final

from fingerpost.call.fingerprints import compute_call_fingerprint
from fingerpost.records import Call, Effect, JsonObject, Pending, Ruling, Verdict
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking.approving import ElicitedApprovals
from fingerpost.surfaces.gateway.asking.capabilities import can_approve
from fingerpost.surfaces.gateway.asking.round import CallRound
from fingerpost.surfaces.gateway.exchange import JsonRpcError
from fingerpost.surfaces.web.links import build_approval_url

NOT_ALLOWED_CODE: Final = -32010
MAX_QUESTIONS: Final = 3  # about one request: two equal ones at once may need the second


class ReadApprovals:
    """Asks for leave, and uses it."""

    def __init__(self, router: Router, approvals: ElicitedApprovals, *, console: str | None) -> None:
        self._approvals = router.calls.approvals
        self._approving = approvals
        self._console = console

    async def request_approval(
        self, call_round: CallRound, reason: str, *, was_asked: bool
    ) -> JsonObject | None:
        """The question for a client without a session to take away; None: what it wants may be read now.

        `asked`: this client just brought the person's word. Raises `Refusal` where they said no, or
        decide elsewhere.
        """
        call = _to_call(call_round)
        for _ in range(MAX_QUESTIONS):
            if await self._approvals.use_grant(call, call_round.context) is not None:
                return None
            if (word := await self._approvals.find_unheard_decision(call, call_round.context)) is not None:
                raise _build_rejected_error(word)
            ruling = Ruling(verdict=Verdict.ASK, reason=reason, rule="a rule about the server")
            pending = await self._approvals.request(call, call_round.context, ruling)
            if not can_approve(call_round.request) or was_asked:
                raise self._build_waiting_error(pending)
            if call_round.request.modern:
                question = await self._approving.build_approval_request(call_round, pending.pending_id)
                if question is None:
                    raise self._build_waiting_error(pending)
                return question.result
            if not await self._approving.ask_in_session(call_round, pending.pending_id):
                raise self._build_waiting_error(pending)
        message = f"{call.tool} could not be decided about; ask for it again"
        raise JsonRpcError(NOT_ALLOWED_CODE, message)

    def _build_waiting_error(self, pending: Pending) -> JsonRpcError:
        page = f"at {build_approval_url(self._console, pending.pending_id)} or " if self._console else ""
        message = (
            f"{pending.tool} waits for a person's approval as {pending.pending_id}: {pending.reason}. "
            f"Approve it {page}with `fingerpost approvals approve {pending.pending_id}`, then ask for it "
            f"again: it is read once. {explain_denied_reading(pending.tool.partition('/')[0])}"
        )
        return JsonRpcError(NOT_ALLOWED_CODE, message, {"pending": pending.pending_id})


def explain_denied_reading(server: str) -> str:
    """How to have reading allowed, in words."""
    rule = f'verdict = "allow", server = "{server}", effect = "read"'
    return f"A rule in front of the one that asks ({rule}) lets it be read unasked."


def _to_call(call_round: CallRound) -> Call:
    """What is read, as what a person gives leave to: no definition stands behind it, so there is none."""
    wish = call_round.tool_call
    return Call(
        tool=wish.name,
        server=call_round.server,
        name=call_round.request.method,
        operation=wish.name,
        arguments=wish.arguments,
        effect=Effect.READ,
        fingerprint=compute_call_fingerprint("", wish.name, wish.arguments),
    )


def _build_rejected_error(pending: Pending) -> JsonRpcError:
    who = pending.decided_by or "a person"
    why = f": {pending.decision_reason}" if pending.decision_reason else ""
    return JsonRpcError(NOT_ALLOWED_CODE, f"{pending.tool} was rejected by {who}{why}")
