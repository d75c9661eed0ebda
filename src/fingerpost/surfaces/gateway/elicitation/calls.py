"""Calls that may need input from the client's user before they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, NoReturn, Self, cast

import anyio
from anyio.abc import TaskGroup
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, URL_ELICITATION_REQUIRED

from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.tool_names import build_tool_key
from fingerpost.errors import CallError, StoreError, UnknownServer
from fingerpost.events import AccessRefused
from fingerpost.records import CallContext, Json, JsonObject, Outcome, ToolCall, create_id
from fingerpost.router import Router
from fingerpost.servers.requests import RequestContext
from fingerpost.surfaces.gateway.elicitation.approvals import (
    ElicitedApprovals,
    ReadApprovals,
    get_carried_input,
)
from fingerpost.surfaces.gateway.elicitation.client import (
    ELICIT_METHOD,
    INPUT_REQUIRED_TYPE,
    CallRound,
    GatewayCaller,
    add_waiting_note,
    build_missing_input_error,
    build_question_outcome,
    can_approve,
    can_be_asked,
    fail_for_missing_input,
    find_missing_capabilities,
    find_missing_capability,
    get_awaited_approval,
    get_input_responses,
    is_elicitation_answer,
    is_input_required,
    is_input_required_result,
    mark_result,
)
from fingerpost.surfaces.gateway.elicitation.request_state import (
    InvalidRequestState,
    RequestState,
    RequestStateCipher,
    StateBinding,
    is_own_state,
)
from fingerpost.surfaces.gateway.elicitation.suspended import InputRequired, SuspendedCalls
from fingerpost.surfaces.gateway.protocol import (
    MODERN_VERSION,
    NEWEST_HANDSHAKE_VERSION,
    ClientExchange,
    ClientRequest,
    JsonRpcError,
    NotificationAudience,
)
from fingerpost.surfaces.http.approvals import (
    SIGN_IN_LINK_SECONDS,
    SignInLinks,
    build_sign_in_url,
    wait_for_sign_in,
)
from fingerpost.tasks import cancel_and_exit

SIGN_IN_REQUEST_KEY: Final = "fingerpost-sign-in"  # key of our question in `inputRequests`
ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
MAX_ANNOUNCED: Final = 1000  # sign-ins at once whose end is announced
MAX_APPROVALS: Final = 3  # questions per call: of two equal concurrent calls, the second may need another

_NOT_STARTED_NOTE: Final = "Nothing was run. Make the call again without requestState."
_STARTED_NOTE: Final = (
    "Nothing more was run for it, but the call it was made for may have run: check that before you make "
    "the call again, without requestState."
)

_ToolRun = Callable[[RequestContext], Awaitable[Outcome]]


class SignInQuestions:
    """Sends users to the page where they sign in to a server with `auth = "per_user"`, before their call."""

    def __init__(
        self, router: Router, cipher: RequestStateCipher, secret: bytes, audience: NotificationAudience | None
    ) -> None:
        self._router = router
        self._cipher = cipher
        self._links = SignInLinks(secret)
        self._audience = audience
        self._seconds = router.settings.gateway.approval_seconds
        self._asked: dict[tuple[str, str], str] = {}  # session and server → id of the elicitation

    async def ask(self, call_round: CallRound, tasks: TaskGroup) -> Outcome | None:
        """Return the question of a call whose user has to sign in first, or None. Raises `JsonRpcError` with
        the question for a client that has a session.
        """
        request, server, page = call_round.request, call_round.server, self._router.servers.sign_in_page
        if page is None or not _can_open_urls(request) or not await self._needs_sign_in(request, server):
            return None
        if request.modern:
            return self._build_question(call_round, page)
        session = request.caller_key
        elicitation = self._asked.get((session, server))
        if elicitation is None:
            user = request.principal.user_name
            elicitation = self._links.create_id(user, server)
            if len(self._asked) < MAX_ANNOUNCED:
                self._asked[session, server] = elicitation
                tasks.start_soon(self._announce_completion, session, server, user, elicitation)
        params = self._build_params(page, server, elicitation)
        message = f"{server} needs you to sign in with your own account"
        raise JsonRpcError(
            URL_ELICITATION_REQUIRED, message, {"elicitations": [{**params, "elicitationId": elicitation}]}
        )

    async def accept_answer(self, call_round: CallRound) -> None:
        """Wait for the sign-in if the user agreed to open the page. The call then says what is missing."""
        answer = get_input_responses(call_round.request_context).get(SIGN_IN_REQUEST_KEY)
        if is_elicitation_answer(answer) and cast("JsonObject", answer).get("action") == "accept":
            user = call_round.request.principal.user_name
            await wait_for_sign_in(self._router, call_round.server, user, self._seconds)

    async def _needs_sign_in(self, request: ClientRequest, server: str) -> bool:
        try:
            if self._router.servers.get_spec(server).auth != "per_user":
                return False
        except UnknownServer:  # removed meanwhile: the call path reports it
            return False
        return not await self._router.servers.has_user_token(server, request.principal.user_name)

    async def _announce_completion(self, session: str, server: str, user: str, elicitation: str) -> None:
        """Tell the session that asked when its user has signed in."""
        try:
            if await wait_for_sign_in(self._router, server, user, SIGN_IN_LINK_SECONDS) and self._audience:
                self._audience.publish(
                    ELICITATION_COMPLETE,
                    {"elicitationId": elicitation},
                    should_receive=lambda listener: listener.caller_key == session,
                )
        finally:
            del self._asked[session, server]

    def _build_question(self, call_round: CallRound, page: str) -> Outcome:
        """Build the `input_required` result for a client without a session."""
        server = call_round.server
        link = self._links.create_id(call_round.request.principal.user_name, server)
        state, _ = self._cipher.seal(
            "sign_in", server, StateBinding.from_request(call_round.request), seconds=SIGN_IN_LINK_SECONDS
        )
        params = self._build_params(page, server, link)
        result: JsonObject = {
            "resultType": INPUT_REQUIRED_TYPE,
            "inputRequests": {SIGN_IN_REQUEST_KEY: {"method": ELICIT_METHOD, "params": params}},
            "requestState": state,
        }
        return build_question_outcome(call_round, result, call_id=call_round.context.call_id)

    def _build_params(self, page: str, server: str, link: str) -> dict[str, Json]:
        message = f"Fingerpost: sign in to {escape_invisible_except(server)[:80]} with your own account."
        return {"mode": "url", "message": message, "url": build_sign_in_url(page, server, link)}


def _can_open_urls(request: ClientRequest) -> bool:
    """Return whether the client can send its user to a page: declared, and part of its protocol version."""
    lacks = find_missing_capability(request.capabilities, ELICIT_METHOD, {"mode": "url"})
    return lacks is None and request.version >= NEWEST_HANDSHAKE_VERSION


class InputRequiredCalls:
    """Runs a client's requests for tools, prompts and resources. `async with` keeps suspended calls alive."""

    def __init__(
        self, router: Router, *, console: str | None = None, audience: NotificationAudience | None = None
    ) -> None:
        """`console` is the console's address, `audience` is told of finished sign-ins."""
        self._router = router
        self._console = console
        self._audience = audience
        self._seconds = router.settings.gateway.approval_seconds

    async def __aenter__(self) -> Self:
        secret = await self._router.store.secret.load()
        self._state_cipher = RequestStateCipher(secret)
        self._sign_ins = SignInQuestions(self._router, self._state_cipher, secret, self._audience)
        self._tasks = await anyio.create_task_group().__aenter__()
        self.suspended = SuspendedCalls(
            self._tasks,
            self._state_cipher,
            seconds=self._seconds,
            messages=self._router.store.messages,
            on_abandoned=self._note_abandoned,
        )
        self._approvals = ElicitedApprovals(self._router, self._state_cipher)
        self._read_approvals = ReadApprovals(self._router, self._approvals, console=self._console)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await cancel_and_exit(self._tasks, kind, error, trace)

    async def call(self, current: CallRound) -> Outcome:
        """Call a tool, or continue a call. The outcome may be a question (`input_required`).

        The caller in the request context is set here. Raises `JsonRpcError` if the client sends an invalid
        state; nothing runs then.
        """
        request, request_context = current.request, current.request_context
        try:
            if self._is_continuation(request, request_context):
                if request.modern and is_own_state(request_context.request_state):
                    return await self._continue_call(current)
                current = replace(
                    current,
                    request_context=self._drop_foreign_answers(request, current.server, request_context),
                )
            elif (question := await self._sign_ins.ask(current, self._tasks)) is not None:
                return question
            return await self._run_call(current)
        except StoreError as error:  # a call that needs an approval does not run without a record of it
            message = f"{error}. Nothing was run. {error.hint or 'Try again later.'}"
            raise JsonRpcError(INTERNAL_ERROR, message) from None

    async def _run_call(self, call_round: CallRound) -> Outcome:
        outcome = await self._run(
            call_round,
            lambda caller_context: self._router.calls.call(
                call_round.tool_call, call_round.context, caller_context
            ),
        )
        return await self._settle_approvals(call_round, outcome)

    async def _continue_call(self, call_round: CallRound) -> Outcome:
        """Run a further round of a call for which the gateway asked something."""
        sealed = self._open_state(call_round.request, call_round.request_context)
        try:
            match sealed.kind:
                case "parked":
                    answers = get_input_responses(call_round.request_context)
                    value = await self.suspended.resume(sealed, call_round.exchange, answers)
                    return await self._settle_approvals(call_round, self._to_outcome(call_round, value))
                case "approval":
                    return await self._continue_approved(call_round, sealed)
                case "further":
                    return await self._continue_server_question(call_round, sealed)
                case "sign_in":
                    await self._sign_ins.accept_answer(call_round)
                    return await self._run_call(call_round.with_input(None, None))
        except (InvalidRequestState, CallError) as refused:
            self._refuse(call_round.request, _format_error(refused), started=_had_started(refused))

    async def _continue_approved(self, call_round: CallRound, request_state: RequestState) -> Outcome:
        decided = await self._approvals.accept_answer(call_round, request_state)
        call_round = call_round.with_input(*get_carried_input(request_state))
        if decided is None:
            asked = await self._approvals.build_approval_request(call_round, request_state.subject)
            assert asked is not None  # the same carried state fitted before
            return asked
        return await self._resume_after_answer(call_round, request_state.subject)

    async def _continue_server_question(self, call_round: CallRound, request_state: RequestState) -> Outcome:
        """Continue a call with the answer to the server's question that followed an approval."""
        await self._approvals.use_wrapped_state(request_state)
        call_round = call_round.with_input(
            call_round.request_context.input_responses, get_carried_input(request_state)[1]
        )
        approved_id = request_state.subject
        outcome = await self._run_approved(call_round, approved_id)
        waiting_id = get_awaited_approval(outcome)
        if waiting_id is not None and await self._approvals.renew_approval(approved_id, waiting_id):
            outcome = await self._run_approved(call_round, waiting_id)
        return await self._finish_round(call_round, approved_id, outcome)

    async def _settle_approvals(self, call_round: CallRound, outcome: Outcome) -> Outcome:
        """Return the final outcome. If it waits for an approval, ask the user first."""
        for _ in range(MAX_APPROVALS):
            pending_id = get_awaited_approval(outcome)
            if pending_id is None:
                return outcome
            if not can_approve(call_round.request):
                break
            if call_round.request.modern:
                return await self._approvals.build_approval_request(
                    call_round, pending_id
                ) or self._report_waiting(call_round, outcome)
            if not await self._approvals.ask_in_session(call_round, pending_id):
                break
            outcome = await self._run_approved(call_round, pending_id)
        return outcome if get_awaited_approval(outcome) is None else self._report_waiting(call_round, outcome)

    def _report_waiting(self, call_round: CallRound, outcome: Outcome) -> Outcome:
        return add_waiting_note(outcome, call_round.request, console=self._console)

    async def _resume_after_answer(self, call_round: CallRound, pending_id: str) -> Outcome:
        """Resume a call without a session after the user's decision."""
        outcome = await self._run_approved(call_round, pending_id)
        if get_awaited_approval(outcome) == pending_id:  # the user did not decide: do not ask again
            return self._report_waiting(call_round, outcome)
        return await self._finish_round(call_round, pending_id, outcome)

    async def _finish_round(self, call_round: CallRound, approved_id: str, outcome: Outcome) -> Outcome:
        if is_input_required(outcome):
            return self._approvals.wrap_server_question(call_round, approved_id, outcome)
        return await self._settle_approvals(call_round, outcome)

    async def _run_approved(self, call_round: CallRound, pending_id: str) -> Outcome:
        return await self._run(
            call_round,
            lambda request_context: self._router.calls.resume(
                pending_id, call_round.context, request_context
            ),
        )

    async def _run(self, call_round: CallRound, work: _ToolRun) -> Outcome:
        caller = self.build_caller(
            call_round.request, call_round.exchange, call_round.server, call_round.request_context
        )
        request_context = call_round.request_context.replace_caller(caller)
        if not self._may_suspend(call_round.request, call_round.server):
            outcome = await work(request_context)
        else:
            outcome = self._to_outcome(
                call_round, await self.suspended.run_call(caller, lambda: work(request_context))
            )
        return self._check_question(call_round.request, call_round.server, outcome)

    def finish_unasked(self, request: ClientRequest, server: str, outcome: Outcome) -> Outcome:
        """Return the outcome of a call whose client cannot be asked: with where a person can approve it, or
        as a failure if the server asks something.
        """
        outcome = self._check_question(request, server, outcome)
        waits = get_awaited_approval(outcome) is not None
        return add_waiting_note(outcome, request, console=self._console) if waits else outcome

    def _check_question(self, request: ClientRequest, server: str, outcome: Outcome) -> Outcome:
        """Return the outcome with the server's question marked, or a failure if the client cannot answer."""
        if not is_input_required(outcome):
            return outcome
        assert outcome.result is not None
        needed = self._find_missing_capabilities(request, server, outcome.result)
        if needed is not None:
            return fail_for_missing_input(outcome, needed)
        return replace(outcome, result=mark_result(server, outcome.result))

    def _to_outcome(self, call_round: CallRound, value: Outcome | JsonObject | InputRequired) -> Outcome:
        if isinstance(value, InputRequired):
            return build_question_outcome(call_round, value.result, call_id=call_round.context.call_id)
        assert isinstance(value, Outcome)  # a state is bound to its method
        return value

    async def ask_server(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        server: str,
        method: str,
        params: JsonObject,
        request_context: RequestContext,
        *,
        timeout: float,
        reason: str | None = None,
    ) -> JsonObject:
        """Send a request to a server (`prompts/get`, `resources/read`), or continue one. The result may be
        `input_required`.

        `reason`: why a person must approve first, or None.
        """
        current = _build_read_round(request, exchange, server, method, params, request_context)
        asked = False
        if self._is_continuation(request, request_context):
            if request.modern and is_own_state(request_context.request_state):
                sealed = self._open_state(request, request_context)
                if sealed.kind == "parked":
                    return await self._continue_server_request(current, sealed)
                asked = await self._accept_approval_answer(current, sealed)
                current = current.with_input(*get_carried_input(sealed))
            else:
                current = replace(
                    current, request_context=self._drop_foreign_answers(request, server, request_context)
                )
        if reason is not None:
            question = await self._read_approvals.request_approval(current, reason, was_asked=asked)
            if question is not None:
                return question
        return await self._send_to_server(current, method, params, timeout=timeout)

    async def _send_to_server(
        self, call_round: CallRound, method: str, params: JsonObject, *, timeout: float
    ) -> JsonObject:
        request, server = call_round.request, call_round.server
        caller = self.build_caller(request, call_round.exchange, server, call_round.request_context)
        request_context = replace(call_round.request_context, caller=caller)

        async def work() -> JsonObject:
            return await self._router.servers.ask(
                server, method, params, timeout=timeout, context=request_context
            )

        may_suspend = self._may_suspend(request, server)
        value = await (self.suspended.run_call(caller, work) if may_suspend else work())
        if isinstance(value, InputRequired):
            return value.result
        result = _to_result(value)
        if not is_input_required_result(result):
            return result
        if (needed := self._find_missing_capabilities(request, server, result)) is not None:
            raise build_missing_input_error(server, method, needed)
        return mark_result(server, result)

    async def _continue_server_request(
        self, call_round: CallRound, request_state: RequestState
    ) -> JsonObject:
        try:
            return _to_result(
                await self.suspended.resume(
                    request_state, call_round.exchange, get_input_responses(call_round.request_context)
                )
            )
        except InvalidRequestState as refused:
            self._refuse(call_round.request, _format_error(refused), started=refused.started)

    async def _accept_approval_answer(self, call_round: CallRound, request_state: RequestState) -> bool:
        """Record the user's decision about this read, if the client sent one. Return whether it did."""
        try:
            return await self._approvals.accept_answer(call_round, request_state) is not None
        except (InvalidRequestState, CallError) as refused:
            self._refuse(call_round.request, _format_error(refused), started=_had_started(refused))

    def build_caller(
        self, request: ClientRequest, exchange: ClientExchange, server: str, request_context: RequestContext
    ) -> GatewayCaller:
        """Return the client of a request as servers see it."""
        return GatewayCaller(
            request, exchange, server=server, seconds=self._seconds, log_level=request_context.log_level
        )

    def _may_suspend(self, request: ClientRequest, server: str) -> bool:
        """Return whether the server might ask a question that cannot be answered within this request.

        Such a call needs a separate task. That costs time, so other calls have none.
        """
        if not request.modern or not server or not can_be_asked(request.capabilities):
            return False
        return not self._supports_input_required(server)

    def _find_missing_capabilities(
        self, request: ClientRequest, server: str, result: JsonObject
    ) -> JsonObject | None:
        """Return the capabilities the client lacks to answer an `input_required` result, or None."""
        if not request.modern:  # questions are asked and answered within the request
            return None
        return find_missing_capabilities(
            result, request.capabilities, supports_input_required=self._supports_input_required(server)
        )

    def _supports_input_required(self, server: str) -> bool:
        try:
            protocol = self._router.servers.get_status(server).protocol
        except UnknownServer:  # removed meanwhile: the call path reports it
            return True
        return protocol is not None and protocol >= MODERN_VERSION

    def _is_continuation(self, request: ClientRequest, request_context: RequestContext) -> bool:
        """Return whether this is a further round. Raises `JsonRpcError` if the state is not a string."""
        state = request.params.get("requestState")
        if request.modern and state is not None and not isinstance(state, str):
            self._refuse(request, "This requestState is not a text.")
        return request_context.is_continuation

    def _drop_foreign_answers(
        self, request: ClientRequest, server: str, request_context: RequestContext
    ) -> RequestContext:
        """Remove answers no server can have asked for. Raises `JsonRpcError` for such a state."""
        if request.modern and (not server or self._supports_input_required(server)):
            return request_context
        if request_context.request_state is not None:
            self._refuse(request, "This requestState was not made by this gateway.")
        return replace(request_context, input_responses=None)

    def _open_state(self, request: ClientRequest, request_context: RequestContext) -> RequestState:
        assert request_context.request_state is not None
        try:
            return self._state_cipher.open(request_context.request_state, StateBinding.from_request(request))
        except InvalidRequestState as refused:
            self._refuse(request, _format_error(refused), started=refused.started)

    def _refuse(self, request: ClientRequest, reason: str, *, started: bool = False) -> NoReturn:
        self._router.events.emit(
            AccessRefused(endpoint=request.endpoint.path, reason=reason, principal=request.principal.name)
        )
        message = f"{reason} {_STARTED_NOTE if started else _NOT_STARTED_NOTE}"
        raise JsonRpcError(INVALID_PARAMS, message, {"reason": "invalid_request_state"})

    def _note_abandoned(self, caller: GatewayCaller, method: str) -> None:
        request = caller.request
        reason = f"a question of {caller.server} ({method}) was not answered within {self._seconds:g} s"
        self._router.events.emit(
            AccessRefused(endpoint=request.endpoint.path, reason=reason, principal=request.principal.name)
        )


def _build_read_round(
    request: ClientRequest,
    exchange: ClientExchange,
    server: str,
    method: str,
    params: JsonObject,
    request_context: RequestContext,
) -> CallRound:
    """Build the round of a request for something other than a tool."""
    context = CallContext(
        call_id=create_id("cal"),
        conversation=request.session,
        caller=request.principal.name,
        asker=request.principal_key,
    )
    tool_call = ToolCall(name=build_tool_key(server, method), arguments=params)
    return CallRound(request, exchange, tool_call, context, request_context, server)


def _to_result(value: Outcome | JsonObject | InputRequired) -> JsonObject:
    if isinstance(value, InputRequired):
        return value.result
    assert not isinstance(value, Outcome)  # a state is bound to its method
    return value


def _format_error(error: InvalidRequestState | CallError) -> str:
    return f"This requestState {error}." if isinstance(error, InvalidRequestState) else f"{error}."


def _had_started(error: InvalidRequestState | CallError) -> bool:
    """Return whether the call may have run. True if the call is no longer known."""
    return error.started if isinstance(error, InvalidRequestState) else True
