"""Every way a call can end, in the one shape of `Outcome`, with advice for whoever reads it next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fingerpost.call.execution.failure import describe_fault, get_parameter_errors, parse_fault
from fingerpost.call.guidance import get_advice, get_advice_after_decision
from fingerpost.call.hiding import SCOPE_RULE
from fingerpost.catalog import UnavailableTool
from fingerpost.frozen import frozen
from fingerpost.records import (
    Call,
    CallContext,
    CallFault,
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

RESULT_NOT_KEPT: Final = (
    "What was left out could not be kept: the store failed. The call itself was carried out."
)


@frozen(kw_only=False)
class OutcomeBuilder:
    """The endings of one call."""

    tool_call: ToolCall
    context: CallContext

    def build_not_found(self, near: Sequence[str], *, ambiguous: bool) -> Outcome:
        found = (
            f"{self.tool_call.name!r} could mean"
            if ambiguous
            else f"there is no tool {self.tool_call.name!r}; near are"
        )
        content = f"{found}: {', '.join(near)}" if near else f"there is no tool {self.tool_call.name!r}"
        return self.build_failure(self.tool_call.name, ErrorKind.TOOL_NOT_FOUND, content, near=near)

    def build_unavailable(self, absence: UnavailableTool) -> Outcome:
        """The tool is known and not to be had now."""
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
        """The call would fail, as its own server says; it was not made, and nobody was asked about it."""
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
        content = f"{call.tool} is not allowed: {ruling.reason}"
        fix = self._describe_scope_fix() if ruling.rule == SCOPE_RULE else ""
        return self.build_failure(
            call.tool, ErrorKind.DENIED, content, repairs=call.repairs, detail=ruling.rule, fix=fix
        )

    def _describe_scope_fix(self) -> str:
        """No rule forbids it: it lies outside of what the profile or the key of this caller opens."""
        profile = self.context.profile
        ways = [] if profile is None else [f"of the profile {profile} (`fingerpost profiles show {profile}`)"]
        if self.context.scopes or profile is None:
            ways.append("of the caller's key (`fingerpost keys` lists them)")
        return f"Widen the servers, tools or effects {', or '.join(ways)}, if they are yours to change."

    def build_waiting(self, call: Call, pending: Pending) -> Outcome:
        content = f"{call.tool} waits for a person's approval as {pending.pending_id}: {pending.reason}"
        return self.build_failure(
            call.tool,
            ErrorKind.AUTHORIZATION_REQUIRED,
            content,
            details=_describe_authorization(pending),
            repairs=call.repairs,
            pending_id=pending.pending_id,
            hint=f"fingerpost approvals approve {pending.pending_id}",
        )

    def build_not_approved(self, pending: Pending) -> Outcome:
        """What became of a waiting call that was not approved."""
        if pending.decision is Decision.WAITING:
            content = f"{pending.tool} still waits for a person's approval: {pending.reason}"
            return self.build_failure(
                pending.tool,
                ErrorKind.AUTHORIZATION_REQUIRED,
                content,
                details=_describe_authorization(pending),
                pending_id=pending.pending_id,
            )
        if pending.decision is Decision.EXPIRED:
            content = f"nobody decided about {pending.tool} in time; it did not run"
        else:
            why = f": {pending.decision_reason}" if pending.decision_reason else ""
            content = f"{pending.tool} was cancelled by {pending.decided_by or 'a person'}{why}"
        outcome = self.build_failure(pending.tool, ErrorKind.CANCELLED, content)
        return replace(outcome, advice=get_advice_after_decision(pending))

    def build_cancelled(self, call: Call) -> Outcome:
        """A person did not allow a call of this request: nothing is changed another way."""
        content = f"{call.tool} was not called: a person did not allow {self.context.cancelled[0]}"
        return self.build_failure(call.tool, ErrorKind.CANCELLED, content)

    def build_unknown(self, pending: Pending) -> Outcome:
        """It was approved and begun, and the process died under it."""
        content = f"{pending.tool} was begun and never answered; whether it took effect is unknown"
        return self.build_failure(pending.tool, ErrorKind.UNKNOWN, content)

    def build_bad_key(self, problem: str) -> Outcome:
        return self.build_failure(
            self.tool_call.name, ErrorKind.INVALID_PARAMETERS, f"{problem}; nothing was run"
        )

    def build_key_conflict(self, tool: str, at: datetime) -> Outcome:
        """The idempotency key was given for another tool, or with other arguments."""
        content = (
            f"this idempotency key was used at {at:%Y-%m-%d %H:%M:%S} UTC for a call of {tool} with other "
            "arguments, or for another tool; nothing was run"
        )
        fix = "Give each call a key of its own, and the same key only to the very same call."
        return self.build_failure(self.tool_call.name, ErrorKind.INVALID_PARAMETERS, content, fix=fix)

    def build_key_unfinished(self, call: Call, at: datetime, *, running: bool) -> Outcome:
        """The first call under this key has no known outcome."""
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
        """The outcome of the first call under the same idempotency key; it says whose it is."""
        replayed: dict[str, Json] = {"call_id": first.call_id, "at": at.isoformat()}
        return replace(
            first,
            call_id=self.context.call_id,
            reference=self.tool_call.reference,
            attempts=(),  # they were made, and counted, once
            metadata={**first.metadata, "replayed": replayed},
        )

    def build_repeated(self) -> Outcome:
        """The same write stands twice in one turn of a model."""
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
            repairs=asked.repairs,
            attempts=execution.attempts,
            detail=execution.detail,
            code=execution.code,
            data=execution.data,
        )

    def build_input_required(self, execution: Execution, asked: Call) -> Outcome:
        """The server wants to know more before it answers: its words are for the caller alone."""
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

    def build_answered(self, execution: Execution, asked: Call, cut: Digest, *, kept: bool) -> Outcome:
        """`kept`: what was cut can be read on."""
        failed = execution.error is not None
        metadata: dict[str, Json] = {"untrusted": True, "operation": asked.operation, "effect": asked.effect}
        fault = None if not failed else parse_fault(execution.result or {})
        if failed:
            metadata |= {"error_type": execution.error, **describe_fault(fault)}
        if execution.call.tool != asked.tool:
            metadata["answered_by"] = execution.call.tool
        content, content_type = cut.text, cut.content_type
        if not kept and cut.trimmed:
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
            digest=cut,
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
        """`hint` is for whoever calls; `fix` is what a person can do about just this, told to both.

        `about` joins the metadata.
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


def _describe_authorization(pending: Pending) -> JsonObject:
    """What the metadata say of a call that waits for a person."""
    return {
        "requiresAuthorization": True,
        "authorizationKey": pending.operation,
        "reason": pending.reason,
        "pending_id": pending.pending_id,
    }
