"""Approval of calls and of reads by the client's user."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, cast

import anyio

from fingerpost.call.approvals import describe_effect, describe_widened, explain_once_only
from fingerpost.call.build import compute_call_fingerprint
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.tool_names import escape_invisible_json
from fingerpost.errors import CallError
from fingerpost.frozen import frozen
from fingerpost.policy.flow import list_origins
from fingerpost.records import (
    Approval,
    Call,
    Decision,
    Effect,
    Json,
    JsonObject,
    Outcome,
    Pending,
    Ruling,
    Verdict,
    utc_now,
)
from fingerpost.redaction import scrub, scrub_json
from fingerpost.router import Router
from fingerpost.surfaces.gateway.elicitation.client import (
    ELICIT_METHOD,
    INPUT_REQUIRED_TYPE,
    CallRound,
    build_question_outcome,
    can_approve,
    get_input_responses,
    is_elicitation_answer,
)
from fingerpost.surfaces.gateway.elicitation.request_state import (
    InvalidRequestState,
    RequestState,
    RequestStateCipher,
    StateBinding,
    mark_first_use,
)
from fingerpost.surfaces.gateway.protocol import (
    NEWEST_HANDSHAKE_VERSION,
    NOT_ALLOWED_CODE,
    ClientRequest,
    JsonRpcError,
)
from fingerpost.surfaces.http.approvals import build_approval_url, wait_for_decision

APPROVAL_REQUEST_KEY: Final = "fingerpost-approval"  # key of our question in `inputRequests`
APPROVE: Final = "approve"
APPROVE_ALL: Final = "approve for this conversation"
REJECT: Final = "reject"

MAX_VALUE_LENGTH: Final = 2_000
MAX_FORM_LENGTH: Final = 8_000  # characters of all arguments together
MAX_REASON_LENGTH: Final = 500
MAX_APPROVER_LENGTH: Final = 120


@frozen(kw_only=False)
class ApprovalUndecided:
    """The user was asked and did not decide. The call keeps waiting."""


def format_approver(request: ClientRequest) -> str:
    """Return who approves and how: the caller's own user, through this client."""
    client = request.client or "an MCP client"
    return escape_invisible_except(f"{request.principal.name} via {client}")[:MAX_APPROVER_LENGTH]


def build_approval_form(pending: Pending, request: ClientRequest, *, grant_seconds: float) -> JsonObject:
    """Build the params of `elicitation/create`: exactly what would run, and the possible decisions."""
    params: dict[str, object] = {
        "message": "\n".join(_format_form_lines(pending, request)),
        "requestedSchema": _build_form_schema(
            pending, grant_seconds, allow_session=_can_approve_session(pending, request)
        ),
    }
    if request.version >= NEWEST_HANDSHAKE_VERSION:  # older versions have only one mode
        params["mode"] = "form"
    return cast("JsonObject", params)


def _can_approve_session(pending: Pending, request: ClientRequest) -> bool:
    """Return whether the call can be approved for a whole session: the client must have one."""
    return explain_once_only(pending) is None and pending.conversation == request.session


def _build_form_schema(pending: Pending, grant_seconds: float, *, allow_session: bool) -> JsonObject:
    minutes = max(1, round(grant_seconds / 60))
    wide = (
        f" '{APPROVE_ALL}' also lets {escape_invisible_except(describe_widened(pending))[:400]}, "
        "by this caller in this"
        f" session, run for {minutes} min without asking."
    )
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "description": f"'{APPROVE}' runs exactly this call, once.{wide if allow_session else ''}",
                "enum": [APPROVE, *([APPROVE_ALL] if allow_session else []), REJECT],
            },
            "reason": {
                "type": "string",
                "title": "Reason",
                "description": "Sent to the model if you reject. May be empty.",
                "maxLength": MAX_REASON_LENGTH,
            },
        },
        "required": ["decision"],
    }


def _format_form_lines(pending: Pending, request: ClientRequest) -> Iterator[str]:
    yield "Fingerpost: approve this tool call?"
    yield ""
    yield f"    tool: {escape_invisible_except(pending.operation)[:400]}"
    yield f"    effect: {pending.effect} ({describe_effect(pending)})"
    yield f"    requested by: {format_approver(request)}"
    yield f"    why: {escape_invisible_except(scrub(pending.reason))[:MAX_REASON_LENGTH]}"
    yield ""
    yield "Its arguments, as the model wrote them:"
    yield ""
    yield from _format_arguments(pending)
    yield ""
    if pending.origins:
        yield "Where they come from:"
        yield ""
        yield from (f"    {escape_invisible_except(line)}" for line in list_origins(pending))
        yield ""
    yield f"Its id is {pending.pending_id}."


def _format_arguments(pending: Pending) -> Iterator[str]:
    if not pending.arguments:
        yield "    (none)"
        return
    room = MAX_FORM_LENGTH
    left = len(pending.arguments)
    masked = cast("JsonObject", scrub_json(pending.arguments))
    for name, value in pending.arguments.items():
        mark = "" if masked[name] == value else "  (looks like a secret)"
        line = f"{escape_invisible_except(name)[:200]} = {_format_value(value, pending)}{mark}"
        if len(line) > room:
            yield f"    … and {left} more: `fingerpost approvals show {pending.pending_id}` shows all"
            return
        room -= len(line)
        left -= 1
        yield f"    {line}"


def _format_value(value: object, pending: Pending) -> str:
    text = escape_invisible_json(json.dumps(value, ensure_ascii=False, default=dict))
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    left = len(text) - MAX_VALUE_LENGTH
    way = f"`fingerpost approvals show {pending.pending_id}` shows all"
    return f"{text[:MAX_VALUE_LENGTH]}… (cut here, {left:,} characters are not shown: {way})"


def parse_approval(
    answer: JsonObject, pending: Pending, request: ClientRequest
) -> Approval | ApprovalUndecided:
    """Parse the user's decision. Only the exact values of the form count as an approval."""
    by = format_approver(request)
    action = answer.get("action")
    content = answer.get("content")
    fields: JsonObject = cast("JsonObject", content) if isinstance(content, Mapping) else {}
    if action == "decline":
        return pending.reject(by=by, reason=_parse_reason(fields))
    if action != "accept":
        return ApprovalUndecided()
    match fields.get("decision"):
        case "approve":
            return pending.approve(by=by)
        case "approve for this conversation" if _can_approve_session(pending, request):
            return pending.approve(by=by, for_conversation=True)
        case "reject":
            return pending.reject(by=by, reason=_parse_reason(fields))
        case _:
            return ApprovalUndecided()


def _parse_reason(content: JsonObject) -> str | None:
    reason = content.get("reason")
    return reason.strip()[:MAX_REASON_LENGTH] or None if isinstance(reason, str) else None


MAX_CARRIED_BYTES: Final = 256 * 1024  # of a server's state and answers inside ours


class ElicitedApprovals:
    """Asks the user to approve waiting calls, and records the decisions."""

    def __init__(self, router: Router, cipher: RequestStateCipher) -> None:
        self._router = router
        self._cipher = cipher
        self._seconds = router.settings.gateway.approval_seconds
        self._grant_seconds = router.settings.call.grant_seconds

    async def ask_in_session(self, call_round: CallRound, pending_id: str) -> bool:
        """Ask a client that has a session. Return whether the call is decided, here or elsewhere."""
        pending = await self._find_pending(pending_id)
        answer: JsonObject = {"action": "cancel"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_decided, pending_id, tasks.cancel_scope)
            # If the client cannot be asked after all, the call stays in the approval inbox.
            with anyio.move_on_after(self._seconds), suppress(JsonRpcError):
                answer = await call_round.exchange.ask(ELICIT_METHOD, self._build_form(call_round, pending))
            tasks.cancel_scope.cancel()
        return await self._record_answer(call_round, pending, answer)

    async def _cancel_when_decided(self, pending_id: str, question_scope: anyio.CancelScope) -> None:
        """Cancel the question when the call is decided elsewhere, in the terminal or the console."""
        if await wait_for_decision(self._router, pending_id, self._seconds):
            question_scope.cancel()

    async def build_approval_request(self, call_round: CallRound, pending_id: str) -> Outcome | None:
        """Build the approval question as an `input_required` result, for a client without a session. Return
        None if the carried state would be too large.
        """
        pending = await self._find_pending(pending_id)
        carried = _build_carried_input(call_round)
        if carried is not None and len(json.dumps(carried, default=dict)) > MAX_CARRIED_BYTES:
            return None
        left = (pending.expires - utc_now()).total_seconds()
        state, _ = self._cipher.seal(
            "approval",
            pending_id,
            StateBinding.from_request(call_round.request),
            seconds=min(self._seconds, left),
            carried=carried,
        )
        asked: JsonObject = {
            APPROVAL_REQUEST_KEY: {"method": ELICIT_METHOD, "params": self._build_form(call_round, pending)}
        }
        result: JsonObject = {
            "resultType": INPUT_REQUIRED_TYPE,
            "inputRequests": asked,
            "requestState": state,
        }
        call_id = pending.call_id or call_round.context.call_id
        return build_question_outcome(call_round, result, call_id=call_id, pending_id=pending_id)

    async def accept_answer(self, call_round: CallRound, request_state: RequestState) -> bool | None:
        """Record the answer that a client sent back.

        Return whether the call is decided now, or None if there is no answer and the question must be
        repeated.
        """
        answer = get_input_responses(call_round.request_context).get(APPROVAL_REQUEST_KEY)
        pending = await self._find_pending(request_state.subject)
        if not is_elicitation_answer(answer):
            return None
        await self._use_state(request_state, pending)
        return await self._record_answer(call_round, pending, cast("JsonObject", answer))

    def wrap_server_question(self, call_round: CallRound, approved_id: str, outcome: Outcome) -> Outcome:
        """Wrap the server's own question after an approval: the server's state is carried inside ours.

        The next round then proves that this call was approved, and the user is not asked again.
        """
        assert outcome.result is not None
        inner = outcome.result.get("requestState")
        state, _ = self._cipher.seal(
            "further",
            approved_id,
            StateBinding.from_request(call_round.request),
            seconds=self._grant_seconds,
            carried={"state": inner},
        )
        return build_question_outcome(
            call_round, {**outcome.result, "requestState": state}, call_id=outcome.call_id
        )

    async def use_wrapped_state(self, request_state: RequestState) -> None:
        """Consume a state made by `wrap_server_question`. Raise InvalidRequestState if it was used before."""
        await self._use_state(request_state, await self._find_pending(request_state.subject))

    async def renew_approval(self, approved_id: str, waiting_id: str) -> bool:
        """Approve a further round of an approved call that the call path does not know.

        This happens after a restart, and in another gateway process. Only the same call passes: if the tool's
        definition changed since, it is a different call and the user is asked.
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
        return build_approval_form(pending, call_round.request, grant_seconds=self._grant_seconds)

    async def _record_answer(self, call_round: CallRound, pending: Pending, answer: JsonObject) -> bool:
        approval = parse_approval(answer, pending, call_round.request)
        # The right may have been revoked since the question was asked.
        if isinstance(approval, ApprovalUndecided) or not call_round.request.principal.may_confirm:
            standing = await self._find_pending(pending.pending_id)
        else:
            standing = await self._router.calls.decide(
                pending.pending_id,
                approval.decision,
                by=approval.by,
                reason=approval.reason,
                for_conversation=approval.for_conversation,
            )
        return standing.decision is not Decision.WAITING

    async def _find_pending(self, pending_id: str) -> Pending:
        pending = await self._router.calls.approvals.get(pending_id)
        if pending is None:
            raise CallError(f"no call waits as {pending_id}", hint="make the call again")
        return pending

    async def _use_state(self, request_state: RequestState, pending: Pending) -> None:
        if not await mark_first_use(self._router.store, request_state):
            message = f"was used already; what became of the call: `fingerpost trace {pending.call_id}`"
            raise InvalidRequestState(message, started=True)


def _get_fingerprint(pending: Pending) -> str:
    if pending.edited_arguments is None or pending.definition_fingerprint is None:
        return pending.call_fingerprint
    return compute_call_fingerprint(pending.definition_fingerprint, pending.tool, pending.edited_arguments)


def _build_carried_input(call_round: CallRound) -> JsonObject | None:
    """Return the client's answers and state for the server, which must survive our own question."""
    request_context = call_round.request_context
    if not request_context.is_continuation:
        return None
    return {"state": request_context.request_state, "answers": request_context.input_responses}


def get_carried_input(request_state: RequestState) -> tuple[JsonObject | None, str | None]:
    """Return the server's answers and state that are carried inside ours, unchanged."""
    carried: Mapping[str, Json] = request_state.carried or {}
    answers, state = carried.get("answers"), carried.get("state")
    return (
        cast("JsonObject", answers) if isinstance(answers, Mapping) else None,
        state if isinstance(state, str) else None,
    )


MAX_QUESTIONS: Final = 3  # per request: of two equal concurrent requests, the second may need another


class ReadApprovals:
    """Requests approvals for reads, and uses the grants."""

    def __init__(self, router: Router, approvals: ElicitedApprovals, *, console: str | None) -> None:
        self._approvals = router.calls.approvals
        self._elicited_approvals = approvals
        self._console = console

    async def request_approval(
        self, call_round: CallRound, reason: str, *, was_asked: bool
    ) -> JsonObject | None:
        """Return the question for a client without a session, or None if the read is permitted now.

        `was_asked`: this request carries the user's decision. Raises `JsonRpcError` if the user rejected the
        read, or if it must be decided elsewhere.
        """
        call = _to_call(call_round)
        for _ in range(MAX_QUESTIONS):
            if await self._approvals.use_grant(call, call_round.context) is not None:
                return None
            if (
                rejected := await self._approvals.take_unreported_decision(call, call_round.context)
            ) is not None:
                raise _build_rejected_error(rejected)
            ruling = Ruling(verdict=Verdict.ASK, reason=reason, rule="a rule about the server")
            pending = await self._approvals.request(call, call_round.context, ruling)
            if not can_approve(call_round.request) or was_asked:
                raise self._build_waiting_error(pending)
            if call_round.request.modern:
                question = await self._elicited_approvals.build_approval_request(
                    call_round, pending.pending_id
                )
                if question is None:
                    raise self._build_waiting_error(pending)
                return question.result
            if not await self._elicited_approvals.ask_in_session(call_round, pending.pending_id):
                raise self._build_waiting_error(pending)
        raise JsonRpcError(NOT_ALLOWED_CODE, f"{call.tool} could not be decided; request it again")

    def _build_waiting_error(self, pending: Pending) -> JsonRpcError:
        page = f"at {build_approval_url(self._console, pending.pending_id)} or " if self._console else ""
        message = (
            f"{pending.tool} needs a person's approval ({pending.pending_id}): {pending.reason}. "
            f"Approve it {page}with `fingerpost approvals approve {pending.pending_id}`, then ask for it "
            f"again: it is read once. {explain_denied_reading(pending.tool.partition('/')[0])}"
        )
        return JsonRpcError(NOT_ALLOWED_CODE, message, {"pending": pending.pending_id})


def explain_denied_reading(server: str) -> str:
    """Return a sentence that says which rule permits the read."""
    rule = f'verdict = "allow", server = "{server}", effect = "read"'
    return f"A rule in front of the one that asks ({rule}) allows reading without approval."


def _to_call(call_round: CallRound) -> Call:
    """Build the call to approve from a read, which has no tool definition to fingerprint."""
    tool_call = call_round.tool_call
    return Call(
        tool=tool_call.name,
        server=call_round.server,
        name=call_round.request.method,
        operation=tool_call.name,
        arguments=tool_call.arguments,
        effect=Effect.READ,
        fingerprint=compute_call_fingerprint("", tool_call.name, tool_call.arguments),
    )


def _build_rejected_error(pending: Pending) -> JsonRpcError:
    who = pending.decided_by or "a person"
    why = f": {pending.decision_reason}" if pending.decision_reason else ""
    return JsonRpcError(NOT_ALLOWED_CODE, f"{pending.tool} was rejected by {who}{why}")
