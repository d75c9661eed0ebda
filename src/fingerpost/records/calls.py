"""One tool call, from the model's request to its outcome."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from enum import StrEnum

from fingerpost.frozen import build_repr, frozen
from fingerpost.records.access import ArgumentOrigin, CallerAuthorization, Scope
from fingerpost.records.json import Json, JsonObject
from fingerpost.records.tools import DataLabel, Effect, RetryRule


@frozen
class ToolCall:
    """A tool call as written by a model or a person: name and arguments are unchecked."""

    name: str
    arguments: JsonObject
    reference: str | None = None  # the writer's id for the call, returned unchanged


@frozen
class CallContext:
    """The caller, the conversation, and the remaining time and context window.

    Fields:
        call_id: the trace id of this call
        packet_id: id of the request
        conversation: id of the conversation
        caller: name of the caller
        asker: the person who asks through the caller
        profile: name of the profile
        scopes: what the caller may use; all scopes apply
        request: the user's request, so that a shortened result keeps what it asks about
        working_directory: folder that relative paths start from
        seconds: the caller's deadline, if shorter than the tool's
        tokens_left: remaining tokens in the model's context
        dry_run: show what would be called, call nothing
        summarises: whether the caller summarizes long results
        fallback: whether a fallback tool may be used
        idempotency_key: a call with the same key runs only once
        doubt: why this call needs approval even if the rules allow it
        doubt_rule: what the doubt comes from, named as a rule
        authorization: the caller's own key; never stored
        cancelled: tools whose calls were denied by a person in this request
        words: what the person wrote in this conversation; None: not known, as at the gateway
        trail: name under which the data of the conversation is recorded; None: by conversation or request
    """

    call_id: str
    packet_id: str | None = None
    conversation: str | None = None
    caller: str | None = None
    asker: str | None = None
    profile: str | None = None
    scopes: tuple[Scope, ...] = ()
    request: str = ""
    working_directory: str | None = None
    seconds: float | None = None
    tokens_left: int | None = None
    dry_run: bool = False
    summarises: bool = False
    fallback: bool = True
    idempotency_key: str | None = None
    doubt: str = ""
    doubt_rule: str = "confidence"
    authorization: CallerAuthorization | None = field(default=None, repr=False)
    cancelled: tuple[str, ...] = ()
    words: tuple[str, ...] | None = field(default=None, repr=False)
    trail: str | None = None


class RepairKind(StrEnum):
    """How an argument was repaired."""

    RENAMED = "renamed"
    COERCED = "coerced"
    PARSED = "parsed"
    WRAPPED = "wrapped"
    NEAREST = "nearest"
    DEFAULT = "default"
    REMOVED = "removed"


@frozen
class Repair:
    """One repaired argument, with its values before and after."""

    path: str  # dotted, as in the schema
    kind: RepairKind
    before: Json
    after: Json
    reason: str


class ErrorKind(StrEnum):
    """The kind of an error, for the model."""

    TOOL_NOT_FOUND = "tool_not_found"
    INVALID_PARAMETERS = "invalid_parameters"
    EXECUTION_FAILED = "execution_failed"
    AUTHORIZATION_REQUIRED = "authorization_required"
    OPERATION_NOT_SUPPORTED = "operation_not_supported"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # denied by a person
    DENIED = "denied"  # denied by a rule
    UNAVAILABLE = "unavailable"
    LOOP = "loop"
    DUPLICATE = "duplicate"  # probably an accident: the same write twice in one turn, or while it runs
    UNKNOWN = "unknown"  # it may or may not have taken effect


class ParameterFault(StrEnum):
    """How an argument is wrong."""

    MISSING = "missing"
    WRONG_TYPE = "wrong_type"
    BAD_VALUE = "bad_value"


@frozen
class ParameterError:
    """One argument that could not be repaired."""

    fault: ParameterFault
    parameter: str
    message: str  # names the parameter and the expected value


@frozen
class CallFault:
    """Why a call fails, as reported by a built-in server before approval or after execution."""

    message: str
    error_type: str = ""  # for example FileNotFound
    path: str = ""  # the path that was used
    parameter: str = ""  # the parameter to correct; empty if the arguments are right but the call fails
    fault: ParameterFault = ParameterFault.BAD_VALUE


@frozen
class Call:
    """A call whose tool exists and whose arguments match its schema.

    Fields:
        tool: the key
        server: name of the server
        name: the name on the server
        operation: the operation key, `tool.operation`, or the tool's key
        arguments: arguments of the call
        effect: the effective effect: an uncertain read counts as a write
        fingerprint: of tool, arguments and definition
        definition_fingerprint: of the definition alone
        cache_seconds: maximum age of a cached result of a read
        retry: when a failed call is repeated
        repairs: corrections of the arguments
        doubt: why it is not certain that the tool only reads
    """

    tool: str
    server: str
    name: str
    operation: str
    arguments: JsonObject
    effect: Effect
    fingerprint: str
    definition_fingerprint: str | None = None
    cache_seconds: float = 0.0
    retry: RetryRule = field(default_factory=RetryRule)
    repairs: tuple[Repair, ...] = ()
    doubt: str = ""


@frozen
class DataSource:
    """A tool whose results entered a conversation, and what they are: untrusted or private."""

    tool: str
    label: DataLabel
    call_id: str
    at: datetime


class Verdict(StrEnum):
    """The policy's verdict on a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@frozen
class Ruling:
    """A verdict with its reason and rule.

    Fields:
        verdict: allow, ask or deny
        reason: why, for the person
        rule: "rule 3 in fingerpost.toml", "default for read"
        exact: requires a grant for this exact call
        origins: where the arguments come from, if untrusted or private data is in the conversation
        told: which such data is in it. A grant for the conversation that was given before it came in does not
            cover the call.
    """

    verdict: Verdict
    reason: str
    rule: str
    exact: bool = False
    origins: tuple[ArgumentOrigin, ...] = ()
    told: tuple[str, ...] = ()


@frozen
class Permit:
    """The permission to run one exact call. Only the policy and a grant create one; nothing runs without."""

    call_fingerprint: str
    given_by: str  # "policy: …" or "grant gnt_… by dana"


@frozen
class Attempt:
    """One attempt to call a tool."""

    tool: str
    number: int
    began: datetime
    milliseconds: float
    error: ErrorKind | None = None
    detail: str = ""
    waited_ms: float = 0.0  # for a free slot, or before a retry
    cached: bool = False
    age_ms: float = 0.0  # of a cached result


@frozen
class Execution:
    """The result of running a permitted call: all attempts, and the raw result of the last successful one."""

    call: Call  # the call that gave the result: the requested one or a fallback
    attempts: tuple[Attempt, ...]
    result: JsonObject | None = None  # the raw MCP result
    error: ErrorKind | None = None
    detail: str = ""
    hint: str = ""
    fix: str = ""  # what a person can do, if known exactly
    code: int | None = None  # the server's error code, if it returned an error
    data: Json = None  # the data of that error


@frozen
class Digest:
    """A result trimmed to a token budget, with a note of what was removed and a handle to the full result."""

    text: str
    content_type: str = "text"
    tokens: int = 0
    original_tokens: int = 0
    dropped: tuple[str, ...] = ()  # "items 21–480 of 500", as text
    handle: str | None = None  # for `fingerpost result`, if anything was dropped
    references: tuple[str, ...] = ()  # images and binaries, stored separately

    @property
    def trimmed(self) -> bool:
        return bool(self.dropped)


@frozen
class Outcome:
    """The outcome of a call, successful or not.

    Fields:
        call_id: id of the call, for its trace
        tool: key of the tool, `server/tool`
        success: whether the call succeeded
        content: the result as a model gets it, or what went wrong
        content_type: kind of the content: text, json, …
        reference: the id that the caller gave the call
        error: kind of the error
        advice: what the model should do next
        detail: the technical reason
        pending_id: id of the waiting approval
        repairs: corrections of the arguments
        parameter_errors: arguments that do not match the schema
        attempts: every attempt with its result
        digest: how the result was shortened
        result: as the server sent it, complete
        code: the server's error code, if it returned an error
        data: the server's error data
        metadata: further facts about a failure
        warnings: parts of the content that look like instructions for the model, or are hidden
    """

    call_id: str
    tool: str
    success: bool
    content: str
    content_type: str = "text"
    reference: str | None = None
    error: ErrorKind | None = None
    advice: str = ""
    detail: str = ""
    pending_id: str | None = None
    repairs: tuple[Repair, ...] = ()
    parameter_errors: tuple[ParameterError, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    digest: Digest | None = None
    result: JsonObject | None = field(default=None, repr=False)
    code: int | None = None
    data: Json = None
    metadata: JsonObject = field(default_factory=dict[str, Json])
    warnings: tuple[str, ...] = ()

    __repr__ = build_repr("tool", "success", "error", "content")

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing was called: the content says what would happen."""
        return self.metadata.get("dry_run") is True


class IdempotencyState(StrEnum):
    """State of the call of a key."""

    RUNNING = "running"
    DONE = "done"
    UNKNOWN = "unknown"  # it may or may not have taken effect


@frozen
class KeyedCall:
    """An idempotency key and its call."""

    caller: str  # empty if there is no specific caller
    key: str
    call_fingerprint: str  # of tool and arguments
    tool: str
    call_id: str
    began: datetime
    expires: datetime
    state: IdempotencyState = IdempotencyState.RUNNING
    outcome: bytes | None = None  # JSON, set when the call is done
