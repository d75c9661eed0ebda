"""One round of a call: what the client sent, and to which server it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import CallContext, ErrorKind, JsonObject, Outcome, ToolCall
from fingerpost.servers.caller import RequestContext
from fingerpost.surfaces.gateway.asking.capabilities import can_show_forms
from fingerpost.surfaces.gateway.exchange import ClientExchange, ClientRequest
from fingerpost.surfaces.web.links import build_approval_url

INPUT_REQUIRED_TYPE: Final = "input_required"
_OWN_META_KEYS: Final = (
    "asked_by_gateway"  # a state of ours cannot be told from one that a server forged; this can
)


@frozen
class CallRound:
    """One request for a tool, with everything that belongs to it."""

    request: ClientRequest
    exchange: ClientExchange
    tool_call: ToolCall
    context: CallContext
    request_context: RequestContext
    server: str  # empty where the name leads to no tool

    def with_input(self, answers: JsonObject | None, state: str | None) -> CallRound:
        """The same with these answers and this state for the server, and no others."""
        return replace(
            self, passage=replace(self.request_context, input_responses=answers, request_state=state)
        )


def is_input_required(outcome: Outcome) -> bool:
    """Whether the outcome is a question of the server's own, and not yet an end."""
    result = outcome.result
    ours = _OWN_META_KEYS in outcome.metadata
    return not ours and result is not None and is_input_required_result(result)


def is_input_required_result(result: JsonObject) -> bool:
    """Whether a result of a server asks for more before it answers."""
    return result.get("resultType") == INPUT_REQUIRED_TYPE


def get_awaited_approval(outcome: Outcome) -> str | None:
    """The approval this call waits for, if it does."""
    return outcome.pending_id if outcome.error is ErrorKind.AUTHORIZATION_REQUIRED else None


def build_question_outcome(
    call_round: CallRound, result: JsonObject, *, call_id: str, pending_id: str | None = None
) -> Outcome:
    """A question to the client, as an outcome."""
    return Outcome(
        call_id=call_id,
        tool=call_round.tool_call.name,
        success=True,
        content=f"{call_round.tool_call.name} waits for an answer",
        reference=call_round.tool_call.reference,
        pending_id=pending_id,
        result=result,
        metadata={_OWN_META_KEYS: True},
    )


_CANNOT_APPROVE_HERE: Final = (
    " This client was not asked: without the right `confirm` what it answers is no person's word."
)


def add_waiting_note(outcome: Outcome, request: ClientRequest, *, console: str | None) -> Outcome:
    """The call waits for a person elsewhere: say where, and what to do then. `console` is its address."""
    pending_id = outcome.pending_id
    page = f"at {build_approval_url(console, pending_id)} or " if console and pending_id else ""
    content = (
        f"{outcome.content}. Approve it {page}with `fingerpost approvals approve {pending_id}`, "
        "then make the same call again: it runs once."
    )
    if can_show_forms(request.capabilities) and not request.principal.may_confirm:
        content += _CANNOT_APPROVE_HERE
    return replace(outcome, error=ErrorKind.AUTHORIZATION_REQUIRED, content=content)


def get_input_responses(request_context: RequestContext) -> JsonObject:
    """The client's answers; whatever is no object holds none."""
    answers = cast("object", request_context.input_responses)
    return cast("JsonObject", answers) if isinstance(answers, Mapping) else {}
