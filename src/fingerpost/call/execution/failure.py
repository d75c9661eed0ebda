"""The failure of one attempt: its kind, whether the call may have taken effect, and when to retry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from fingerpost.call.execution.upstream import is_input_required
from fingerpost.errors import (
    CallError,
    FingerpostError,
    LimitReached,
    ServerReplyInvalid,
    ServerUnavailable,
    StoreError,
    ToolFailed,
    ToolTimeout,
)
from fingerpost.frozen import frozen
from fingerpost.records import (
    Call,
    CallFault,
    Effect,
    ErrorKind,
    Json,
    JsonObject,
    ParameterError,
    ParameterFault,
    RetryRule,
    to_valid_text,
)
from fingerpost.redaction import scrub
from fingerpost.servers.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNKNOWN_OUTCOME,
    RequestNotExecuted,
    ServerBusy,
    SessionForgotten,
    SessionRejected,
    SignInRequired,
)
from fingerpost.servers.per_caller import ServerRequestUnsupported
from fingerpost.servers.requests import FAULT_META_KEY

MAX_DETAIL_LENGTH = 4000
MAY_HAVE_TAKEN_EFFECT = "it may have taken effect: check before repeating it"


@frozen
class Failure:
    """The reason why an attempt gave no result."""

    kind: ErrorKind
    detail: str
    hint: str = ""
    fix: str = ""  # what a person can do, if we know exactly
    effect_possible: bool = False  # the call may have taken effect
    cause: ErrorKind | None = None  # the error, if `kind` only says that the effect is unknown
    transient: bool = False  # a retry may succeed
    retry_after: float | None = None  # seconds that the server asks to wait
    answered: bool = False  # the server works: it is the tool's error
    server_fault: bool = False  # counts against the server's breaker
    result: JsonObject | None = None  # the tool's full error result
    code: int | None = None  # the server's error code
    data: Json = None


class AttemptRefused(Exception):
    """An attempt is not made. Contains the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def explain_exception(error: Exception, call: Call, *, sent: bool) -> Failure:
    """Convert an exception to a failure."""
    failure = _explain_after_sending(error) if sent else _explain_before_sending(error)
    failure = replace(failure, cause=failure.kind)
    if sent and call.effect is not Effect.READ and _is_outcome_open(error):
        failure = replace(failure, kind=ErrorKind.UNKNOWN, hint=MAY_HAVE_TAKEN_EFFECT, effect_possible=True)
    elif sent and call.effect is not Effect.READ and failure.kind is ErrorKind.EXECUTION_FAILED:
        failure = replace(failure, effect_possible=True)
    return failure


def _explain_before_sending(error: Exception) -> Failure:
    ours = isinstance(error, FingerpostError)
    passes = ours and not isinstance(error, SignInRequired | CallError | StoreError | ToolTimeout)
    return Failure(
        kind=ErrorKind.TIMEOUT if isinstance(error, ToolTimeout) else ErrorKind.UNAVAILABLE,
        detail=_format_error(error),
        hint=_get_hint(error),
        fix=_get_hint(error) if isinstance(error, CallError) else "",
        transient=passes,
        server_fault=passes and not isinstance(error, SessionForgotten),
    )


def _explain_after_sending(error: Exception) -> Failure:
    detail, hint = _format_error(error), _get_hint(error)
    if isinstance(error, ToolTimeout):
        return Failure(kind=ErrorKind.TIMEOUT, detail=detail, transient=True, server_fault=True)
    if isinstance(error, ServerUnavailable):
        passes = not isinstance(error, SignInRequired)
        return Failure(
            kind=ErrorKind.UNAVAILABLE,
            detail=detail,
            hint=hint,
            transient=passes,
            retry_after=error.retry_after if isinstance(error, ServerBusy) else None,
            server_fault=passes and not isinstance(error, SessionForgotten),
        )
    if isinstance(error, ServerRequestUnsupported):
        failure = Failure(
            kind=ErrorKind.EXECUTION_FAILED, detail=detail, answered=True, transient=error.again
        )
        if error.result is not None:
            return replace(failure, result=error.result)
        return replace(failure, code=error.code, data=cast("Json", error.data))
    if isinstance(error, ToolFailed):
        kind = _KINDS_BY_CODE.get(error.code, ErrorKind.EXECUTION_FAILED)
        data = cast("Json", error.data)
        return Failure(kind=kind, detail=detail, hint=hint, answered=True, code=error.code, data=data)
    return Failure(
        kind=ErrorKind.EXECUTION_FAILED,
        detail=detail,
        hint=hint,
        answered=isinstance(error, LimitReached),
        server_fault=isinstance(error, ServerReplyInvalid),
    )


_KINDS_BY_CODE = {
    METHOD_NOT_FOUND: ErrorKind.OPERATION_NOT_SUPPORTED,
    INVALID_PARAMS: ErrorKind.INVALID_PARAMETERS,
}


def _is_outcome_open(error: Exception) -> bool:
    """Return whether a write that ended with this error may have taken effect."""
    if isinstance(error, SignInRequired | SessionRejected | RequestNotExecuted | ToolFailed):
        return False  # never sent, rejected by the server, or with a reported outcome
    known = ServerUnavailable | ToolTimeout | ServerReplyInvalid | LimitReached
    return isinstance(error, known) or not isinstance(error, FingerpostError)


def classify_result(result: JsonObject, call: Call, *, takes_rounds: bool = False) -> Failure | None:
    """Return the failure that a result reports, or None if the caller can use the result."""
    if result.get("isError") is True:
        fault = parse_fault(result)
        wrong = fault is not None and fault.parameter
        return Failure(
            kind=ErrorKind.INVALID_PARAMETERS if wrong else ErrorKind.EXECUTION_FAILED,
            detail=_sanitize(_get_text(result)) or "the tool reported an error without a message",
            cause=ErrorKind.EXECUTION_FAILED,
            effect_possible=call.effect is not Effect.READ,
            answered=True,
            result=result,
        )
    if is_input_required(result) and not takes_rounds:
        return Failure(
            kind=ErrorKind.OPERATION_NOT_SUPPORTED,
            detail=f"{call.tool} asks for more input in the middle of the call",
            hint="give everything it needs in the arguments",
            answered=True,
        )
    return None


# Messages of JavaScript and Python file servers when the system refuses a path.
_SYSTEM_ERROR = re.compile(
    r"(?:(?P<code>ENOENT|EACCES|EEXIST): [^'\n]{1,80}'|\[Errno (?P<number>2|13|17)\] [^'\n]{1,80}')"
    r"(?P<path>[^'\n]{1,1000})'"
)
_SYSTEM_TYPES = {
    "ENOENT": "FileNotFound", "2": "FileNotFound", "EACCES": "PermissionDenied", "13": "PermissionDenied",
    "EEXIST": "FileExists", "17": "FileExists",
}  # fmt: skip
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")


def parse_fault(result: JsonObject) -> CallFault | None:
    """Return the fault of a failed result, as reported by built-in servers or by the operating system."""
    text = _get_text(result)[: 2 * MAX_DETAIL_LENGTH]
    meta = result.get("_meta")
    meta_fault = cast("JsonObject", meta).get(FAULT_META_KEY) if isinstance(meta, dict) else None
    if isinstance(meta_fault, dict):
        fields = {name: value for name, value in meta_fault.items() if isinstance(value, str)}
        kind, fault = fields.get("error_type", ""), fields.get("fault", "")
        return CallFault(
            message=_sanitize(text),
            error_type=kind if _TYPE_NAME.fullmatch(kind) else "",
            path=_sanitize(fields.get("path", "")),
            parameter=_sanitize(fields.get("parameter", "")),
            fault=ParameterFault(fault) if fault in _FAULTS else ParameterFault.BAD_VALUE,
        )
    if (found := _SYSTEM_ERROR.search(text)) is None:
        return None
    kind = _SYSTEM_TYPES[found["code"] or found["number"]]
    return CallFault(message=_sanitize(text), error_type=kind, path=_sanitize(found["path"]))


_FAULTS = frozenset(ParameterFault)


def describe_fault(fault: CallFault | None) -> dict[str, Json]:
    """Return the fault for an outcome's metadata: its type, if known, and the path."""
    if fault is None:
        return {}
    described: dict[str, Json] = {"error_type": fault.error_type, "attemptedPath": fault.path}
    return {name: value for name, value in described.items() if value}


def get_parameter_errors(fault: CallFault | None) -> tuple[ParameterError, ...]:
    """Return the argument to correct, if the fault names one."""
    if fault is None or not fault.parameter:
        return ()
    message = f"{fault.parameter}: {fault.message}"
    return (ParameterError(fault=fault.fault, parameter=fault.parameter, message=message),)


def build_cancelled_failure(call: Call, *, sent: bool) -> Failure:
    """Build the failure of an attempt whose caller cancelled it."""
    if sent and call.effect is not Effect.READ:
        return Failure(
            kind=ErrorKind.UNKNOWN,
            detail="the caller stopped waiting before the tool answered",
            hint=MAY_HAVE_TAKEN_EFFECT,
            effect_possible=True,
        )
    return Failure(kind=ErrorKind.CANCELLED, detail="the caller stopped waiting")


def _get_text(result: JsonObject) -> str:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return ""
    texts: list[str] = []
    for block in cast("Sequence[Json]", content):
        text = cast("JsonObject", block).get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)


def _format_error(error: Exception) -> str:
    if isinstance(error, FingerpostError):
        return _sanitize(str(error))
    return _sanitize(f"{type(error).__name__}: {error}")


def _get_hint(error: Exception) -> str:
    """Return the error's hint, without its statement about a possible effect, which is judged here."""
    hint = error.hint if isinstance(error, FingerpostError) else None
    return hint if hint is not None and hint != UNKNOWN_OUTCOME else ""


def _sanitize(text: str) -> str:
    """Return external text without secrets, valid and limited in length."""
    text = to_valid_text(scrub(text[: 2 * MAX_DETAIL_LENGTH])).strip()
    return text if len(text) <= MAX_DETAIL_LENGTH else text[: MAX_DETAIL_LENGTH - 1] + "…"


FIRST_WAIT_SECONDS = 0.2
MAX_WAIT_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 30.0  # longer requested waits are not retried


def may_retry(failure: Failure, rule: RetryRule, *, failures: int, retries: int, pause: float = 0.0) -> bool:
    """Return whether the call may be retried after `failures` failed attempts and a `pause`.

    A retry never comes sooner than the server requested.
    """
    soon = failure.retry_after is not None and failure.retry_after > pause
    if failures > retries or soon or (failure.effect_possible and not rule.repeatable.value):
        return False
    if failure.cause is None:  # refused before the attempt, by a breaker or for lack of slots
        return failure.transient
    if failure.transient and failure.cause is ErrorKind.EXECUTION_FAILED:
        return True  # the tool's question could not be asked; a repeated call would not ask again
    wanted = failure.cause.value in rule.conditions.value
    return wanted and (failure.transient or failure.cause is ErrorKind.EXECUTION_FAILED)


def compute_retry_wait(failures: int, *, chance: float, retry_after: float | None = None) -> float:
    """Return the seconds to wait after `failures` failed attempts. `chance` is a random number from 0 to 1.

    Full jitter keeps callers that failed together from retrying together. `retry_after` is the wait that the
    server requested; it is ignored if too long.
    """
    jitter = chance * min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(failures - 1, 30))
    return jitter if retry_after is None or retry_after > MAX_RETRY_AFTER_SECONDS else retry_after + jitter
