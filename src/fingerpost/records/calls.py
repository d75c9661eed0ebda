"""One tool call, from the model's request to its outcome."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from enum import StrEnum

from fingerpost.frozen import frozen
from fingerpost.records.access import Scope
from fingerpost.records.json import Json, JsonObject
from fingerpost.records.tools import Effect, RetryRule


@frozen
class ToolCall:
    """A tool call as written by a model or a person: name and arguments are unchecked."""

    name: str
    arguments: JsonObject
    reference: str | None = None  # the writer's id for the call, returned unchanged


@frozen
class CallContext:
    """The caller, the conversation, and the remaining time and context window."""

    call_id: str  # the trace id of this call
    packet_id: str | None = None
    conversation: str | None = None
    caller: str | None = None
    # For askers with changing sessions: a decision on one call applies to all of them.
    asker: str | None = None
    profile: str | None = None
    scopes: tuple[Scope, ...] = ()  # what the caller may use; all scopes apply
    request: str = ""  # the user's request, so that a shortened result keeps what it asks about
    working_directory: str | None = None
    seconds: float | None = None  # the caller's deadline, if shorter than the tool's
    tokens_left: int | None = None  # remaining tokens in the model's context
    dry_run: bool = False
    summarises: bool = False  # whether the caller summarizes long results
    fallback: bool = True  # whether a fallback tool may be used
    idempotency_key: str | None = None  # a call with the same key runs only once
    doubt: str = ""  # why this call needs approval even if the rules allow it
    doubt_rule: str = "confidence"  # what the doubt comes from, named as a rule
    # The caller's header, for servers configured to receive it.
    authorization: str | None = field(default=None, repr=False)
    cancelled: tuple[str, ...] = ()  # tools whose calls were denied by a person in this request


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
    """A call whose tool exists and whose arguments match its schema."""

    tool: str  # the key
    server: str
    name: str  # the name on the server
    operation: str  # the operation key, `tool.operation`, or the tool's key
    arguments: JsonObject
    effect: Effect  # the effective effect: an uncertain read counts as a write
    fingerprint: str  # of tool, arguments and definition
    definition_fingerprint: str | None = None  # of the definition alone
    cache_seconds: float = 0.0  # maximum age of a cached result of a read
    retry: RetryRule = field(default_factory=RetryRule)
    repairs: tuple[Repair, ...] = ()
    doubt: str = ""  # why it is not certain that the tool only reads


class Verdict(StrEnum):
    """The policy's verdict on a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@frozen
class Ruling:
    """A verdict with its reason and rule."""

    verdict: Verdict
    reason: str
    rule: str  # "rule 3 in fingerpost.toml", "default for read"
    exact: bool = False  # requires a grant for this exact call


@frozen
class Permit:
    """The permission to run one exact call. Only the policy and a grant create one, and nothing runs without
    it.
    """

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
    """The outcome of a call, successful or not."""

    call_id: str
    tool: str
    success: bool
    content: str
    content_type: str = "text"
    reference: str | None = None
    error: ErrorKind | None = None
    advice: str = ""  # what the model should do next
    detail: str = ""  # the technical reason
    pending_id: str | None = None
    repairs: tuple[Repair, ...] = ()
    parameter_errors: tuple[ParameterError, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    digest: Digest | None = None
    result: JsonObject | None = field(default=None, repr=False)  # as the server sent it, complete
    code: int | None = None  # the server's error code, if it returned an error
    data: Json = None
    metadata: JsonObject = field(default_factory=dict[str, Json])

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
