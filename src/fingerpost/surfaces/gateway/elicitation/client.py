"""The client of a call: its capabilities, questions of servers to it, and one round of its call."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, cast

import anyio
from mcp_types.jsonrpc import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, REQUEST_TIMEOUT

from fingerpost.call.outcomes import get_advice
from fingerpost.catalog import escape_invisible_except
from fingerpost.errors import ToolFailed
from fingerpost.frozen import frozen
from fingerpost.records import (
    CallContext,
    CallerAuthorization,
    ErrorKind,
    Json,
    JsonObject,
    Outcome,
    ToolCall,
)
from fingerpost.servers.requests import RequestContext
from fingerpost.surfaces.gateway.protocol import ClientExchange, ClientRequest, JsonRpcError
from fingerpost.surfaces.http.approvals import build_approval_url

ELICIT_METHOD: Final = "elicitation/create"
SAMPLE_METHOD: Final = "sampling/createMessage"
ROOTS_METHOD: Final = "roots/list"

_CAPABILITY_BY_METHOD: Final = {
    ELICIT_METHOD: "elicitation",
    SAMPLE_METHOD: "sampling",
    ROOTS_METHOD: "roots",
}
_QUESTION_CAPABILITIES: Final = frozenset(_CAPABILITY_BY_METHOD.values())
_SAMPLING_CONTEXTS: Final = ("thisServer", "allServers")


def can_be_asked(capabilities: JsonObject) -> bool:
    """Return whether the client accepts any questions."""
    return not _QUESTION_CAPABILITIES.isdisjoint(capabilities)


def can_show_forms(capabilities: JsonObject) -> bool:
    """Return whether the client can show a form to its user."""
    return not find_missing_capability(capabilities, ELICIT_METHOD, {})


def can_approve(request: ClientRequest) -> bool:
    """Return whether the client's user can be asked about a call and may decide it.

    Any program can declare elicitation and answer by itself. So only principals with the right to confirm
    count.
    """
    return can_show_forms(request.capabilities) and request.principal.may_confirm


def is_elicitation_answer(answer: object) -> bool:
    """Return whether this is an answer of a user to a form. What asked judges its content."""
    actions = ("accept", "decline", "cancel")
    return isinstance(answer, Mapping) and cast("JsonObject", answer).get("action") in actions


def find_missing_capability(capabilities: JsonObject, method: str, params: JsonObject) -> JsonObject | None:
    """Return the capabilities the client would need for this question, or None if it has them.

    The result is an empty object for an unknown method: no client can answer it.
    """
    if method not in _CAPABILITY_BY_METHOD:
        return {}
    name = _CAPABILITY_BY_METHOD[method]
    part = _get_capability_part(method, params)
    declared = capabilities.get(name)
    if isinstance(declared, Mapping) and _has_capability(cast("JsonObject", declared), method, part):
        return None
    needed: dict[str, Json] = {} if part is None else {part: {}}
    return {name: needed}


def _get_capability_part(method: str, params: JsonObject) -> str | None:
    """Return the part of the capability that this question needs."""
    if method == ELICIT_METHOD:
        return "url" if params.get("mode") == "url" else "form"
    if method == SAMPLE_METHOD and (params.get("tools") or params.get("toolChoice")):
        return "tools"
    # Behind a gateway "this server" means every server: do not share one server's context with others.
    if method == SAMPLE_METHOD and params.get("includeContext") in _SAMPLING_CONTEXTS:
        return "context"
    return None


def _has_capability(declared: JsonObject, method: str, part: str | None) -> bool:
    if part is None or isinstance(declared.get(part), Mapping):
        return True
    # In versions with only one kind of elicitation `{}` meant a form. It still does.
    return method == ELICIT_METHOD and part == "form" and declared.get("url") is None


_OUR_NAME: Final = "fingerpost"

# Letters of other scripts that look like the letters of "Fingerpost".
_LOOKALIKE_LETTERS: Final = str.maketrans(
    {
        "і": "i",
        "ı": "i",
        "ո": "n",
        "ɡ": "g",
        "е": "e",
        "г": "r",
        "р": "p",
        "о": "o",
        "ο": "o",
        "ѕ": "s",
        "т": "t",
    }
)


def mark_question(server: str, method: str, params: JsonObject) -> JsonObject:
    """Return the question with invisible characters escaped. If it seems to come from Fingerpost, a line that
    names the server is put before it.
    """
    message = params.get("message")
    if method != ELICIT_METHOD or not isinstance(message, str):
        return params
    text = escape_invisible_except(message, keep="\n\t\\")
    if _claims_our_name(message):
        text = f"[The server {escape_invisible_except(server)[:80]} asks this, not Fingerpost.]\n{text}"
    return params if text == message else {**params, "message": text}


def mark_result(server: str, result: JsonObject) -> JsonObject:
    """Return a server's `input_required` result with its questions marked and its state unchanged."""
    asked = result.get("inputRequests")
    if not isinstance(asked, Mapping):
        return result
    questions: dict[str, Json] = {
        key: _mark_entry(server, entry) for key, entry in cast("JsonObject", asked).items()
    }
    return result if questions == asked else {**result, "inputRequests": questions}


def _mark_entry(server: str, entry: Json) -> Json:
    if not isinstance(entry, Mapping):
        return entry
    method, params = entry.get("method"), entry.get("params")
    if not isinstance(method, str) or not isinstance(params, Mapping):
        return entry
    changed = mark_question(server, method, params)
    return entry if changed is params else {**entry, "params": changed}


def _claims_our_name(message: str) -> bool:
    plain = unicodedata.normalize("NFKD", message).casefold().translate(_LOOKALIKE_LETTERS)
    letters = "".join(character for character in plain if character.isalpha())
    return _OUR_NAME in letters


PROGRESS_METHOD: Final = "notifications/progress"
MESSAGE_METHOD: Final = "notifications/message"
# These concern a connection. The connection to a server is not the caller's connection.
_CONNECTION_NOTIFICATIONS: Final = frozenset({"notifications/cancelled", "notifications/initialized"})
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

QuestionSender = Callable[[str, JsonObject], Awaitable[JsonObject]]


class GatewayCaller:
    """Implements `CallerChannel` for one request.

    Callers with a session are asked directly. Others (2026-07-28) are asked with `send_question`; without it
    they cannot be asked.
    """

    def __init__(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        *,
        server: str,
        seconds: float,
        log_level: str | None = None,
        send_question: QuestionSender | None = None,
    ) -> None:
        self.request = request
        self.server = server
        self._seconds = seconds
        self._log_level = log_level
        self._send_question = send_question if request.modern else self._ask_directly
        self.exchange: ClientExchange | None = exchange  # None while the caller answers a question

    @property
    def key(self) -> str:
        return self.request.caller_key

    @property
    def capabilities(self) -> JsonObject:
        return self.request.capabilities

    @property
    def accepts_input_required(self) -> bool:
        return self.request.modern

    @property
    def authorization(self) -> CallerAuthorization | None:
        return self.request.authorization

    def set_question_sender(self, send_question: QuestionSender) -> None:
        """Send questions through this function from now on."""
        self._send_question = send_question

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a server's question to the caller, if its capabilities permit it."""
        needed = find_missing_capability(self.capabilities, method, params)
        if needed is not None:
            raise self._build_unsupported_error(method, needed)
        if self._send_question is None:
            message = f"the client cannot be asked for {method} in this call"
            raise ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)
        return await self._send_question(method, mark_question(self.server, method, params))

    def _build_unsupported_error(self, method: str, needed: JsonObject) -> ToolFailed:
        message = f"the client does not offer what {method} needs"
        if self.request.modern and needed:
            data = {"requiredCapabilities": needed}
            return ToolFailed(message, server=self.server, code=MISSING_REQUIRED_CLIENT_CAPABILITY, data=data)
        return ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)

    async def _ask_directly(self, method: str, params: JsonObject) -> JsonObject:
        if self.exchange is None:
            return build_unanswered_reply(method, self.server)
        with anyio.move_on_after(self._seconds):
            try:
                return await self.exchange.ask(method, params)
            except JsonRpcError as refused:
                raise ToolFailed(
                    refused.message, server=self.server, code=refused.code, data=refused.data
                ) from None
        return build_unanswered_reply(method, self.server)

    async def tell(self, method: str, params: JsonObject) -> None:
        """Forward a notification with the caller's own progress token, from the log level it asked for."""
        if self.exchange is None or method in _CONNECTION_NOTIFICATIONS:
            return
        if method == PROGRESS_METHOD:
            token = self._get_progress_token()
            if token is None:
                return
            params = {**params, "progressToken": token}
        elif method == MESSAGE_METHOD and not self._wants_level(params.get("level")):
            return
        await self.exchange.notify(method, params)

    def _get_progress_token(self) -> Json:
        meta = self.request.params.get("_meta")
        return cast("JsonObject", meta).get("progressToken") if isinstance(meta, Mapping) else None

    def _wants_level(self, level: Json) -> bool:
        """Return whether the caller wants this log level; without a session it must have asked for it."""
        if self._log_level not in _LEVELS:
            return not self.request.modern
        return level not in _LEVELS or _LEVELS.index(str(level)) >= _LEVELS.index(self._log_level)


def build_unanswered_reply(method: str, server: str) -> JsonObject:
    """Build the reply to a server whose question was not answered. Raises `ToolFailed` for methods other than
    elicitation, which have no such reply.
    """
    if method == ELICIT_METHOD:
        return {"action": "cancel"}
    raise ToolFailed(f"{method} was not answered in time", server=server, code=REQUEST_TIMEOUT)


_HINT = "give everything it needs in the arguments"


def find_missing_capabilities(
    result: JsonObject, capabilities: JsonObject, *, supports_input_required: bool
) -> JsonObject | None:
    """Return the missing capabilities, or None if the client has all of them.

    The result is empty if no client could answer: the server's protocol has no such results (`rounds` is
    false), or the question is malformed.
    """
    if not supports_input_required:
        return {}
    asked = result.get("inputRequests")
    if asked is None:
        return None  # the server only wants the request repeated
    if not isinstance(asked, Mapping):
        return {}
    needed: dict[str, Json] = {}
    for entry in cast("JsonObject", asked).values():
        method, params = _parse_question(entry)
        lacks = find_missing_capability(capabilities, method, params)
        if lacks is None:
            continue
        if not lacks:
            return {}
        needed.update(lacks)
    return needed or None


def _parse_question(entry: Json) -> tuple[str, JsonObject]:
    question: JsonObject = entry if isinstance(entry, Mapping) else {}
    method, params = question.get("method"), question.get("params")
    return (method if isinstance(method, str) else "", params if isinstance(params, Mapping) else {})


def fail_for_missing_input(outcome: Outcome, needed: JsonObject) -> Outcome:
    """Return the outcome of a call that failed because its question cannot be answered."""
    kind = ErrorKind.OPERATION_NOT_SUPPORTED
    words = _describe_missing_input(outcome.tool, needed)
    return replace(
        outcome,
        success=False,
        error=kind,
        content=words,
        detail=words,
        advice=get_advice(kind, hint=_HINT),
        result=None,
        metadata={**outcome.metadata, "error_type": kind},
    )


def build_missing_input_error(server: str, method: str, needed: JsonObject) -> JsonRpcError:
    """Build the error of a request, other than a tool call, whose question cannot be answered."""
    words = _describe_missing_input(f"{method} of {server}", needed)
    if needed:
        return JsonRpcError(MISSING_REQUIRED_CLIENT_CAPABILITY, words, {"requiredCapabilities": needed})
    return JsonRpcError(METHOD_NOT_FOUND, words)


def _describe_missing_input(what: str, needed: JsonObject) -> str:
    lacks = f"this client does not offer {', '.join(needed)}" if needed else "there is no way to answer it"
    return f"{what} asks for more input before it answers, and {lacks}"


INPUT_REQUIRED_TYPE: Final = "input_required"
_GATEWAY_QUESTION_KEY: Final = "asked_by_gateway"  # a server could forge a state like ours, but not this


@frozen(kw_only=False)
class CallRound:
    """One round of a call: the client's request and everything needed to run it."""

    request: ClientRequest
    exchange: ClientExchange
    tool_call: ToolCall
    context: CallContext
    request_context: RequestContext
    server: str  # empty if there is no tool of this name

    def with_input(self, answers: JsonObject | None, state: str | None) -> CallRound:
        """Return a copy with exactly these answers and this state for the server."""
        return replace(
            self, request_context=replace(self.request_context, input_responses=answers, request_state=state)
        )


def is_input_required(outcome: Outcome) -> bool:
    """Return whether the outcome is a question of the server."""
    result = outcome.result
    ours = _GATEWAY_QUESTION_KEY in outcome.metadata
    return not ours and result is not None and is_input_required_result(result)


def is_input_required_result(result: JsonObject) -> bool:
    """Return whether a server's result asks for more input."""
    return result.get("resultType") == INPUT_REQUIRED_TYPE


def get_awaited_approval(outcome: Outcome) -> str | None:
    """Return the id of the approval this call waits for, or None."""
    return outcome.pending_id if outcome.error is ErrorKind.AUTHORIZATION_REQUIRED else None


def build_question_outcome(
    call_round: CallRound, result: JsonObject, *, call_id: str, pending_id: str | None = None
) -> Outcome:
    """Build an outcome that asks the client a question."""
    return Outcome(
        call_id=call_id,
        tool=call_round.tool_call.name,
        success=True,
        content=f"{call_round.tool_call.name} waits for an answer",
        reference=call_round.tool_call.reference,
        pending_id=pending_id,
        result=result,
        metadata={_GATEWAY_QUESTION_KEY: True},
    )


_CANNOT_APPROVE_HERE: Final = (
    " This client was not asked: without the right `confirm` its answer does not count as a person's "
    "decision."
)


def add_waiting_note(outcome: Outcome, request: ClientRequest, *, console: str | None) -> Outcome:
    """Add where the call can be approved and what to do afterwards. `console` is the console's address."""
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
    """Return the client's answers, empty if they are not an object."""
    answers = cast("object", request_context.input_responses)
    return cast("JsonObject", answers) if isinstance(answers, Mapping) else {}
