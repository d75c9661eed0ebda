"""What went wrong in one attempt, whether it may have taken effect, and when to retry."""

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
    UNKNOWN_OUTCOME,
    RequestNotExecuted,
    ServerBusy,
    SessionForgotten,
    SessionRejected,
    SignInRequired,
)
from fingerpost.servers.per_caller import ServerRequestUnsupported
from fingerpost.servers.requests import FAULT

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
MAX_DETAIL_LENGTH = 4000
MAY_HAVE_TAKEN_EFFECT = "it may have taken effect: check before you repeat it"


@frozen
class Failure:
    """Why an attempt gave no result."""

    kind: ErrorKind
    detail: str
    hint: str = ""
    effect_possible: bool = False  # the world may have changed nevertheless
    cause: ErrorKind | None = None  # what went wrong, where `kind` says only what is known of the effect
    transient: bool = False  # the same call may succeed a moment later
    retry_after: float | None = None  # for how many seconds the server asks to be left alone
    answered: bool = False  # the server is well: the error is the tool's
    server_fault: bool = False  # counts against the server's breaker
    result: JsonObject | None = None  # what the tool said of its error, in full
    code: int | None = None  # the server's own, when it answered with an error
    data: Json = None


def explain_exception(error: Exception, call: Call, *, sent: bool) -> Failure:
    """The failure behind an error of ours, or of code that should have raised one of ours."""
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
        told = Failure(kind=ErrorKind.EXECUTION_FAILED, detail=detail, answered=True, transient=error.again)
        if error.result is not None:
            return replace(told, result=error.result)
        return replace(told, code=error.code, data=cast("Json", error.data))
    if isinstance(error, ToolFailed):
        kind = _KINDS.get(error.code, ErrorKind.EXECUTION_FAILED)
        data = cast("Json", error.data)
        return Failure(kind=kind, detail=detail, hint=hint, answered=True, code=error.code, data=data)
    return Failure(
        kind=ErrorKind.EXECUTION_FAILED,
        detail=detail,
        hint=hint,
        answered=isinstance(error, LimitReached),
        server_fault=isinstance(error, ServerReplyInvalid),
    )


_KINDS = {
    METHOD_NOT_FOUND: ErrorKind.OPERATION_NOT_SUPPORTED,
    INVALID_PARAMS: ErrorKind.INVALID_PARAMETERS,
}


def _is_outcome_open(error: Exception) -> bool:
    """Whether a write that ended so may or may not have happened."""
    if isinstance(error, SignInRequired | SessionRejected | RequestNotExecuted | ToolFailed):
        return False  # it never left us, the server turned it away, or said itself how it ended
    known = ServerUnavailable | ToolTimeout | ServerReplyInvalid | LimitReached
    return isinstance(error, known) or not isinstance(error, FingerpostError)


def classify_result(result: JsonObject, call: Call, *, takes_rounds: bool = False) -> Failure | None:
    """The failure a result reports, or None when it is one the caller can do something with."""
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


# What file servers in JavaScript and Python say when the system refuses a path.
_SYSTEM_ERROR = re.compile(
    r"(?:(?P<code>ENOENT|EACCES|EEXIST): [^'\n]{1,80}'|\[Errno (?P<number>2|13|17)\] [^'\n]{1,80}')"
    r"(?P<path>[^'\n]{1,1000})'"
)
_SYSTEM_TYPES = {
    "ENOENT": "FileNotFound", "2": "FileNotFound", "EACCES": "PermissionDenied", "13": "PermissionDenied",
    "EEXIST": "FileExists", "17": "FileExists",
}  # fmt: skip
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")


def parse_fault(result: JsonObject) -> CallFault | None:
    """What a failed result says of its kind: in the words of our own servers, or of the system."""
    text = _get_text(result)[: 2 * MAX_DETAIL_LENGTH]
    meta = result.get("_meta")
    told = cast("JsonObject", meta).get(FAULT) if isinstance(meta, dict) else None
    if isinstance(told, dict):
        said = {name: value for name, value in told.items() if isinstance(value, str)}
        kind, fault = said.get("error_type", ""), said.get("fault", "")
        return CallFault(
            message=_sanitize(text),
            error_type=kind if _TYPE.fullmatch(kind) else "",
            path=_sanitize(said.get("path", "")),
            parameter=_sanitize(said.get("parameter", "")),
            fault=ParameterFault(fault) if fault in _FAULTS else ParameterFault.BAD_VALUE,
        )
    if (found := _SYSTEM_ERROR.search(text)) is None:
        return None
    kind = _SYSTEM_TYPES[found["code"] or found["number"]]
    return CallFault(message=_sanitize(text), error_type=kind, path=_sanitize(found["path"]))


_FAULTS = frozenset(ParameterFault)


def describe_fault(fault: CallFault | None) -> dict[str, Json]:
    """What an outcome's metadata say of the fault: its type where it has one, and the path that was tried."""
    if fault is None:
        return {}
    told: dict[str, Json] = {"error_type": fault.error_type, "attemptedPath": fault.path}
    return {name: value for name, value in told.items() if value}


def get_parameter_errors(fault: CallFault | None) -> tuple[ParameterError, ...]:
    """The argument to correct, where the fault names one."""
    if fault is None or not fault.parameter:
        return ()
    words = f"{fault.parameter}: {fault.message}"
    return (ParameterError(fault=fault.fault, parameter=fault.parameter, message=words),)


def build_cancelled_failure(call: Call, *, sent: bool) -> Failure:
    """What is recorded of an attempt whose caller went away."""
    if sent and call.effect is not Effect.READ:
        return Failure(
            kind=ErrorKind.UNKNOWN,
            detail="the caller gave up before the tool answered",
            hint=MAY_HAVE_TAKEN_EFFECT,
            effect_possible=True,
        )
    return Failure(kind=ErrorKind.CANCELLED, detail="the caller gave up")


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
    """The error's own hint. Whether a call may have taken effect is judged here, not where it was sent."""
    hint = error.hint if isinstance(error, FingerpostError) else None
    return hint if hint is not None and hint != UNKNOWN_OUTCOME else ""


def _sanitize(text: str) -> str:
    """Text from outside: without secrets, valid, of bounded length."""
    text = to_valid_text(scrub(text[: 2 * MAX_DETAIL_LENGTH])).strip()
    return text if len(text) <= MAX_DETAIL_LENGTH else text[: MAX_DETAIL_LENGTH - 1] + "…"


FIRST_WAIT_SECONDS = 0.2
MAX_WAIT_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 30.0  # what a server may ask us to wait; who wants more is not asked again


def may_retry(failure: Failure, rule: RetryRule, *, failures: int, retries: int, pause: float = 0.0) -> bool:
    """Whether the same call may be tried once more, after `failures` failed tries and a `pause`.

    Never sooner than the server asked for.
    """
    soon = failure.retry_after is not None and failure.retry_after > pause
    if failures > retries or soon or (failure.effect_possible and not rule.repeatable.value):
        return False
    if failure.cause is None:  # it was refused before it was tried: the breaker, the slots
        return failure.transient
    if failure.transient and failure.cause is ErrorKind.EXECUTION_FAILED:
        return True  # the tool's question could not be put to anybody, and it asks no more when called again
    wanted = failure.cause.value in rule.conditions.value
    return wanted and (failure.transient or failure.cause is ErrorKind.EXECUTION_FAILED)


def compute_retry_wait(failures: int, *, chance: float, retry_after: float | None = None) -> float:
    """Seconds to wait after `failures` failed tries; `chance` is a random number from 0 to 1.

    Full jitter: callers that failed together do not come back together. `asked` is how long the server
    wants to be left alone; it is not waited for where that is too long.
    """
    jitter = chance * min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(failures - 1, 30))
    return jitter if retry_after is None or retry_after > MAX_RETRY_AFTER_SECONDS else retry_after + jitter
