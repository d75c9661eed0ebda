"""Approval of calls and of reads by the person behind the client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, cast

import anyio

from fingerpost.call.approvals import describe_widened, explain_once_only
from fingerpost.call.build import compute_call_fingerprint
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.tool_names import escape_invisible_json
from fingerpost.errors import CallError
from fingerpost.frozen import frozen
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
)
from fingerpost.surfaces.gateway.elicitation.request_state import (
    InvalidRequestState,
    RequestState,
    RequestStateCipher,
    build_binding,
    mark_first_use,
)
from fingerpost.surfaces.gateway.protocol import HANDSHAKE_VERSIONS, ClientRequest, JsonRpcError
from fingerpost.surfaces.http.approvals import build_approval_url, wait_for_decision

APPROVAL_REQUEST_KEY: Final = "fingerpost-approval"  # of our question in `inputRequests`
APPROVE: Final = "approve"
APPROVE_ALL: Final = "approve for this conversation"
REJECT: Final = "reject"

MAX_VALUE_LENGTH: Final = 2_000
MAX_FORM_LENGTH: Final = 8_000  # of all arguments together
MAX_REASON_LENGTH: Final = 500
MAX_CLIENT_NAME_LENGTH: Final = 120

_EFFECT_PHRASES: Final = {"read": "it reads", "write": "it changes things", "destroy": "it destroys things"}


@frozen(kw_only=False)
class ApprovalUndecided:
    """The person was asked and did not decide: the call goes on waiting."""


def format_approver(request: ClientRequest) -> str:
    """Who approves, and how: the caller's own user, through this client."""
    client = request.client or "an MCP client"
    return escape_invisible_except(f"{request.principal.name} via {client}")[:MAX_CLIENT_NAME_LENGTH]


def build_approval_form(pending: Pending, request: ClientRequest, *, grant_seconds: float) -> JsonObject:
    """`elicitation/create`: exactly what would run, and what can be said to it."""
    params: dict[str, object] = {
        "message": "\n".join(_format_form_lines(pending, request)),
        "requestedSchema": _build_form_schema(
            pending, grant_seconds, allow_session=_can_approve_session(pending, request)
        ),
    }
    if request.version >= HANDSHAKE_VERSIONS:  # before, there was only one kind
        params["mode"] = "form"
    return cast("JsonObject", params)


def _can_approve_session(pending: Pending, request: ClientRequest) -> bool:
    """Whether there is a conversation to approve for: this client's session."""
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
                "description": "Told to the model when you reject. May be empty.",
                "maxLength": MAX_REASON_LENGTH,
            },
        },
        "required": ["decision"],
    }


def _format_form_lines(pending: Pending, request: ClientRequest) -> Iterator[str]:
    effect = pending.effect.value
    yield "Fingerpost asks: may this tool run?"
    yield ""
    yield f"    tool: {escape_invisible_except(pending.operation)[:400]}"
    yield f"    effect: {effect} ({_EFFECT_PHRASES.get(effect, 'unknown')})"
    yield f"    asked for by: {format_approver(request)}"
    yield f"    why you are asked: {escape_invisible_except(scrub(pending.reason))[:MAX_REASON_LENGTH]}"
    yield ""
    yield "Its arguments, as the model wrote them:"
    yield ""
    yield from _format_arguments(pending)
    yield ""
    yield f"It waits as {pending.pending_id}."


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


def is_approval_answer(answer: object) -> bool:
    """Whether this is an answer to our form at all."""
    return isinstance(answer, Mapping) and cast("JsonObject", answer).get("action") in (
        "accept",
        "decline",
        "cancel",
    )


def parse_approval(
    answer: JsonObject, pending: Pending, request: ClientRequest
) -> Approval | ApprovalUndecided:
    """What the person said. Only the very words of the form are a yes."""
    by = format_approver(request)
    action = answer.get("action")
    content = answer.get("content")
    said: JsonObject = cast("JsonObject", content) if isinstance(content, Mapping) else {}
    if action == "decline":
        return pending.reject(by=by, reason=_parse_reason(said))
    if action != "accept":
        return ApprovalUndecided()
    match said.get("decision"):
        case "approve":
            return pending.approve(by=by)
        case "approve for this conversation" if _can_approve_session(pending, request):
            return pending.approve(by=by, for_conversation=True)
        case "reject":
            return pending.reject(by=by, reason=_parse_reason(said))
        case _:
            return ApprovalUndecided()


def _parse_reason(content: JsonObject) -> str | None:
    reason = content.get("reason")
    return reason.strip()[:MAX_REASON_LENGTH] or None if isinstance(reason, str) else None


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
            APPROVAL_REQUEST_KEY: {
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
        answer = get_input_responses(call_round.request_context).get(APPROVAL_REQUEST_KEY)
        pending = await self._find_pending(request_state.subject)
        if not is_approval_answer(answer):
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
        return build_approval_form(pending, call_round.request, grant_seconds=self._grant_seconds)

    async def _record_answer(self, call_round: CallRound, pending: Pending, answer: JsonObject) -> bool:
        said = parse_approval(answer, pending, call_round.request)
        # A right may have been taken away since the question was put.
        if isinstance(said, ApprovalUndecided) or not call_round.request.principal.may_confirm:
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
