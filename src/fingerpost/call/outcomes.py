"""Builds the `Outcome` for every way a call can end, with advice for the model, guidance for the person, and
the message for the model. Also `read_result`, the built-in tool that reads more of a trimmed result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fingerpost.call.arguments.coercion import read_scalar
from fingerpost.call.digest import ResultPage, ResultStore, fence_as_data
from fingerpost.call.execution.failure import describe_fault, get_parameter_errors, parse_fault
from fingerpost.catalog import UnavailableTool, escape_invisible_except
from fingerpost.catalog.tool_names import READ_RESULT
from fingerpost.catalog.words import split_words
from fingerpost.data_files import read_data_table
from fingerpost.frozen import frozen
from fingerpost.policy.rules import SCOPE_RULE
from fingerpost.records import (
    Attempt,
    Call,
    CallContext,
    CallFault,
    Choice,
    Decision,
    Digest,
    ErrorKind,
    Execution,
    Json,
    JsonObject,
    Outcome,
    ParameterError,
    Pending,
    Repair,
    Ruling,
    ToolCall,
)
from fingerpost.redaction import scrub
from fingerpost.servers.requests import FAULT_META_KEY

_MAX_HINT_LENGTH: Final = 400
_MAX_REASON_LENGTH: Final = 2_000
_MAX_DETAIL_LENGTH: Final = 600
_MAX_SUGGESTIONS: Final = 5
_MAX_TRIED: Final = 8

# By the kind of error: `advice` for the model; `description`, `can_change`, `rephrase` for the person.
_TEXTS: Final = read_data_table("fingerpost.call", "failures.toml")


def get_advice(error: ErrorKind, *, signature: str = "", near: Sequence[str] = (), hint: str = "") -> str:
    """Return what the model should do after this error."""
    sentences = [_TEXTS[error]["advice"]]
    if near:
        sentences.append(
            f"Nearest: {', '.join(_sanitize_line(name, 100) for name in near[:_MAX_SUGGESTIONS])}."
        )
    if signature:
        sentences.append(f"Its signature: {_sanitize_line(signature, 2_000)}")
    if hint:
        sentences.append(_sanitize_line(hint, _MAX_HINT_LENGTH))
    return " ".join(sentences)


def get_advice_after_decision(pending: Pending) -> str:
    """Return what the model should do after a person did not approve its call."""
    if pending.decision is Decision.EXPIRED:
        return (
            "The call was not approved in time, so it did not run. Do not ask for it again and do "
            "not do it another way; tell the person what was not done."
        )
    reason = _sanitize_line(pending.decision_reason or "", _MAX_REASON_LENGTH)
    reason_sentence = f'Their reason: "{reason}".' if reason else "They gave no reason."
    return (
        f"{_sanitize_line(pending.decided_by or 'A person', 100)} rejected "
        f"this call, so it did not run. {reason_sentence} "
        "Do not ask for it again and do not do it another way; go on without it, or tell the person what "
        "cannot be done without it."
    )


@frozen
class FailureGuidance:
    """Guidance for a person after all attempts failed. `technical` is shown only on request."""

    summary: str
    tried: tuple[str, ...]
    can_change: tuple[str, ...]
    rephrase: str
    technical: tuple[str, ...] = ()

    def render(self, *, technical: bool = False) -> str:
        """Return the guidance as a short message."""
        lines = [self.summary] if self.summary else []
        for heading, items in (("What was tried:", self.tried), ("What you can do:", self.can_change)):
            if items:
                lines += ["", heading, *(f"- {item}" for item in items)]
        if self.rephrase:
            lines += ["", self.rephrase]
        if technical and self.technical:
            lines += ["", "Technical details:", *(f"- {item}" for item in self.technical)]
        return "\n".join(lines).lstrip("\n")


def build_guidance(
    attempts: Sequence[Attempt],
    error: ErrorKind,
    *,
    tool: str = "",
    detail: str = "",
    hint: str = "",
    fix: str = "",
    reason: str = "",
) -> FailureGuidance:
    """Build guidance for a person after this error and these attempts.

    A specific `fix` replaces the general advice for this kind of error. With a known `reason` there is no
    advice on how to rephrase the request.
    """
    if fix:
        return FailureGuidance(
            summary="",
            tried=_list_tried(attempts),
            can_change=(_sanitize_line(fix, _MAX_HINT_LENGTH),),
            rephrase="",
            technical=_list_technical(attempts, error, detail, hint),
        )
    kinds = dict.fromkeys([error, *(one.error for one in attempts if one.error is not None)])
    changes = dict.fromkeys(change for kind in kinds for change in _TEXTS[kind]["can_change"])
    return FailureGuidance(
        summary=_summarise(attempts, error, tool, reason),
        tried=_list_tried(attempts),
        can_change=tuple(changes)[:4],
        rephrase="" if reason else _TEXTS[error].get("rephrase", ""),
        technical=_list_technical(attempts, error, detail, hint),
    )


_PATH_ERROR_MESSAGES: Final[Mapping[str, str]] = {
    "FileNotFound": "{path} does not exist",
    "PermissionDenied": "{path} may not be opened: the system does not permit it",
    "FileExists": "{path} exists already",
}


def explain_to_person(outcome: Outcome) -> str:
    """Return a readable reason for a failed call, or an empty text if only the server's text is known.

    Built-in servers write readable errors, and system errors about paths are recognised.
    """
    meta = (outcome.result or {}).get("_meta")
    if outcome.metadata.get("untrusted") is not True or (
        isinstance(meta, Mapping) and FAULT_META_KEY in meta
    ):
        return outcome.content
    known = _PATH_ERROR_MESSAGES.get(str(outcome.metadata.get("error_type", "")), "")
    path = _sanitize_line(str(outcome.metadata.get("attemptedPath", "")), _MAX_HINT_LENGTH)
    return known.format(path=path) if path else ""


def get_failure_reason(outcome: Outcome) -> str:
    """Return why the call failed, on one line: the tool's own message, or why it was not called.

    An empty text if the connection failed: raw errors are technical details.
    """
    if outcome.result is None and outcome.attempts:
        return ""
    wrong = "; ".join(one.message.rstrip(".") for one in outcome.parameter_errors)
    return _sanitize_line(wrong or explain_to_person(outcome) or outcome.content, _MAX_DETAIL_LENGTH)


def format_tool_name(key: str) -> str:
    """Return a readable name: `perplexity/perplexity_research` becomes `perplexity research`."""
    server, _, name = key.partition("/")
    words = list(split_words(name or server))
    if not words:
        return _sanitize_line(key, 60) or "the tool"
    readable = " ".join(words)
    return _sanitize_line(
        readable if not name or split_words(server)[:1] == tuple(words[:1]) else f"{readable} ({server})", 60
    )


def _summarise(attempts: Sequence[Attempt], error: ErrorKind, tool: str, reason: str) -> str:
    tools = dict.fromkeys(one.tool for one in attempts)
    name = format_tool_name(tool or next(iter(tools), ""))
    if len(tools) > 1:
        said = f" {name}: {reason}" if reason else ""
        return f"This failed: {len(tools)} tools were tried and none succeeded.{said}"
    return (
        f"{name} failed: {reason}" if reason else f"{name} could not be used: {_TEXTS[error]['description']}."
    )


def _list_tried(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return one line per tool, however often it was tried."""
    by_tool: dict[str, list[Attempt]] = {}
    for one in attempts:
        by_tool.setdefault(one.tool, []).append(one)
    lines: list[str] = []
    for tool, tries in by_tool.items():
        last = tries[-1]
        outcome = "it returned nothing usable" if last.error is None else _TEXTS[last.error]["description"]
        times = "" if len(tries) == 1 else f", {len(tries)} times"
        lines.append(f"{format_tool_name(tool)}{times}: {outcome}{_format_attempt_duration(last)}")
    more = len(lines) - _MAX_TRIED
    return tuple(lines[:_MAX_TRIED]) + ((f"and {more} more",) if more > 0 else ())


def _format_attempt_duration(attempt: Attempt) -> str:
    seconds = attempt.milliseconds / 1000
    return f" (after {seconds:.0f} s)" if seconds >= 1 else ""


def _list_technical(attempts: Sequence[Attempt], error: ErrorKind, detail: str, hint: str) -> tuple[str, ...]:
    lines = [
        f"{_sanitize_line(one.tool, 200)}, attempt {one.number}: {one.error or 'no error'} "
        f"after {one.milliseconds:.0f} ms"
        + (f": {_sanitize_line(one.detail, _MAX_DETAIL_LENGTH)}" if one.detail else "")
        for one in attempts
    ]
    lines.append(f"{error}" + (f": {_sanitize_line(detail, _MAX_DETAIL_LENGTH)}" if detail else ""))
    if hint:
        lines.append(_sanitize_line(hint, _MAX_HINT_LENGTH))
    return tuple(lines)


def _sanitize_line(text: str, max_length: int) -> str:
    """Return the text on one line, without secrets and invisible characters."""
    line = escape_invisible_except(" ".join(scrub(text[: max_length * 8]).split()))
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


RESULT_NOT_KEPT: Final = (
    "The part that was cut could not be stored because the store failed. The call itself was made."
)


@frozen(kw_only=False)
class OutcomeBuilder:
    """Builds the outcomes of one call."""

    tool_call: ToolCall
    context: CallContext

    def build_not_found(self, near: Sequence[str], *, ambiguous: bool) -> Outcome:
        found = (
            f"{self.tool_call.name!r} could mean"
            if ambiguous
            else f"there is no tool {self.tool_call.name!r}; similar"
        )
        content = f"{found}: {', '.join(near)}" if near else f"there is no tool {self.tool_call.name!r}"
        return self.build_failure(self.tool_call.name, ErrorKind.TOOL_NOT_FOUND, content, near=near)

    def build_unavailable(self, absence: UnavailableTool) -> Outcome:
        """Build the outcome of a tool that is known but not available now."""
        return self.build_failure(
            absence.tool, ErrorKind.UNAVAILABLE, absence.message, detail=absence.reason, fix=absence.fix
        )

    def build_invalid(
        self, tool: str, errors: tuple[ParameterError, ...], repairs: tuple[Repair, ...], signature: str
    ) -> Outcome:
        content = "; ".join(error.message.rstrip(".") for error in errors) + f". The tool takes: {signature}"
        return self.build_failure(
            tool,
            ErrorKind.INVALID_PARAMETERS,
            content,
            signature=signature,
            parameter_errors=errors,
            repairs=repairs,
        )

    def build_infeasible(self, call: Call, fault: CallFault) -> Outcome:
        """Build the outcome of a call that was not made, because its server says that it would fail."""
        wrong = get_parameter_errors(fault)
        return self.build_failure(
            call.tool,
            ErrorKind.INVALID_PARAMETERS if wrong else ErrorKind.EXECUTION_FAILED,
            wrong[0].message if wrong else fault.message,
            details=describe_fault(fault),
            parameter_errors=wrong,
            repairs=call.repairs,
        )

    def build_denied(self, call: Call, ruling: Ruling) -> Outcome:
        if ruling.rule == SCOPE_RULE:
            content, fix = f"{call.tool} is not allowed: {ruling.reason}", self._describe_scope_fix()
        else:
            numbered = ruling.rule.startswith("rule ")
            rule = ruling.rule if numbered else f"the rule {ruling.rule!r}"
            content = f"{call.tool} is not permitted by {rule}: {ruling.reason}"
            fix = f"Ask for something that {rule} permits, or change the rule, if you may."
        return self.build_failure(
            call.tool, ErrorKind.DENIED, content, repairs=call.repairs, detail=ruling.rule, fix=fix
        )

    def _describe_scope_fix(self) -> str:
        """Return the fix for a call that is outside the scope of the caller's profile or key."""
        profile = self.context.profile
        ways = [] if profile is None else [f"of the profile {profile} (`fingerpost profiles show {profile}`)"]
        if self.context.scopes or profile is None:
            ways.append("of the caller's key (`fingerpost keys` lists them)")
        return f"Widen the servers, tools or effects {', or '.join(ways)}, if you may change them."

    def build_waiting(self, call: Call, pending: Pending) -> Outcome:
        content = f"{call.tool} needs a person's approval ({pending.pending_id}): {pending.reason}"
        return self.build_failure(
            call.tool,
            ErrorKind.AUTHORIZATION_REQUIRED,
            content,
            details=_build_authorization_metadata(pending),
            repairs=call.repairs,
            pending_id=pending.pending_id,
            hint=f"fingerpost approvals approve {pending.pending_id}",
        )

    def build_not_approved(self, pending: Pending) -> Outcome:
        """Build the outcome of a pending call that was not approved."""
        if pending.decision is Decision.WAITING:
            content = f"{pending.tool} still needs a person's approval: {pending.reason}"
            return self.build_failure(
                pending.tool,
                ErrorKind.AUTHORIZATION_REQUIRED,
                content,
                details=_build_authorization_metadata(pending),
                pending_id=pending.pending_id,
            )
        if pending.decision is Decision.EXPIRED:
            content = f"{pending.tool} was not approved in time; it did not run"
        else:
            why = f": {pending.decision_reason}" if pending.decision_reason else ""
            content = f"{pending.tool} was rejected by {pending.decided_by or 'a person'}{why}"
        outcome = self.build_failure(pending.tool, ErrorKind.CANCELLED, content)
        return replace(outcome, advice=get_advice_after_decision(pending))

    def build_cancelled(self, call: Call) -> Outcome:
        """Build the outcome of a call refused because a person rejected another call of the request."""
        content = f"{call.tool} was not called: a person did not allow {self.context.cancelled[0]}"
        return self.build_failure(call.tool, ErrorKind.CANCELLED, content)

    def build_unknown(self, pending: Pending) -> Outcome:
        """Build the outcome of an approved call that was started by a process that died."""
        content = f"{pending.tool} was started and never answered; whether it took effect is unknown"
        return self.build_failure(pending.tool, ErrorKind.UNKNOWN, content)

    def build_bad_key(self, problem: str) -> Outcome:
        return self.build_failure(
            self.tool_call.name, ErrorKind.INVALID_PARAMETERS, f"{problem}; nothing was run"
        )

    def build_key_conflict(self, tool: str, at: datetime) -> Outcome:
        """Build the outcome of a call whose idempotency key was used for another tool or other arguments."""
        content = (
            f"this idempotency key was used at {at:%Y-%m-%d %H:%M:%S} UTC for a call of {tool} with other "
            "arguments, or for another tool; nothing was run"
        )
        fix = "Give each call a key of its own, and the same key only to the very same call."
        return self.build_failure(self.tool_call.name, ErrorKind.INVALID_PARAMETERS, content, fix=fix)

    def build_key_unfinished(self, call: Call, at: datetime, *, running: bool) -> Outcome:
        """Build the outcome if the first call under this key has no known outcome."""
        how = (
            "has not ended yet, or was interrupted"
            if running
            else "was interrupted, so whether it took effect is unknown"
        )
        content = (
            f"the call of {call.tool} made under this idempotency key at {at:%Y-%m-%d %H:%M:%S} UTC {how}; "
            "nothing was run now"
        )
        fix = "Check what the first call did. To make it once more, use a new key."
        return self.build_failure(call.tool, ErrorKind.UNKNOWN, content, fix=fix)

    def build_replayed(self, first: Outcome, *, at: datetime) -> Outcome:
        """Return the outcome of the first call with the same idempotency key, marked as such."""
        replayed: dict[str, Json] = {"call_id": first.call_id, "at": at.isoformat()}
        return replace(
            first,
            call_id=self.context.call_id,
            reference=self.tool_call.reference,
            attempts=(),  # the first call reported them already
            metadata={**first.metadata, "replayed": replayed},
        )

    def build_repeated(self) -> Outcome:
        """Build the outcome of a write that appears twice in one turn of a model."""
        content = (
            f"the same call of {self.tool_call.name} stands twice in this turn; this second one was not run"
        )
        return self.build_failure(self.tool_call.name, ErrorKind.DUPLICATE, content)

    def build_dry_run(self, call: Call, ruling: Ruling) -> Outcome:
        arguments = json.dumps(call.arguments, ensure_ascii=False, default=dict)
        content = f"would call {call.tool} with {arguments}; policy: {ruling.verdict} ({ruling.reason})"
        metadata: dict[str, Json] = {
            "dry_run": True,
            "arguments": call.arguments,
            "effect": call.effect,
            "verdict": ruling.verdict,
            "rule": ruling.rule,
            "reason": ruling.reason,
        }
        return Outcome(
            call_id=self.context.call_id,
            tool=call.tool,
            success=True,
            content=content,
            reference=self.tool_call.reference,
            repairs=call.repairs,
            metadata=metadata,
        )

    def build_failed(self, execution: Execution, asked: Call) -> Outcome:
        error = execution.error or ErrorKind.EXECUTION_FAILED
        return self.build_failure(
            asked.tool,
            error,
            execution.detail or f"{asked.tool} failed",
            hint=execution.hint,
            fix=execution.fix,
            repairs=asked.repairs,
            attempts=execution.attempts,
            detail=execution.detail,
            code=execution.code,
            data=execution.data,
        )

    def build_input_required(self, execution: Execution, asked: Call) -> Outcome:
        """Build the outcome if the server asks for more input. Its text is for the caller only."""
        metadata: dict[str, Json] = {"untrusted": True, "operation": asked.operation, "effect": asked.effect}
        return Outcome(
            call_id=self.context.call_id,
            tool=execution.call.tool,
            success=True,
            content=f"{execution.call.tool} asks for more input",
            reference=self.tool_call.reference,
            repairs=asked.repairs,
            attempts=execution.attempts,
            result=execution.result,
            metadata=metadata,
        )

    def build_answered(self, execution: Execution, asked: Call, digest: Digest, *, kept: bool) -> Outcome:
        """Build the outcome of an answered call, result or error. `kept`: the full result is stored."""
        failed = execution.error is not None
        metadata: dict[str, Json] = {"untrusted": True, "operation": asked.operation, "effect": asked.effect}
        fault = None if not failed else parse_fault(execution.result or {})
        if failed:
            metadata |= {"error_type": execution.error, **describe_fault(fault)}
        if execution.call.tool != asked.tool:
            metadata["answered_by"] = execution.call.tool
        content, content_type = digest.text, digest.content_type
        if not kept and digest.trimmed:
            metadata["rest"] = RESULT_NOT_KEPT
            content, content_type = f"{content}\n[{RESULT_NOT_KEPT}]", "text"
        last = execution.attempts[-1] if execution.attempts else None
        if last is not None and last.cached:
            metadata["cached"] = {"age_seconds": round(last.age_ms / 1000, 1)}
        return Outcome(
            call_id=self.context.call_id,
            tool=execution.call.tool,
            success=not failed,
            content=content,
            content_type=content_type,
            reference=self.tool_call.reference,
            error=execution.error,
            advice=get_advice(execution.error, hint=execution.hint) if execution.error is not None else "",
            detail=execution.detail,
            repairs=(*asked.repairs, *(execution.call.repairs if execution.call is not asked else ())),
            parameter_errors=get_parameter_errors(fault),
            attempts=execution.attempts,
            digest=digest,
            result=execution.result,
            metadata=metadata,
        )

    def build_failure(
        self,
        tool: str,
        error: ErrorKind,
        content: str,
        *,
        near: Sequence[str] = (),
        signature: str = "",
        hint: str = "",
        fix: str = "",
        details: JsonObject | None = None,
        **more: Any,
    ) -> Outcome:
        """Build a failed outcome. `hint` is for the caller; `fix` says what a person can do and goes to both.

        `details` is added to the metadata.
        """
        metadata: dict[str, Json] = {"error_type": error, **(details or {})}
        if fix:
            metadata["fix"] = fix
        return Outcome(
            call_id=self.context.call_id,
            tool=tool,
            success=False,
            content=content,
            reference=self.tool_call.reference,
            error=error,
            advice=get_advice(error, signature=signature, near=near, hint=hint or fix),
            metadata=metadata,
            **more,
        )


def _build_authorization_metadata(pending: Pending) -> JsonObject:
    """Return the metadata of a call that waits for approval."""
    return {
        "requiresAuthorization": True,
        "authorizationKey": pending.operation,
        "reason": pending.reason,
        "pending_id": pending.pending_id,
    }


_WRONG_CHOICE_ERRORS: Final = frozenset(
    {ErrorKind.EXECUTION_FAILED, ErrorKind.CANCELLED, ErrorKind.OPERATION_NOT_SUPPORTED}
)


def build_choice_sample(
    request: str, outcome: Outcome, *, at: datetime, conversation: str | None = None
) -> Choice | None:
    """Return what can be learned from this outcome about the request, or None."""
    if not request.strip() or outcome.pending_id is not None:
        return None
    if not outcome.success and outcome.error not in _WRONG_CHOICE_ERRORS:
        return None
    return Choice(
        request=request, tool=outcome.tool, worked=outcome.success, at=at, conversation=conversation
    )


def build_tool_message(outcome: Outcome) -> dict[str, Json]:
    """Return the outcome in the OpenAI format (`role: tool`)."""
    if outcome.success:
        note = build_cached_note(outcome)
        content = fence_as_data(outcome.content, outcome.tool) + (f"\n{note}" if note else "")
    else:
        # The reason may quote the tool or its server, so it is marked as data; the advice is trusted.
        content = f"{outcome.error}: {fence_as_data(outcome.content, outcome.tool)}\n{outcome.advice}"
    return {"role": "tool", "tool_call_id": outcome.reference or outcome.call_id, "content": content}


def build_cached_note(outcome: Outcome) -> str:
    """Return a note that the result is cached and how old it is, or an empty text."""
    match outcome.metadata.get("cached"):
        case {"age_seconds": float(age)}:
            return f"This result is {age:g} s old: it comes from the cache."
        case _:
            return ""


READ_RESULT_TOOL_NAME: Final = READ_RESULT
MAX_PAGES: Final = 8  # pages that a model may read for one request
READ_RESULT_TOOL: Final[JsonObject] = {
    "name": READ_RESULT_TOOL_NAME,
    "description": "Read more of a result that was cut. Give the handle named at the end of the cut text.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "For example res_abc…, from the end of the cut text"},
            "page": {"type": "integer", "minimum": 1, "default": 1},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}
READ_RESULT_FUNCTION: Final[JsonObject] = {  # in the OpenAI format
    "type": "function",
    "function": {
        "name": READ_RESULT_TOOL_NAME,
        "description": READ_RESULT_TOOL["description"],
        "parameters": READ_RESULT_TOOL["inputSchema"],
    },
}
READ_RESULT_SIGNATURE: Final = "read_result(handle: string, page?: integer = 1)"


async def run_read_result(results: ResultStore, tool_call: ToolCall, context: CallContext) -> Outcome:
    """Return one page of a stored result, or why there is none."""
    outcomes = OutcomeBuilder(tool_call, context)
    handle, number = tool_call.arguments.get("handle"), _parse_page_number(tool_call.arguments.get("page", 1))
    if not isinstance(handle, str) or number < 1:
        content = f"it takes {READ_RESULT_SIGNATURE}"
        return outcomes.build_failure(
            READ_RESULT_TOOL_NAME, ErrorKind.INVALID_PARAMETERS, content, signature=READ_RESULT_SIGNATURE
        )
    found = await results.read_page(handle, page=number, caller=context.caller)
    if found is None:
        content = f"there is no result {handle} with page {number}"
        return outcomes.build_failure(READ_RESULT_TOOL_NAME, ErrorKind.EXECUTION_FAILED, content)
    return _build_page_outcome(tool_call, context, found)


def _parse_page_number(page: Json) -> int:
    """Return the page number, which many models write as text. 0 if it is no number."""
    if isinstance(page, str):
        reading = read_scalar("integer", page)
        page = None if reading is None else reading.value
    return page if isinstance(page, int) and not isinstance(page, bool) else 0


def _build_page_outcome(tool_call: ToolCall, context: CallContext, found: ResultPage) -> Outcome:
    metadata: dict[str, Json] = {"page": found.page, "pages": found.pages, "untrusted": True}
    if found.private:
        metadata["private"] = True
    return Outcome(
        call_id=context.call_id,
        tool=READ_RESULT_TOOL_NAME,
        success=True,
        content=found.text,
        reference=tool_call.reference,
        metadata=metadata,
    )
