"""One round of a call: what the client sent, and to which server it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import CallContext, ErrorKind, JsonObject, Outcome, ToolCall
from fingerpost.servers.caller import Passage
from fingerpost.surfaces.gateway.asking.capabilities import takes_forms
from fingerpost.surfaces.gateway.exchange import ClientRequest, Exchange
from fingerpost.surfaces.web.links import approval_page

INPUT_REQUIRED: Final = "input_required"
_OURS: Final = "asked_by_gateway"  # a state of ours cannot be told from one that a server forged; this can


@frozen
class Round:
    """One request for a tool, with everything that belongs to it."""

    request: ClientRequest
    exchange: Exchange
    wish: ToolCall
    context: CallContext
    passage: Passage
    server: str  # empty where the name leads to no tool

    def carrying(self, answers: JsonObject | None, state: str | None) -> Round:
        """The same with these answers and this state for the server, and no others."""
        return replace(self, passage=replace(self.passage, input_responses=answers, request_state=state))


def asks(outcome: Outcome) -> bool:
    """Whether the outcome is a question of the server's own, and not yet an end."""
    result = outcome.result
    ours = _OURS in outcome.metadata
    return not ours and result is not None and wants_input(result)


def wants_input(result: JsonObject) -> bool:
    """Whether a result of a server asks for more before it answers."""
    return result.get("resultType") == INPUT_REQUIRED


def awaited_approval(outcome: Outcome) -> str | None:
    """The approval this call waits for, if it does."""
    return outcome.pending_id if outcome.error is ErrorKind.AUTHORIZATION_REQUIRED else None


def question(current: Round, result: JsonObject, *, call_id: str, pending_id: str | None = None) -> Outcome:
    """A question to the client, as an outcome."""
    return Outcome(
        call_id=call_id,
        tool=current.wish.name,
        success=True,
        content=f"{current.wish.name} waits for an answer",
        reference=current.wish.reference,
        pending_id=pending_id,
        result=result,
        metadata={_OURS: True},
    )


_NOT_HERE: Final = (
    " This client was not asked: without the right `confirm` what it answers is no person's word."
)


def waits(outcome: Outcome, request: ClientRequest, *, console: str | None) -> Outcome:
    """The call waits for a person elsewhere: say where, and what to do then. `console` is its address."""
    pending_id = outcome.pending_id
    page = f"at {approval_page(console, pending_id)} or " if console and pending_id else ""
    content = (
        f"{outcome.content}. Approve it {page}with `fingerpost approvals approve {pending_id}`, "
        "then make the same call again: it runs once."
    )
    if takes_forms(request.capabilities) and not request.principal.may_confirm:
        content += _NOT_HERE
    return replace(outcome, error=ErrorKind.AUTHORIZATION_REQUIRED, content=content)


def answers_of(passage: Passage) -> JsonObject:
    """The client's answers; whatever is no object holds none."""
    answers = cast("object", passage.input_responses)
    return cast("JsonObject", answers) if isinstance(answers, Mapping) else {}
