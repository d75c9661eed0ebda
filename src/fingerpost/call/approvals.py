"""Calls that wait for a person: requests, decisions, grants, and permits for later rounds of a call."""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from fingerpost.data_files import read_word_sets
from fingerpost.errors import CallError, LimitReached
from fingerpost.events import ApprovalDecided, ApprovalRequested, EventSink
from fingerpost.frozen import frozen
from fingerpost.policy.rules import describe_uncertain_read
from fingerpost.records import (
    Call,
    CallContext,
    Decision,
    Effect,
    Grant,
    JsonObject,
    Pending,
    Permit,
    Ruling,
    ToolCard,
    create_id,
    utc_now,
)
from fingerpost.records.json import to_canonical_json
from fingerpost.settings import CallSettings

if TYPE_CHECKING:
    from fingerpost.servers.requests import RequestContext
    from fingerpost.store import Store

ApprovalScope = Literal["once", "conversation"]

# The clocks of machines that share a database rarely differ by more than this.
CLOCK_SKEW: Final = timedelta(seconds=30)
MAX_WAITING: Final = 100  # per caller and conversation: local programs share one caller name
MAX_WAITING_PER_CALLER: Final = 1000  # over all conversations; then each conversation may add only one

# Grants from the future that one call may use up before a person is asked again.
_MAX_UNUSABLE_GRANTS: Final = 8


_WORDS: Final = read_word_sets("fingerpost.call", "words.txt")  # what each is for is said there
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def find_target(operation: str, arguments: JsonObject) -> JsonObject:
    """Return the arguments that identify what a call changes: all except the content that it writes.

    A grant for a conversation covers later calls in which these are equal. If no argument names a target, or
    the operation executes its input, all arguments are part of the target.
    """
    if not _WORDS["executing"].isdisjoint(word.lower() for word in _WORD.findall(operation)):
        return arguments
    target = {name: value for name, value in arguments.items() if not _is_content(name)}
    return target if any(map(_is_target, target)) else arguments


def _is_target(parameter: str) -> bool:
    words = _WORD.findall(parameter)
    return bool(words) and words[-1].lower() in _WORDS["target"]


def _is_content(parameter: str) -> bool:
    return "".join(_WORD.findall(parameter)).lower() in _WORDS["content"]


def describe_effect(pending: Pending) -> str:
    """Say what a call can do, as the end of a sentence: "it can overwrite files"."""
    words = {word.lower() for word in _WORD.findall(pending.operation)}
    what = "files" if words & _WORDS["file"] else "data"
    if pending.effect is Effect.READ:
        return f"it reads {what}"
    if pending.effect is Effect.WRITE:
        return f"it changes {what}"
    deletes, overwrites = bool(words & _WORDS["deleting"]), bool(words & _WORDS["overwriting"])
    verb = "overwrite or delete" if deletes == overwrites else "delete" if deletes else "overwrite"
    return f"it can {verb} {what}"


def build_grant_key(
    operation: str,
    definition_fingerprint: str | None,
    arguments: JsonObject,
    *,
    caller: str | None,
    told: Sequence[str] = (),
) -> str:
    """Return the key of a grant for a conversation: caller, operation with its definition, and target.

    `told`: the untrusted and private data in the conversation of which the person was told. A grant from
    before some of it came in does not cover such a call.
    """
    bound = [operation, definition_fingerprint, caller, find_target(operation, arguments)]
    bound += [list(told)] if told else []
    return hashlib.sha256(to_canonical_json(bound)).hexdigest()


@frozen
class DecisionResult:
    """The state of a call after a decision, and whether this decision is the one that counts."""

    pending: Pending
    counted: bool


class CallApprovals:
    """Pending calls and the grants that people gave."""

    def __init__(
        self,
        store: Store,
        *,
        events: EventSink,
        settings: CallSettings,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._events = events
        self._settings = settings
        self._clock = clock

    async def request(self, call: Call, context: CallContext, ruling: Ruling) -> Pending:
        """Register the call as pending. The same call asked again while it waits is the same pending call.

        Raises `LimitReached` if too many calls of this caller wait already.
        """
        now = self._clock()
        if await self._is_crowded(call, context, now):
            message = f"{call.tool} needs a person's approval, and too many calls of this caller wait already"
            raise LimitReached(message, hint="decide about those first: `fingerpost approvals` lists them")
        asked = Pending(
            pending_id=create_id("apr"),
            call_id=context.call_id,
            tool=call.tool,
            operation=call.operation,
            arguments=call.arguments,
            call_fingerprint=call.fingerprint,
            definition_fingerprint=call.definition_fingerprint,
            effect=call.effect,
            reason=ruling.reason,
            created=now,
            expires=now + timedelta(seconds=self._settings.pending_seconds),
            conversation=context.conversation,
            packet_id=context.packet_id,
            caller=context.caller,
            asker=context.asker,
            idempotency_key=context.idempotency_key,
            exact=ruling.exact,
            origins=ruling.origins,
            told=ruling.told,
        )
        waiting = await self._store.approvals.add_or_join(asked, now=now)
        if waiting.pending_id == asked.pending_id or context.packet_id in waiting.joined:
            self._events.emit(
                ApprovalRequested(
                    call_id=context.call_id,
                    packet_id=context.packet_id or context.call_id,
                    pending_id=waiting.pending_id,
                    tool=waiting.tool,
                    call_fingerprint=waiting.call_fingerprint,
                    reason=waiting.reason,
                )
            )
        return waiting

    async def _is_crowded(self, call: Call, context: CallContext, now: datetime) -> bool:
        waiting = await self._store.approvals.list_waiting(now=now)
        theirs = [one for one in waiting if one.caller == context.caller]
        waiting_here = {one.call_fingerprint for one in theirs if one.conversation == context.conversation}
        most = 1 if len(theirs) >= MAX_WAITING_PER_CALLER else MAX_WAITING
        return len(waiting_here) >= most and call.fingerprint not in waiting_here

    async def use_grant(
        self, call: Call, context: CallContext, *, exact: bool = False, told: Sequence[str] = ()
    ) -> Permit | None:
        """Use a grant for this call and return a permit, or None. A grant for exactly this call is used
        first.

        `exact`: a grant for its operation is not enough. `told`: see `build_grant_key`.
        """
        for _ in range(_MAX_UNUSABLE_GRANTS):
            now = self._clock()
            grant = await self._store.grants.spend(
                call_fingerprint=_build_call_key(call.fingerprint, context.caller),
                conversation=context.conversation,
                asker=context.asker,
                operation=None if exact else _build_conversation_key(call, context.caller, told=told),
                now=now,
            )
            if grant is None:
                return None
            if grant.granted_at <= now + CLOCK_SKEW:
                return Permit(
                    call_fingerprint=call.fingerprint,
                    given_by=f"grant {grant.grant_id} by {grant.granted_by}",
                )
            if not grant.one_time:
                return None
        return None

    async def decide(
        self,
        pending_id: str,
        decision: Decision,
        *,
        by: str,
        reason: str | None = None,
        edited: Call | None = None,
        scope: ApprovalScope = "once",
    ) -> Pending:
        """Record a person's decision and return the call's state. An earlier decision may apply already.

        Raises `CallError` if no such call ever waited, or if the decision does not apply to it.
        """
        settled = await self.settle_decision(
            pending_id, decision, by=by, reason=reason, edited=edited, scope=scope
        )
        return settled.pending

    async def settle_decision(
        self,
        pending_id: str,
        decision: Decision,
        *,
        by: str,
        reason: str | None = None,
        edited: Call | None = None,
        scope: ApprovalScope = "once",
    ) -> DecisionResult:
        """Record a decision like `decide`, and return whether it counted: two by one name look alike."""
        pending = await self._store.approvals.get(pending_id, now=self._clock())
        if pending is None:
            raise _build_unknown_error(pending_id)
        _check_decision(pending, decision, edited, scope)
        now = self._clock()
        grants = self._build_grants(pending, edited, by, scope, now) if decision is Decision.APPROVED else ()
        standing = await self._store.approvals.decide(
            pending_id,
            decision,
            by=by,
            reason=reason,
            edited_arguments=None if edited is None else edited.arguments,
            grants=grants,
            now=now,
        )
        stood = (standing.decision, standing.decided_by, standing.decided_at) == (decision, by, now)
        if stood:
            self._emit_decided(standing, by)
        return DecisionResult(pending=standing, counted=stood)

    async def take_unreported_decision(self, call: Call, context: CallContext) -> Pending | None:
        """Return a decision about this call that was not reported to its caller yet, and mark it as reported.
        It is a rejection, or an approval with edited arguments.

        This serves clients that cannot wait and repeat the call. Each decision is reported once; after that,
        a repeated call asks the person again.
        """
        lasts = timedelta(seconds=self._settings.grant_seconds)
        pending = await self._store.approvals.find_last_decision(
            call.fingerprint,
            conversation=context.conversation,
            caller=context.caller,
            asker=context.asker,
            since=self._clock() - lasts,
        )
        return pending if pending is not None and await self.mark_reported(pending) else None

    async def mark_reported(self, pending: Pending) -> bool:
        """Record that this decision is reported to the caller. Return whether this is the first time."""
        if pending.decision is not Decision.REJECTED and pending.edited_arguments is None:
            return False
        now = self._clock()
        grant = Grant(
            grant_id=f"gnt_{pending.pending_id}",
            granted_by="call path: leave to tell one decision",
            granted_at=now,
            # Longer than the period in which decisions are searched, so nothing is reported twice.
            expires=now + 2 * timedelta(seconds=self._settings.grant_seconds) + CLOCK_SKEW,
            call_fingerprint=f"word {pending.pending_id}",
        )
        return await self._store.grants.add_and_spend(grant, now=now)

    async def get(self, pending_id: str) -> Pending | None:
        """Return the current state of the call, or None if no such call ever waited."""
        return await self._store.approvals.get(pending_id, now=self._clock())

    async def list_waiting(self) -> list[Pending]:
        """Return all calls that wait now, oldest first."""
        return await self._store.approvals.list_waiting(now=self._clock())

    def _build_grants(
        self, pending: Pending, edited: Call | None, by: str, scope: ApprovalScope, now: datetime
    ) -> tuple[Grant, ...]:
        """Return the grant for this call, or for the caller's calls of its operation and target in the
        conversation.

        If the caller may return in another session, the single call is granted there too.
        """
        once = Grant(
            grant_id=create_id("gnt"),
            granted_by=by,
            granted_at=now,
            expires=now + timedelta(seconds=self._settings.grant_seconds),
            call_fingerprint=_build_call_key(
                pending.call_fingerprint if edited is None else edited.fingerprint, pending.caller
            ),
            # The same call in another conversation needs its own approval.
            conversation=pending.asker or pending.conversation,
        )
        if scope == "once":
            return (once,)
        source = pending if edited is None else edited
        wide = replace(
            once,
            grant_id=create_id("gnt"),
            one_time=False,
            call_fingerprint=None,
            conversation=pending.conversation,
            operation=_build_conversation_key(source, pending.caller, told=pending.told),
        )
        return (wide,) if once.conversation == wide.conversation else (once, wide)

    def _emit_decided(self, decided: Pending, by: str) -> None:
        subject = decided.call_id or decided.packet_id or decided.pending_id
        for packet_id in decided.packets or (subject,):
            self._events.emit(
                ApprovalDecided(
                    call_id=subject,
                    packet_id=packet_id,
                    pending_id=decided.pending_id,
                    decision=decided.decision,
                    decided_by=by,
                    reason=decided.decision_reason,
                    edited=decided.edited_arguments is not None,
                )
            )


def _check_decision(pending: Pending, decision: Decision, edited: Call | None, scope: ApprovalScope) -> None:
    if edited is not None and decision is not Decision.APPROVED:
        message = "only a call that is approved can be edited"
        raise CallError(message, hint="reject it as it is")
    if edited is not None and edited.tool != pending.tool:
        message = f"{pending.pending_id} waits for {pending.tool}; an edit cannot turn it into {edited.tool}"
        raise CallError(message, hint="reject it and call the other tool")
    if scope == "conversation" and (why := explain_once_only(pending)) is not None:
        message = f"{pending.pending_id} can only be approved once: {why}"
        raise CallError(message, hint="approve it for this call only")


def explain_once_only(pending: Pending) -> str | None:
    """Return why this call cannot be approved for its conversation, or None if it can."""
    if pending.exact:
        return pending.reason
    return "it belongs to no conversation" if pending.conversation is None else None


def is_uncertain_read(pending: Pending, card: ToolCard | None) -> bool:
    """Return whether the call is asked about only because its tool may do more than read.

    A person who manages tools can then say that this definition only reads, and is not asked again.
    """
    return (
        card is not None
        and bool(card.doubt)
        and card.fingerprint == pending.definition_fingerprint
        and pending.reason == describe_uncertain_read(card.doubt)
        and not pending.exact
    )


def get_target_names(pending: Pending) -> tuple[str, ...] | None:
    """Return the arguments that must be equal in later calls covered by an approval for the conversation.

    Return None if this call can only be approved once.
    """
    if explain_once_only(pending) is not None:
        return None
    return tuple(find_target(pending.operation, pending.arguments))


def describe_widened(pending: Pending) -> str:
    """Describe which later calls an approval for the conversation covers."""
    names = tuple(find_target(pending.operation, pending.arguments))
    if set(names) == set(pending.arguments):
        return f"the same call of {pending.operation} again"
    return f"further calls of {pending.operation} with the same {', '.join(names)}"


def _build_conversation_key(call: Call | Pending, caller: str | None, *, told: Sequence[str]) -> str:
    return build_grant_key(
        call.operation, call.definition_fingerprint, call.arguments, caller=caller, told=told
    )


def _build_call_key(call_fingerprint: str, caller: str | None) -> str:
    """Return the key of a grant for one call: the call and its caller.

    Without the caller, an equal call of another caller could use the grant.
    """
    if caller is None:
        return call_fingerprint
    # A fingerprint has a fixed length, so the line break separates it from any caller name.
    return hashlib.sha256(f"{call_fingerprint}\n{caller}".encode("utf-8", "surrogatepass")).hexdigest()


def _build_unknown_error(pending_id: str) -> CallError:
    message = f"no call {pending_id!r} waits for a decision"
    return CallError(message, hint="`fingerpost approvals` lists the waiting calls.")


ROUND_SECONDS: Final = 900.0
MAX_KEPT_ROUNDS: Final = 1000

RoundKey = tuple[str, str | None, str | None, str | None]


class RoundPermits:
    """Permits of approved calls whose server asked the caller for more input."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[RoundKey, tuple[float, Permit]] = OrderedDict()

    def keep_permit(self, call: Call, context: CallContext, result: JsonObject, permit: Permit) -> None:
        """Keep the permit for the next round, because the server asked for more input."""
        state = result.get("requestState")
        if not isinstance(state, str | None):
            return
        key = _build_round_key(call, context, state)
        self._kept.pop(key, None)
        self._kept[key] = (self._clock() + ROUND_SECONDS, permit)
        while len(self._kept) > MAX_KEPT_ROUNDS:
            self._kept.popitem(last=False)

    def take_permit(
        self, call: Call, context: CallContext, request_context: RequestContext | None
    ) -> Permit | None:
        """Return the permit to continue the call if this is its next round."""
        if request_context is None or not request_context.is_continuation:
            return None
        until, permit = self._kept.pop(
            _build_round_key(call, context, request_context.request_state), (0.0, None)
        )
        return permit if self._clock() < until else None


def _build_round_key(call: Call, context: CallContext, state: str | None) -> RoundKey:
    return (call.fingerprint, context.caller, context.conversation, state)
