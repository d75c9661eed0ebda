"""The form in which the person behind a client is asked about a call, and the reading of what they say.

The form says exactly what would run, also what looks like a secret. It holds no words of
the server beyond the tool's name, and the arguments a model wrote stand in it as JSON on indented lines: with
everything unseen written out, they can neither hide something, nor look like words of
ours, nor be taken for markup by a client that renders it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, cast

from fingerpost.call.approvals import describe_widened, explain_once_only
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.names import escape_invisible_json
from fingerpost.frozen import frozen
from fingerpost.records import Approval, JsonObject, Pending
from fingerpost.redaction import scrub, scrub_json
from fingerpost.surfaces.gateway.exchange import HANDSHAKE_VERSIONS, ClientRequest

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
