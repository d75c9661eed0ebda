"""Every way a call can end, in the one shape of `Outcome`, with advice for whoever reads it next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fingerpost.call.execution.failure import facts, fault_of, parameter_errors
from fingerpost.call.guidance import advice, advice_after_decision
from fingerpost.call.hiding import SCOPE
from fingerpost.catalog import Absence
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

NOT_KEPT: Final = "What was left out could not be kept: the store failed. The call itself was carried out."


@frozen(kw_only=False)
class Endings:
    """The endings of one call."""

    wish: ToolCall
    context: CallContext

    def not_found(self, near: Sequence[str], *, ambiguous: bool) -> Outcome:
        found = (
            f"{self.wish.name!r} could mean"
            if ambiguous
            else f"there is no tool {self.wish.name!r}; near are"
        )
        content = f"{found}: {', '.join(near)}" if near else f"there is no tool {self.wish.name!r}"
        return self.failure(self.wish.name, ErrorKind.TOOL_NOT_FOUND, content, near=near)

    def away(self, absence: Absence) -> Outcome:
        """The tool is known and not to be had now."""
        return self.failure(
            absence.tool, ErrorKind.UNAVAILABLE, absence.told, detail=absence.reason, fix=absence.fix
        )

    def invalid(
        self, tool: str, errors: tuple[ParameterError, ...], repairs: tuple[Repair, ...], signature: str
    ) -> Outcome:
        content = "; ".join(error.message.rstrip(".") for error in errors) + f". The tool takes: {signature}"
        return self.failure(
            tool,
            ErrorKind.INVALID_PARAMETERS,
            content,
            signature=signature,
            parameter_errors=errors,
            repairs=repairs,
        )

    def infeasible(self, call: Call, fault: CallFault) -> Outcome:
        """The call would fail, as its own server says; it was not made, and nobody was asked about it."""
        wrong = parameter_errors(fault)
        return self.failure(
            call.tool,
            ErrorKind.INVALID_PARAMETERS if wrong else ErrorKind.EXECUTION_FAILED,
            wrong[0].message if wrong else fault.message,
            about=facts(fault),
            parameter_errors=wrong,
            repairs=call.repairs,
        )

    def denied(self, call: Call, ruling: Ruling) -> Outcome:
        content = f"{call.tool} is not allowed: {ruling.reason}"
        fix = self._widening() if ruling.rule == SCOPE else ""
        return self.failure(
            call.tool, ErrorKind.DENIED, content, repairs=call.repairs, detail=ruling.rule, fix=fix
        )

    def _widening(self) -> str:
        """No rule forbids it: it lies outside of what the profile or the key of this caller opens."""
        profile = self.context.profile
        ways = [] if profile is None else [f"of the profile {profile} (`fingerpost profiles show {profile}`)"]
        if self.context.scopes or profile is None:
            ways.append("of the caller's key (`fingerpost keys` lists them)")
        return f"Widen the servers, tools or effects {', or '.join(ways)}, if they are yours to change."

    def waiting(self, call: Call, pending: Pending) -> Outcome:
        content = f"{call.tool} waits for a person's approval as {pending.pending_id}: {pending.reason}"
        return self.failure(
            call.tool,
            ErrorKind.AUTHORIZATION_REQUIRED,
            content,
            about=_authorization(pending),
            repairs=call.repairs,
            pending_id=pending.pending_id,
            hint=f"fingerpost approvals approve {pending.pending_id}",
        )

    def undecided(self, pending: Pending) -> Outcome:
        """What became of a waiting call that was not approved."""
        if pending.decision is Decision.WAITING:
            content = f"{pending.tool} still waits for a person's approval: {pending.reason}"
            return self.failure(
                pending.tool,
                ErrorKind.AUTHORIZATION_REQUIRED,
                content,
                about=_authorization(pending),
                pending_id=pending.pending_id,
            )
        if pending.decision is Decision.EXPIRED:
            content = f"nobody decided about {pending.tool} in time; it did not run"
        else:
            why = f": {pending.decision_reason}" if pending.decision_reason else ""
            content = f"{pending.tool} was cancelled by {pending.decided_by or 'a person'}{why}"
        outcome = self.failure(pending.tool, ErrorKind.CANCELLED, content)
        return replace(outcome, advice=advice_after_decision(pending))

    def cancelled_already(self, call: Call) -> Outcome:
        """A person did not allow a call of this request: nothing is changed another way."""
        content = f"{call.tool} was not called: a person did not allow {self.context.cancelled[0]}"
        return self.failure(call.tool, ErrorKind.CANCELLED, content)

    def unknown(self, pending: Pending) -> Outcome:
        """It was approved and begun, and the process died under it."""
        content = f"{pending.tool} was begun and never answered; whether it took effect is unknown"
        return self.failure(pending.tool, ErrorKind.UNKNOWN, content)

    def bad_key(self, problem: str) -> Outcome:
        return self.failure(self.wish.name, ErrorKind.INVALID_PARAMETERS, f"{problem}; nothing was run")

    def key_of_another_call(self, tool: str, at: datetime) -> Outcome:
        """The idempotency key was given for another tool, or with other arguments."""
        content = (
            f"this idempotency key was used at {at:%Y-%m-%d %H:%M:%S} UTC for a call of {tool} with other "
            "arguments, or for another tool; nothing was run"
        )
        fix = "Give each call a key of its own, and the same key only to the very same call."
        return self.failure(self.wish.name, ErrorKind.INVALID_PARAMETERS, content, fix=fix)

    def key_without_end(self, call: Call, at: datetime, *, running: bool) -> Outcome:
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
        return self.failure(call.tool, ErrorKind.UNKNOWN, content, fix=fix)

    def replayed(self, first: Outcome, *, at: datetime) -> Outcome:
        """The outcome of the first call under the same idempotency key; it says whose it is."""
        replayed: dict[str, Json] = {"call_id": first.call_id, "at": at.isoformat()}
        return replace(
            first,
            call_id=self.context.call_id,
            reference=self.wish.reference,
            attempts=(),  # they were made, and counted, once
            metadata={**first.metadata, "replayed": replayed},
        )

    def repeated(self) -> Outcome:
        """The same write stands twice in one turn of a model."""
        content = f"the same call of {self.wish.name} stands twice in this turn; this second one was not run"
        return self.failure(self.wish.name, ErrorKind.DUPLICATE, content)

    def dry_run(self, call: Call, ruling: Ruling) -> Outcome:
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
            reference=self.wish.reference,
            repairs=call.repairs,
            metadata=metadata,
        )

    def failed(self, execution: Execution, asked: Call) -> Outcome:
        error = execution.error or ErrorKind.EXECUTION_FAILED
        return self.failure(
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

    def asks_for_input(self, execution: Execution, asked: Call) -> Outcome:
        """The server wants to know more before it answers: its words are for the caller alone."""
        metadata: dict[str, Json] = {"untrusted": True, "operation": asked.operation, "effect": asked.effect}
        return Outcome(
            call_id=self.context.call_id,
            tool=execution.call.tool,
            success=True,
            content=f"{execution.call.tool} asks for more input",
            reference=self.wish.reference,
            repairs=asked.repairs,
            attempts=execution.attempts,
            result=execution.result,
            metadata=metadata,
        )

    def answered(self, execution: Execution, asked: Call, cut: Digest, *, kept: bool) -> Outcome:
        """`kept`: what was cut can be read on."""
        failed = execution.error is not None
        metadata: dict[str, Json] = {"untrusted": True, "operation": asked.operation, "effect": asked.effect}
        fault = None if not failed else fault_of(execution.result or {})
        if failed:
            metadata |= {"error_type": execution.error, **facts(fault)}
        if execution.call.tool != asked.tool:
            metadata["answered_by"] = execution.call.tool
        content, content_type = cut.text, cut.content_type
        if not kept and cut.trimmed:
            metadata["rest"] = NOT_KEPT
            content, content_type = f"{content}\n[{NOT_KEPT}]", "text"
        last = execution.attempts[-1] if execution.attempts else None
        if last is not None and last.cached:
            metadata["cached"] = {"age_seconds": round(last.age_ms / 1000, 1)}
        return Outcome(
            call_id=self.context.call_id,
            tool=execution.call.tool,
            success=not failed,
            content=content,
            content_type=content_type,
            reference=self.wish.reference,
            error=execution.error,
            advice=advice(execution.error, hint=execution.hint) if execution.error is not None else "",
            detail=execution.detail,
            repairs=(*asked.repairs, *(execution.call.repairs if execution.call is not asked else ())),
            parameter_errors=parameter_errors(fault),
            attempts=execution.attempts,
            digest=cut,
            result=execution.result,
            metadata=metadata,
        )

    def failure(
        self,
        tool: str,
        error: ErrorKind,
        content: str,
        *,
        near: Sequence[str] = (),
        signature: str = "",
        hint: str = "",
        fix: str = "",
        about: JsonObject | None = None,
        **more: Any,
    ) -> Outcome:
        """`hint` is for whoever calls; `fix` is what a person can do about just this, told to both.

        `about` joins the metadata.
        """
        metadata: dict[str, Json] = {"error_type": error, **(about or {})}
        if fix:
            metadata["fix"] = fix
        return Outcome(
            call_id=self.context.call_id,
            tool=tool,
            success=False,
            content=content,
            reference=self.wish.reference,
            error=error,
            advice=advice(error, signature=signature, near=near, hint=hint or fix),
            metadata=metadata,
            **more,
        )


def _authorization(pending: Pending) -> JsonObject:
    """What the metadata say of a call that waits for a person."""
    return {
        "requiresAuthorization": True,
        "authorizationKey": pending.operation,
        "reason": pending.reason,
        "pending_id": pending.pending_id,
    }
