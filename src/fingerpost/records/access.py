"""Who asks, what they may touch, calls that wait for a person, and what the person allowed."""

from __future__ import annotations

import json
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from fingerpost.frozen import frozen
from fingerpost.records.json import JsonObject
from fingerpost.records.tools import Effect


@frozen
class Scope:
    """What somebody may use at all. An empty part sets no bound; rules of the policy apply inside it."""

    servers: tuple[str, ...] = ()  # names, `*` allowed
    tools: tuple[str, ...] = ()  # keys `server/tool`, `*` allowed
    effects: tuple[Effect, ...] = ()
    profile: str | None = None  # the profile whose bounds these are
    delegated: bool = False  # what an agent may use under that profile, in place of the profile's own bounds
    personal: tuple[str, ...] = ()  # tools (keys) that a server listed to this caller's own key: no bound

    @property
    def bounded(self) -> bool:
        return bool(self.servers or self.tools or self.effects or self.personal)


class Right(StrEnum):
    """What somebody may do at all. An agent's key uses; it does not approve what it asked for itself."""

    USE = "use"  # ask, call tools, chat; and see what became of one's own requests
    WATCH = "watch"  # see everybody's requests, the servers, the figures and the audit trail
    CONFIRM = "confirm"  # its client's person decides about its own calls, by elicitation
    APPROVE = "approve"  # decide what waits for a person
    MANAGE = "manage"  # switch tools and servers, accept changed definitions, close breakers


ALL_RIGHTS: Final = tuple(Right)
DECIDING_RIGHTS: Final = frozenset({Right.CONFIRM, Right.APPROVE, Right.MANAGE})  # what no tool may have
LOCAL_NAME: Final = "local"  # of callers without a key, on surfaces that want a name; reserved


def is_same_person(one: str | None, other: str | None) -> bool:
    """Return whether two names mean the same caller. Without a key it is None or `LOCAL_NAME`."""
    return (one or LOCAL_NAME) == (other or LOCAL_NAME)


@frozen
class Principal:
    """Somebody we know: by a key, by a signed token, or because they sit at this machine."""

    name: str
    kind: Literal["local", "key", "token"] = "local"
    scope: Scope = field(default_factory=Scope)
    profiles: tuple[str, ...] = ()  # the only profiles they may use; empty: every endpoint
    rights: tuple[Right, ...] = (Right.USE,)

    def may(self, right: Right) -> bool:
        return right in self.rights

    @property
    def may_confirm(self) -> bool:
        """Whether what its client says in answer to our question counts as a person's word."""
        return self.may(Right.CONFIRM) or self.may(Right.APPROVE)

    def may_use(self, profile: str | None) -> bool:
        """Whether they may use the endpoint of this profile (None: those without one)."""
        return not self.profiles or profile in self.profiles


class Decision(StrEnum):
    """What became of a pending call."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@frozen
class Approval:
    """A person's word on one waiting call."""

    pending_id: str
    decision: Decision
    by: str
    reason: str | None = None
    arguments: JsonObject | None = None  # edited before they were approved
    for_conversation: bool = False


@frozen
class Pending:
    """A call that waits for a person: a value, so that it survives a restart."""

    pending_id: str
    tool: str
    operation: str  # the operation key, `tool.operation`
    arguments: JsonObject
    call_fingerprint: str  # of tool, arguments and definition together
    effect: Effect
    reason: str
    created: datetime
    expires: datetime
    conversation: str | None = None
    packet_id: str | None = None
    caller: str | None = None
    asker: str | None = None  # a word on this one call holds for them in any session, not here alone
    decision: Decision = Decision.WAITING
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    edited_arguments: JsonObject | None = None
    call_id: str | None = None  # of the call that asked first, so that its trace shows the decision
    definition_fingerprint: str | None = None
    idempotency_key: str | None = None  # of the call that asked first
    exact: bool = False  # only this very call can be approved, not its operation for the conversation
    joined: tuple[str, ...] = ()  # further requests that wait for this very call

    @property
    def packets(self) -> tuple[str, ...]:
        """The requests that wait for this call, the one that asked first at the front."""
        return (*(() if self.packet_id is None else (self.packet_id,)), *self.joined)

    @property
    def call(self) -> str:
        """Exactly what would run, on one line; characters that cannot be printed stand as JSON escapes."""
        text = json.dumps(self.arguments, ensure_ascii=False, default=str)
        shown = (each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
        return f"{self.tool} {text if text.isprintable() else ''.join(shown)}"

    def approve(
        self, *, by: str, arguments: JsonObject | None = None, for_conversation: bool = False
    ) -> Approval:
        """Yes: to exactly this call, to these arguments instead, or to its kind in its conversation."""
        return Approval(
            pending_id=self.pending_id,
            decision=Decision.APPROVED,
            by=by,
            arguments=arguments,
            for_conversation=for_conversation,
        )

    def reject(self, *, by: str, reason: str | None = None) -> Approval:
        """No."""
        return Approval(pending_id=self.pending_id, decision=Decision.REJECTED, by=by, reason=reason)


@frozen
class Grant:
    """Permission: for one exact call, or for one caller's operation on one target within a conversation."""

    grant_id: str
    granted_by: str
    granted_at: datetime
    expires: datetime
    one_time: bool = True
    call_fingerprint: str | None = None
    conversation: str | None = None
    operation: str | None = None  # the digest of operation, definition, caller and target (`grant_key`)
    spent_at: datetime | None = None

    def __post_init__(self) -> None:
        exact = self.call_fingerprint is not None
        scoped = self.conversation is not None and self.operation is not None
        if exact == scoped:
            message = "a grant is bound to one call fingerprint, or to a conversation and an operation"
            raise ValueError(message)
