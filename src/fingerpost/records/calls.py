"""One call of a tool, from what a model wrote to what it gets back."""

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
    """What a model or a person wrote: a name and arguments, neither checked yet."""

    name: str
    arguments: JsonObject
    reference: str | None = None  # the writer's own id for it, echoed back


@frozen
class CallContext:
    """Who calls, in which conversation, and what is left of their patience and context window."""

    call_id: str  # the trace id of this one call
    packet_id: str | None = None
    conversation: str | None = None
    caller: str | None = None
    asker: str | None = None  # whose sessions come and go: a word on one call holds in all of them
    profile: str | None = None
    scopes: tuple[Scope, ...] = ()  # what the caller may use at all; all of them hold
    request: str = ""  # the person's words, so that a long result keeps what they asked about
    working_directory: str | None = None
    seconds: float | None = None  # the caller's own deadline, when shorter than the tool's
    tokens_left: int | None = None  # room in the model's context
    dry_run: bool = False
    summarises: bool = False  # whoever calls summarises long results of tools that need it
    fallback: bool = True  # another tool may answer when this one fails
    idempotency_key: str | None = None  # the same key and the same call run once
    doubt: str = ""  # why a person should look at this call even where the rules would let it run
    authorization: str | None = field(default=None, repr=False)  # the caller's own, for servers set up for it
    cancelled: tuple[str, ...] = ()  # tools whose calls a person did not allow in this request


class RepairKind(StrEnum):
    """In which way an argument was put right."""

    RENAMED = "renamed"
    COERCED = "coerced"
    PARSED = "parsed"
    WRAPPED = "wrapped"
    NEAREST = "nearest"
    DEFAULT = "default"
    REMOVED = "removed"


@frozen
class Repair:
    """One change made to the arguments, with what was there before."""

    path: str  # dotted, as in the schema
    kind: RepairKind
    before: Json
    after: Json
    reason: str


class ErrorKind(StrEnum):
    """What went wrong, in the words a model can act on."""

    TOOL_NOT_FOUND = "tool_not_found"
    INVALID_PARAMETERS = "invalid_parameters"
    EXECUTION_FAILED = "execution_failed"
    AUTHORIZATION_REQUIRED = "authorization_required"
    OPERATION_NOT_SUPPORTED = "operation_not_supported"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # a person said no
    DENIED = "denied"  # a rule said no
    UNAVAILABLE = "unavailable"
    LOOP = "loop"
    DUPLICATE = "duplicate"  # probably an accident: the same write twice in one turn, or while it runs
    UNKNOWN = "unknown"  # it may or may not have taken effect


class ParameterFault(StrEnum):
    """The three ways in which arguments can be wrong beyond repair."""

    MISSING = "missing"
    WRONG_TYPE = "wrong_type"
    BAD_VALUE = "bad_value"


@frozen
class ParameterError:
    """One argument that could not be put right."""

    fault: ParameterFault
    parameter: str
    message: str  # names the parameter and what was expected


@frozen
class CallFault:
    """Why a call fails, as a server of our own says it: before anybody is asked, or after it was tried."""

    message: str
    error_type: str = ""  # such as FileNotFound
    path: str = ""  # the path that was tried
    parameter: str = ""  # the one to correct; empty: the arguments are right, and it fails all the same
    fault: ParameterFault = ParameterFault.BAD_VALUE


@frozen
class Call:
    """A call whose tool exists and whose arguments fit its schema."""

    tool: str  # the key
    server: str
    name: str  # as the server calls it
    operation: str  # the operation key, `tool.operation`, or the tool's key
    arguments: JsonObject
    effect: Effect  # what it counts as: a read that is not certain counts as writing
    fingerprint: str  # of tool, arguments and definition together
    definition_fingerprint: str | None = None  # of the definition alone
    cache_seconds: float = 0.0  # a read whose answer of so long ago will do
    retry: RetryRule = field(default_factory=RetryRule)
    repairs: tuple[Repair, ...] = ()
    doubt: str = ""  # it seems to read; why that is not certain


class Verdict(StrEnum):
    """What the policy says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@frozen
class Ruling:
    """A verdict with its reason and the rule it comes from."""

    verdict: Verdict
    reason: str
    rule: str  # "rule 3 in fingerpost.toml", "default for read"
    exact: bool = False  # only a person's grant for this very call will do


@frozen
class Permit:
    """Leave to run one exact call. Only the policy and a grant give one; nothing runs without."""

    call_fingerprint: str
    given_by: str  # "policy: …" or "grant gnt_… by dana"


@frozen
class Attempt:
    """One try of one tool."""

    tool: str
    number: int
    began: datetime
    milliseconds: float
    error: ErrorKind | None = None
    detail: str = ""
    waited_ms: float = 0.0  # for a free slot, or before repeating
    cached: bool = False
    age_ms: float = 0.0  # of an answer from the cache


@frozen
class Execution:
    """What running a permitted call came to: every attempt, and the raw result of the last good one."""

    call: Call  # the one that gave the result: the asked one, or a fallback
    attempts: tuple[Attempt, ...]
    result: JsonObject | None = None  # the raw MCP result
    error: ErrorKind | None = None
    detail: str = ""
    hint: str = ""
    code: int | None = None  # the server's own error code, when it answered with an error
    data: Json = None  # and what it sent with it


@frozen
class Digest:
    """A result cut to what fits, with an honest note of what was cut and a handle to the rest."""

    text: str
    content_type: str = "text"
    tokens: int = 0
    original_tokens: int = 0
    dropped: tuple[str, ...] = ()  # "items 21–480 of 500", in plain words
    handle: str | None = None  # for `fingerpost result`, when anything was cut
    references: tuple[str, ...] = ()  # images and binaries, kept aside

    @property
    def trimmed(self) -> bool:
        return bool(self.dropped)


@frozen
class Outcome:
    """The one shape in which a call comes back, whatever happened."""

    call_id: str
    tool: str
    success: bool
    content: str
    content_type: str = "text"
    reference: str | None = None
    error: ErrorKind | None = None
    advice: str = ""  # what the model should do next
    detail: str = ""  # the technical truth, for whoever asks
    pending_id: str | None = None
    repairs: tuple[Repair, ...] = ()
    parameter_errors: tuple[ParameterError, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    digest: Digest | None = None
    result: JsonObject | None = field(default=None, repr=False)  # as the server sent it, uncut
    code: int | None = None  # the server's own error code, when it answered with an error
    data: Json = None
    metadata: JsonObject = field(default_factory=dict[str, Json])
