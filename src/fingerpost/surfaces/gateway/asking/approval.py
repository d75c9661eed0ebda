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

from fingerpost.call.approvals import describe_widened, why_only_once
from fingerpost.catalog import visible
from fingerpost.catalog.names import visible_json
from fingerpost.frozen import frozen
from fingerpost.records import Approval, JsonObject, Pending
from fingerpost.redaction import scrub, scrub_json
from fingerpost.surfaces.gateway.exchange import HANDSHAKE, ClientRequest

KEY: Final = "fingerpost-approval"  # of our question in `inputRequests`
APPROVE: Final = "approve"
APPROVE_ALL: Final = "approve for this conversation"
REJECT: Final = "reject"

LONGEST_VALUE: Final = 2_000
LONGEST_FORM: Final = 8_000  # of all arguments together
LONGEST_REASON: Final = 500
LONGEST_NAME: Final = 120

_DOES: Final = {"read": "it reads", "write": "it changes things", "destroy": "it destroys things"}


@frozen(kw_only=False)
class Undecided:
    """The person was asked and did not decide: the call goes on waiting."""


def approver(request: ClientRequest) -> str:
    """Who approves, and how: the caller's own user, through this client."""
    client = request.client or "an MCP client"
    return visible(f"{request.principal.name} via {client}")[:LONGEST_NAME]


def form(pending: Pending, request: ClientRequest, *, grant_seconds: float) -> JsonObject:
    """`elicitation/create`: exactly what would run, and what can be said to it."""
    params: dict[str, object] = {
        "message": "\n".join(_lines(pending, request)),
        "requestedSchema": _schema(pending, grant_seconds, longer=_may_widen(pending, request)),
    }
    if request.version >= HANDSHAKE:  # before, there was only one kind
        params["mode"] = "form"
    return cast("JsonObject", params)


def _may_widen(pending: Pending, request: ClientRequest) -> bool:
    """Whether there is a conversation to approve for: this client's session."""
    return why_only_once(pending) is None and pending.conversation == request.session


def _schema(pending: Pending, grant_seconds: float, *, longer: bool) -> JsonObject:
    minutes = max(1, round(grant_seconds / 60))
    wide = (
        f" '{APPROVE_ALL}' also lets {visible(describe_widened(pending))[:400]}, by this caller in this"
        f" session, run for {minutes} min without asking."
    )
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "description": f"'{APPROVE}' runs exactly this call, once.{wide if longer else ''}",
                "enum": [APPROVE, *([APPROVE_ALL] if longer else []), REJECT],
            },
            "reason": {
                "type": "string",
                "title": "Reason",
                "description": "Told to the model when you reject. May be empty.",
                "maxLength": LONGEST_REASON,
            },
        },
        "required": ["decision"],
    }


def _lines(pending: Pending, request: ClientRequest) -> Iterator[str]:
    effect = pending.effect.value
    yield "Fingerpost asks: may this tool run?"
    yield ""
    yield f"    tool: {visible(pending.operation)[:400]}"
    yield f"    effect: {effect} ({_DOES.get(effect, 'unknown')})"
    yield f"    asked for by: {approver(request)}"
    yield f"    why you are asked: {visible(scrub(pending.reason))[:LONGEST_REASON]}"
    yield ""
    yield "Its arguments, as the model wrote them:"
    yield ""
    yield from _arguments(pending)
    yield ""
    yield f"It waits as {pending.pending_id}."


def _arguments(pending: Pending) -> Iterator[str]:
    if not pending.arguments:
        yield "    (none)"
        return
    room = LONGEST_FORM
    left = len(pending.arguments)
    masked = cast("JsonObject", scrub_json(pending.arguments))
    for name, value in pending.arguments.items():
        mark = "" if masked[name] == value else "  (looks like a secret)"
        line = f"{visible(name)[:200]} = {_value(value, pending)}{mark}"
        if len(line) > room:
            yield f"    … and {left} more: `fingerpost approvals show {pending.pending_id}` shows all"
            return
        room -= len(line)
        left -= 1
        yield f"    {line}"


def _value(value: object, pending: Pending) -> str:
    text = visible_json(json.dumps(value, ensure_ascii=False, default=dict))
    if len(text) <= LONGEST_VALUE:
        return text
    left = len(text) - LONGEST_VALUE
    way = f"`fingerpost approvals show {pending.pending_id}` shows all"
    return f"{text[:LONGEST_VALUE]}… (cut here, {left:,} characters are not shown: {way})"


def is_answer(answer: object) -> bool:
    """Whether this is an answer to our form at all."""
    return isinstance(answer, Mapping) and cast("JsonObject", answer).get("action") in (
        "accept",
        "decline",
        "cancel",
    )


def understood(answer: JsonObject, pending: Pending, request: ClientRequest) -> Approval | Undecided:
    """What the person said. Only the very words of the form are a yes."""
    by = approver(request)
    action = answer.get("action")
    content = answer.get("content")
    said: JsonObject = cast("JsonObject", content) if isinstance(content, Mapping) else {}
    if action == "decline":
        return pending.reject(by=by, reason=_reason(said))
    if action != "accept":
        return Undecided()
    match said.get("decision"):
        case "approve":
            return pending.approve(by=by)
        case "approve for this conversation" if _may_widen(pending, request):
            return pending.approve(by=by, for_conversation=True)
        case "reject":
            return pending.reject(by=by, reason=_reason(said))
        case _:
            return Undecided()


def _reason(said: JsonObject) -> str | None:
    reason = said.get("reason")
    return reason.strip()[:LONGEST_REASON] or None if isinstance(reason, str) else None
