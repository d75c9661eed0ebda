"""Callers and their permissions, calls that wait for approval, and grants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from fingerpost.errors import ConfigError
from fingerpost.frozen import build_repr, frozen
from fingerpost.records.json import JsonObject
from fingerpost.records.tools import Effect


@frozen
class Scope:
    """What a caller may use. An empty field sets no limit. Policy rules apply within the scope."""

    servers: tuple[str, ...] = ()  # names, `*` allowed
    tools: tuple[str, ...] = ()  # keys `server/tool`, `*` allowed
    effects: tuple[Effect, ...] = ()
    profile: str | None = None  # the profile that these limits belong to
    # Whether these are an agent's limits under that profile, instead of the profile's own.
    delegated: bool = False
    personal: tuple[str, ...] = ()  # keys of tools that a server listed for this caller's key; not a limit

    @property
    def bounded(self) -> bool:
        return bool(self.servers or self.tools or self.effects or self.personal)


class Right(StrEnum):
    """What a caller may do. An agent's key has only the right `use`: it cannot approve its own calls."""

    USE = "use"  # send requests, call tools, chat, and read the own requests
    WATCH = "watch"  # read all requests, servers, statistics and the audit trail
    CONFIRM = "confirm"  # the client's user decides about its own calls, by elicitation
    APPROVE = "approve"  # decide about calls that wait for approval
    MANAGE = "manage"  # enable and disable tools and servers, accept changed definitions, close breakers
    ADMINISTER = "administer"  # users, keys, limits, and the sign-ins of all users


ALL_RIGHTS: Final = tuple(Right)
# Rights that no tool may have.
DECIDING_RIGHTS: Final = frozenset({Right.CONFIRM, Right.APPROVE, Right.MANAGE, Right.ADMINISTER})


class AccessRole(StrEnum):
    """A named set of rights, for keys, users and tokens."""

    USER = "user"
    APPROVER = "approver"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLE_RIGHTS: Final[Mapping[AccessRole, tuple[Right, ...]]] = MappingProxyType(
    {
        AccessRole.USER: (Right.USE,),
        AccessRole.APPROVER: (Right.USE, Right.WATCH, Right.CONFIRM, Right.APPROVE),
        AccessRole.OPERATOR: (Right.USE, Right.WATCH, Right.MANAGE),
        AccessRole.ADMIN: ALL_RIGHTS,
    }
)


def combine_rights(roles: Iterable[AccessRole], rights: Iterable[Right] = ()) -> tuple[Right, ...]:
    """Return the rights of these roles and these further rights, each once, in the order of `Right`."""
    held = {*rights, *(right for role in roles for right in ROLE_RIGHTS[role])}
    return tuple(right for right in Right if right in held)


LOCAL_NAME: Final = "local"  # reserved name of callers without a key, where a name is required


def is_same_person(one: str | None, other: str | None) -> bool:
    """Return whether two names mean the same caller. A caller without a key is None or `LOCAL_NAME`."""
    return (one or LOCAL_NAME) == (other or LOCAL_NAME)


@frozen
class Principal:
    """A known caller: identified by a key, by a signed token, or as the local user."""

    name: str
    kind: Literal["local", "key", "token"] = "local"
    scope: Scope = field(default_factory=Scope)
    profiles: tuple[str, ...] = ()  # the only profiles the caller may use; empty: all endpoints
    rights: tuple[Right, ...] = (Right.USE,)
    user: str = ""  # the person or program behind it, if other than `name`: one user may have several keys

    def may(self, right: Right) -> bool:
        return right in self.rights

    @property
    def user_name(self) -> str:
        return self.user or self.name

    @property
    def may_confirm(self) -> bool:
        """Whether the client's answer to an elicitation counts as a person's approval."""
        return self.may(Right.CONFIRM) or self.may(Right.APPROVE)

    def may_use(self, profile: str | None) -> bool:
        """Return whether the caller may use the endpoint of this profile (None: those without one)."""
        return not self.profiles or profile in self.profiles


def get_sign_in_user(caller: str) -> str:
    """Return the user whose sign-ins to servers a caller of this name uses. The name of a token is
    `token:<subject>@<client>`; all clients of a person use the same ones.
    """
    return caller.rpartition("@")[0] if caller.startswith("token:") and "@" in caller else caller


@frozen(kw_only=False)
class SubjectToken:
    """The token with which a caller was admitted. Servers never get it: it is exchanged for one of theirs."""

    value: str = field(repr=False)


# What a caller brings for servers: an `Authorization` header to forward, or a token to exchange.
CallerAuthorization = str | SubjectToken


@frozen
class User:
    """A person or program with keys or tokens. `roles` count for tokens; a key has roles of its own, so that
    the key of an agent has no more rights than it was given.
    """

    name: str
    roles: tuple[AccessRole, ...] = ()
    disabled: bool = False  # none of its keys and tokens is accepted


QuotaSubject: TypeAlias = Literal["user", "key", "profile"]


@frozen
class Quota:
    """Limits for users, keys or profiles with a matching name. Each of them is counted alone. None: no limit.

    Fields:
        quota_id: id of a stored quota; empty: from the settings
        of: what is counted: user, key or profile
        match: names, `*` allowed
        requests_per_minute: MCP requests, chat completions and questions
        calls_per_minute: calls of tools
        running: calls and requests at once
        tokens_per_day: tokens of models
        cost_per_day: in the currency of the models' prices
    """

    quota_id: str = ""
    of: QuotaSubject = "user"
    match: str = "*"
    requests_per_minute: int | None = None
    calls_per_minute: int | None = None
    running: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: float | None = None


QUOTA_LIMITS: Final = ("requests_per_minute", "calls_per_minute", "running", "tokens_per_day", "cost_per_day")


MINUTE_S: Final = 60  # the period of rates
DAY_S: Final = 86_400  # the period of tokens and cost


def find_quota(quotas: Iterable[Quota], of: str, name: str) -> Quota | None:
    """Return the first quota that fits this user, key or profile."""
    return next((one for one in quotas if one.of == of and fnmatchcase(name, one.match)), None)


class Decision(StrEnum):
    """The decision on a call that waits for approval."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@frozen
class Approval:
    """A person's decision on one waiting call.

    Fields:
        pending_id: id of the waiting call
        decision: approved or rejected
        by: who decided
        reason: why, as the person wrote it
        arguments: edited before approval
        for_conversation: the decision also applies to later calls of this operation in the conversation
    """

    pending_id: str
    decision: Decision
    by: str
    reason: str | None = None
    arguments: JsonObject | None = None
    for_conversation: bool = False


class DataOrigin(StrEnum):
    """Where the value of an argument comes from."""

    PERSON = "person"  # it stands in the person's own words
    PLAIN = "plain"  # it carries no content: a boolean, a value that the schema lists
    TRUSTED = "trusted"  # from a tool that the operator labelled as trusted
    UNTRUSTED = "untrusted"  # from content that other people wrote
    UNKNOWN = "unknown"  # composed by the model, or not traceable


@frozen
class ArgumentOrigin:
    """Where one value of a call comes from.

    Fields:
        path: the argument, dotted
        origin: person, plain, trusted, untrusted or unknown
        tool: the tool whose result contained it, if found
        excerpt: the text around it in that result
        whole: whether the result contained the value as it is, not only a part of it
    """

    path: str
    origin: DataOrigin
    tool: str | None = None
    excerpt: str = ""
    whole: bool = False


@frozen
class Pending:
    """A call that waits for approval. It is a plain value, so that it survives a restart.

    Fields:
        pending_id: id of the waiting call
        tool: key of the tool, `server/tool`
        operation: the operation key, `tool.operation`
        arguments: arguments of the call
        call_fingerprint: of tool, arguments and definition
        effect: what the call does: read, write or destroy
        reason: why it needs approval
        created: when it was stored
        expires: when it can no longer be approved
        conversation: id of the conversation
        packet_id: id of the request
        caller: name of the caller
        asker: if set, a decision on this call applies to this asker in all sessions
        decision: waiting, approved, rejected or expired
        decided_by: who decided
        decided_at: when
        decision_reason: why, as the person wrote it
        edited_arguments: the arguments that the person wrote instead
        call_id: of the first call, so that its trace contains the decision
        definition_fingerprint: of the tool's definition
        idempotency_key: of the first call
        exact: only this exact call can be approved, not its operation for the conversation
        joined: further requests that wait for this call
        origins: where the arguments come from, if untrusted or private data is in the conversation
        told: which such data was in it
    """

    pending_id: str
    tool: str
    operation: str
    arguments: JsonObject
    call_fingerprint: str
    effect: Effect
    reason: str
    created: datetime
    expires: datetime
    conversation: str | None = None
    packet_id: str | None = None
    caller: str | None = None
    asker: str | None = None
    decision: Decision = Decision.WAITING
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    edited_arguments: JsonObject | None = None
    call_id: str | None = None
    definition_fingerprint: str | None = None
    idempotency_key: str | None = None
    exact: bool = False
    joined: tuple[str, ...] = ()
    origins: tuple[ArgumentOrigin, ...] = ()
    told: tuple[str, ...] = ()

    __repr__ = build_repr("pending_id", "tool", "arguments", "decision")

    @property
    def packets(self) -> tuple[str, ...]:
        """The requests that wait for this call, the first one first."""
        return (*(() if self.packet_id is None else (self.packet_id,)), *self.joined)

    @property
    def call(self) -> str:
        """The exact call on one line. Unprintable characters are JSON escapes."""
        text = json.dumps(self.arguments, ensure_ascii=False, default=str)
        shown = (each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
        return f"{self.tool} {text if text.isprintable() else ''.join(shown)}"

    def approve(
        self, *, by: str, arguments: JsonObject | None = None, for_conversation: bool = False
    ) -> Approval:
        """Approve this exact call, the call with other arguments, or its operation for the conversation.
        Raises `ConfigError` if `by` is empty.
        """
        _check_person(by)
        return Approval(
            pending_id=self.pending_id,
            decision=Decision.APPROVED,
            by=by,
            arguments=arguments,
            for_conversation=for_conversation,
        )

    def reject(self, *, by: str, reason: str | None = None) -> Approval:
        """Reject this call. Raises `ConfigError` if `by` is empty."""
        _check_person(by)
        return Approval(pending_id=self.pending_id, decision=Decision.REJECTED, by=by, reason=reason)


def _check_person(by: object) -> None:
    if not isinstance(by, str) or not by.strip():
        message = f"by is the name of the person who decides, not {by!r:.60}"
        raise ConfigError(message, hint='Write by="dana".')


@frozen
class Grant:
    """A permission for one exact call, or for one caller's operation on one target in a conversation."""

    grant_id: str
    granted_by: str
    granted_at: datetime
    expires: datetime
    one_time: bool = True
    call_fingerprint: str | None = None
    conversation: str | None = None
    operation: str | None = None  # digest of operation, definition, caller and target (`build_grant_key`)
    spent_at: datetime | None = None

    def __post_init__(self) -> None:
        exact = self.call_fingerprint is not None
        scoped = self.conversation is not None and self.operation is not None
        if exact == scoped:
            message = "a grant is bound to one call fingerprint, or to a conversation and an operation"
            raise ValueError(message)


class DisabledKind(StrEnum):
    """The kind of a disabled item."""

    TOOL = "tool"
    SERVER = "server"


@frozen
class DisabledEntry:
    """Who disabled a tool (by key) or a server (by name), when and why."""

    what: DisabledKind
    name: str
    by: str
    at: datetime
    reason: str = ""

    def describe(self) -> str:
        """Return the reason as text for people and models."""
        return f"switched off by {self.by}" + (f": {self.reason}" if self.reason else "")
