"""Calls in flight: they can be ended together, and calls with an idempotency key run once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic_core import to_json as write_json

from fingerpost.call.build import compute_call_fingerprint
from fingerpost.call.execution import is_input_required
from fingerpost.call.outcomes import OutcomeBuilder
from fingerpost.errors import FingerpostError, StoreError
from fingerpost.records import (
    Call,
    CallContext,
    Effect,
    ErrorKind,
    IdempotencyState,
    KeyedCall,
    Outcome,
    utc_now,
)
from fingerpost.records.codec import from_json, to_json, to_plain
from fingerpost.records.json import MAX_DEPTH, to_valid_json
from fingerpost.tasks import create_cancel_scope

if TYPE_CHECKING:
    from fingerpost.store.approvals import IdempotencyStore

log = logging.getLogger("fingerpost.call")

END_TIMEOUT_S: Final = 5.0  # for ended work to record its end


class InFlightWork:
    """The running requests and calls."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._closing = False
        self._all_ended = anyio.Event()

    def track(self) -> _TrackedWork:
        """Run an `async with` block until it completes or all work is ended; in the latter case raise an
        error.

        Blocks may be nested: a request makes calls.
        """
        return _TrackedWork(self)

    def begin(self, scope: anyio.CancelScope) -> None:
        if self._closing:
            raise _build_closed_error()
        self._scopes.add(scope)

    def end(self, scope: anyio.CancelScope) -> None:
        self._scopes.discard(scope)
        if self._closing and not self._scopes:
            self._all_ended.set()

    async def end_all(self) -> None:
        """End all work, refuse new work, and wait until all of it has recorded its end."""
        self._closing = True
        if not self._scopes:
            return
        for scope in tuple(self._scopes):
            scope.cancel()
        with anyio.move_on_after(END_TIMEOUT_S, shield=True):
            await self._all_ended.wait()
            return
        log.warning("%d requests did not end within %g s of closing", len(self._scopes), END_TIMEOUT_S)


class _TrackedWork:
    """One block of `InFlightWork.track`. A generator would take twice as long, in every call."""

    __slots__ = ("_scope", "_work")

    def __init__(self, work: InFlightWork) -> None:
        self._work = work
        self._scope = create_cancel_scope()

    async def __aenter__(self) -> None:
        self._work.begin(self._scope)
        self._scope.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.end(self._scope)
        self._scope.__exit__(kind, error, trace)
        if self._scope.cancelled_caught:
            await anyio.lowlevel.checkpoint_if_cancelled()  # the outer block ends too and raises the error
            raise _build_closed_error() from None


def _build_closed_error() -> FingerpostError:
    message = "the router was closed before this was over"
    hint = (
        "Let requests end before the `async with` block does. "
        "A tool that was being called may have done its work: check before you repeat it."
    )
    return FingerpostError(message, hint=hint)


MAX_KEY_LENGTH: Final = 255
MAX_KEPT_BYTES: Final = 1024 * 1024  # of one outcome; a larger one is stored without its raw result
WAIT_FOR_OTHER_PROCESS_S: Final = 15.0  # for a call that runs, or ran, in another process
POLL_INTERVAL_S: Final = 0.1

RunCall = Callable[[], Awaitable[Outcome]]


def find_key_problem(key: str) -> str | None:
    """Return why this text is not a valid key, or None if it is."""
    if 1 <= len(key) <= MAX_KEY_LENGTH and key.isprintable() and not key.isspace():
        return None
    return f"an idempotency key is a printable text of 1 to {MAX_KEY_LENGTH} characters"


class IdempotentCalls:
    """Runs calls that have an idempotency key."""

    def __init__(
        self, keys: IdempotencyStore, tasks: TaskGroup, in_flight: InFlightWork, *, seconds: float
    ) -> None:
        """`tasks` runs calls whose caller has disconnected. `seconds` is the lifetime of a key."""
        self._keys = keys
        self._tasks = tasks
        self._in_flight = in_flight
        self._key_lifetime = timedelta(seconds=seconds)
        self._running: dict[tuple[str, str], anyio.Event] = {}

    async def run_to_end(self, work: RunCall) -> Outcome:
        """Return the outcome of `work`, which continues if its caller is cancelled."""
        outcome: Outcome | None = None
        error: Exception | None = None
        over = anyio.Event()

        async def run() -> None:
            nonlocal outcome, error
            try:
                async with self._in_flight.track():
                    outcome = await work()
            except Exception as raised:  # noqa: BLE001 - raised again to the waiting caller
                error = raised
            finally:
                over.set()

        self._tasks.start_soon(run)
        await over.wait()
        if outcome is not None:
            return outcome
        raise error or FingerpostError("the router was closed before this call was over")

    def claim(self, call: Call, context: CallContext, outcomes: OutcomeBuilder) -> KeyClaim:
        """Return the claim of this call's key; enter it with `async with`. It does nothing without a key."""
        if context.idempotency_key is None:
            return KeyClaim(self, call, context, outcomes, None)
        now = utc_now()
        wanted = KeyedCall(
            caller=context.caller or "",
            key=context.idempotency_key,
            call_fingerprint=compute_call_fingerprint("", call.tool, call.arguments),
            tool=call.tool,
            call_id=context.call_id,
            began=now,
            expires=now + self._key_lifetime,
        )
        return KeyClaim(self, call, context, outcomes, wanted)

    async def take(self, wanted: KeyedCall, context: CallContext) -> KeyedCall | None:
        """Claim the key and return None, or return the call that has it, if possible after it ended."""
        first = await self._claim_or_wait(wanted, context)
        if first is None:
            self._running[wanted.caller, wanted.key] = anyio.Event()
        return first

    async def settle(self, claimed: KeyedCall, call: Call, outcome: Outcome | None) -> None:
        """Store how the call with this key ended, and wake the calls that wait for it."""
        with anyio.CancelScope(shield=True):
            await self._store_outcome(claimed, call, outcome)
        self._running.pop((claimed.caller, claimed.key)).set()

    async def _claim_or_wait(self, wanted: KeyedCall, context: CallContext) -> KeyedCall | None:
        key = (wanted.caller, wanted.key)
        timeout = context.seconds
        began = anyio.current_time()
        while True:
            first = await self._keys.claim(replace(wanted, began=utc_now()))
            if first is None or first.state is not IdempotencyState.RUNNING:
                return first
            if first.call_fingerprint != wanted.call_fingerprint:
                return first
            here = self._running.get(key)
            longest = (
                timeout
                if here is not None
                else min(WAIT_FOR_OTHER_PROCESS_S, timeout or WAIT_FOR_OTHER_PROCESS_S)
            )
            left = None if longest is None else longest - (anyio.current_time() - began)
            if left is not None and left <= 0:
                return first
            with anyio.move_on_after(left):
                await (anyio.sleep(POLL_INTERVAL_S) if here is None else here.wait())

    async def _store_outcome(self, claimed: KeyedCall, call: Call, outcome: Outcome | None) -> None:
        try:
            if outcome is not None and outcome.success and not _needs_input(outcome):
                kept = await anyio.to_thread.run_sync(_encode_outcome, outcome)
                await self._keys.finish(replace(claimed, state=IdempotencyState.DONE, outcome=kept))
            elif _may_have_taken_effect(call, outcome):
                await self._keys.finish(replace(claimed, state=IdempotencyState.UNKNOWN))
            else:
                await self._keys.release(claimed)
        except StoreError:
            # It stays recorded as running, so nothing else runs under this key.
            log.exception("the outcome of %s could not be kept under its idempotency key", claimed.call_id)


class KeyClaim:
    """The idempotency key of one call while it runs.

    `outcome` is set on entering if the call must not run: an earlier call has the key. Else set it before
    leaving; it is stored under the key. Without an outcome, the call was interrupted.
    """

    __slots__ = ("_call", "_calls", "_claimed", "_context", "_outcomes", "_wanted", "outcome")

    def __init__(
        self,
        calls: IdempotentCalls,
        call: Call,
        context: CallContext,
        outcomes: OutcomeBuilder,
        wanted: KeyedCall | None,
    ) -> None:
        self._calls = calls
        self._call = call
        self._context = context
        self._outcomes = outcomes
        self._wanted = wanted
        self._claimed = False
        self.outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        if self._wanted is not None:
            first = await self._calls.take(self._wanted, self._context)
            self._claimed = first is None
            if first is not None:
                self.outcome = self._build_outcome(self._wanted, first)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._claimed and self._wanted is not None:
            await self._calls.settle(self._wanted, self._call, self.outcome)

    def _build_outcome(self, wanted: KeyedCall, first: KeyedCall) -> Outcome:
        """Return the outcome of a call whose key the call `first` has."""
        if first.call_fingerprint != wanted.call_fingerprint:
            return self._outcomes.build_key_conflict(first.tool, first.began)
        if first.state is IdempotencyState.DONE and first.outcome is not None:
            return self._outcomes.build_replayed(from_json(Outcome, first.outcome), at=first.began)
        return self._outcomes.build_key_unfinished(
            self._call, first.began, running=first.state is IdempotencyState.RUNNING
        )


def _needs_input(outcome: Outcome) -> bool:
    return outcome.result is not None and is_input_required(outcome.result)


def _may_have_taken_effect(call: Call, outcome: Outcome | None) -> bool:
    if outcome is None:  # the call was interrupted at an unknown point
        return call.effect is not Effect.READ
    return outcome.error is ErrorKind.UNKNOWN


def _encode_outcome(outcome: Outcome) -> bytes:
    try:
        data = to_json(outcome)
    except ValueError:  # lone surrogates from a server
        data = write_json(to_valid_json(to_plain(outcome), max_depth=MAX_DEPTH + 20))
    if len(data) <= MAX_KEPT_BYTES or outcome.result is None:
        return data
    return _encode_outcome(replace(outcome, result=None))
