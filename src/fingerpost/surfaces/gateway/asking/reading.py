"""A person's leave to read what is no tool, where a rule asks about everything of a server.

A resource or a prompt waits as a call does: under an id, in the inbox of every surface, and
where the client can ask its person, in front of them. Who was given leave reads it once.
"""

from __future__ import annotations

from typing import Final

from fingerpost.call.fingerprints import call_fingerprint
from fingerpost.records import Call, Effect, JsonObject, Pending, Ruling, Verdict
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking.approving import Approving
from fingerpost.surfaces.gateway.asking.capabilities import can_confirm
from fingerpost.surfaces.gateway.asking.round import Round
from fingerpost.surfaces.gateway.exchange import Refusal
from fingerpost.surfaces.web.links import approval_page

NOT_ALLOWED: Final = -32010
MOST_QUESTIONS: Final = 3  # about one request: two equal ones at once may need the second


class Reading:
    """Asks for leave, and uses it."""

    def __init__(self, router: Router, approving: Approving, *, console: str | None) -> None:
        self._approvals = router.calls.approvals
        self._approving = approving
        self._console = console

    async def asked_first(self, current: Round, reason: str, *, asked: bool) -> JsonObject | None:
        """The question for a client without a session to take away; None: what it wants may be read now.

        `asked`: this client just brought the person's word. Raises `Refusal` where they said no, or
        decide elsewhere.
        """
        call = _as_call(current)
        for _ in range(MOST_QUESTIONS):
            if await self._approvals.spend(call, current.context) is not None:
                return None
            if (word := await self._approvals.news(call, current.context)) is not None:
                raise _rejected(word)
            ruling = Ruling(verdict=Verdict.ASK, reason=reason, rule="a rule about the server")
            pending = await self._approvals.request(call, current.context, ruling)
            if not can_confirm(current.request) or asked:
                raise self._waits(pending)
            if current.request.modern:
                question = await self._approving.ask_later(current, pending.pending_id)
                if question is None:
                    raise self._waits(pending)
                return question.result
            if not await self._approving.ask_now(current, pending.pending_id):
                raise self._waits(pending)
        message = f"{call.tool} could not be decided about; ask for it again"
        raise Refusal(NOT_ALLOWED, message)

    def _waits(self, pending: Pending) -> Refusal:
        page = f"at {approval_page(self._console, pending.pending_id)} or " if self._console else ""
        message = (
            f"{pending.tool} waits for a person's approval as {pending.pending_id}: {pending.reason}. "
            f"Approve it {page}with `fingerpost approvals approve {pending.pending_id}`, then ask for it "
            f"again: it is read once. {no_asking(pending.tool.partition('/')[0])}"
        )
        return Refusal(NOT_ALLOWED, message, {"pending": pending.pending_id})


def no_asking(server: str) -> str:
    """How to have reading allowed, in words."""
    rule = f'verdict = "allow", server = "{server}", effect = "read"'
    return f"A rule in front of the one that asks ({rule}) lets it be read unasked."


def _as_call(current: Round) -> Call:
    """What is read, as what a person gives leave to: no definition stands behind it, so there is none."""
    wish = current.wish
    return Call(
        tool=wish.name,
        server=current.server,
        name=current.request.method,
        operation=wish.name,
        arguments=wish.arguments,
        effect=Effect.READ,
        fingerprint=call_fingerprint("", wish.name, wish.arguments),
    )


def _rejected(word: Pending) -> Refusal:
    who = word.decided_by or "a person"
    why = f": {word.decision_reason}" if word.decision_reason else ""
    return Refusal(NOT_ALLOWED, f"{word.tool} was rejected by {who}{why}")
