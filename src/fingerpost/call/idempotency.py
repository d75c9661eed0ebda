"""Calls with an idempotency key: the same key and the same call run once.

The key is its caller's own and lives in the store, so it holds across restarts and for every
process on the same store, for `call.idempotency_seconds` from the first call.

- The call succeeded: the same call with the key gets that outcome again, and says so.
- It is still running: the second waits for it.
- It failed, was refused or waits for a person: nothing came of it, and the key may be used again.
- Whether it took effect is unknown: that is the answer, and nothing runs under this key any more.
- Other arguments or another tool: an error.

A call with a key goes on when its caller leaves (`IdempotentCalls.run_to_end`), because a caller who lost the
connection comes back for the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic_core import to_json as write_json

from fingerpost.call.execution import is_input_required
from fingerpost.call.fingerprints import compute_call_fingerprint
from fingerpost.call.outcomes import OutcomeBuilder
from fingerpost.call.under_way import InFlightWork
from fingerpost.errors import FingerpostError, StoreError
from fingerpost.records import Call, CallContext, Effect, ErrorKind, Outcome, utc_now
from fingerpost.records.codec import from_json, to_json, to_plain
from fingerpost.records.json import MAX_DEPTH, to_valid_json
from fingerpost.store.idempotency import IdempotencyState, IdempotencyStore, KeyedCall

log = logging.getLogger("fingerpost.call")

MAX_KEY_LENGTH: Final = 255
MAX_KEPT_BYTES: Final = 1024 * 1024  # of one outcome; the raw result of a larger one is left out
WAIT_FOR_OTHER_PROCESS_S: Final = (
    15.0  # for a call that runs in another process, or was running in one that died
)
POLL_INTERVAL_S: Final = 0.1

RunCall = Callable[[], Awaitable[Outcome]]


def validate_key(key: str) -> str | None:
    """Why this text cannot be a key, or None when it can."""
    if 1 <= len(key) <= MAX_KEY_LENGTH and key.isprintable() and not key.isspace():
        return None
    return f"an idempotency key is a printable text of 1 to {MAX_KEY_LENGTH} characters"


class IdempotentCalls:
    """Runs calls that have a key."""

    def __init__(
        self, keys: IdempotencyStore, tasks: TaskGroup, under_way: InFlightWork, *, seconds: float
    ) -> None:
        """`tasks` is where a call goes on when its caller has left; `seconds` is how long a key holds."""
        self._keys = keys
        self._tasks = tasks
        self._under_way = under_way
        self._lasts = timedelta(seconds=seconds)
        self._running: dict[tuple[str, str], anyio.Event] = {}

    async def run_to_end(self, work: RunCall) -> Outcome:
        """What `work` comes to. When whoever waits for it leaves, it goes on."""
        outcome: Outcome | None = None
        error: Exception | None = None
        over = anyio.Event()

        async def run() -> None:
            nonlocal outcome, error
            try:
                async with self._under_way.track():
                    outcome = await work()
            except Exception as raised:  # noqa: BLE001 - raised again where somebody waits for it
                error = raised
            finally:
                over.set()

        self._tasks.start_soon(run)
        await over.wait()
        if outcome is not None:
            return outcome
        raise error or FingerpostError("the router was closed before this call was over")

    async def run_once(
        self, call: Call, context: CallContext, outcomes: OutcomeBuilder, run: RunCall
    ) -> Outcome:
        """What `run` comes to, or what the call of this key came to before."""
        key = context.idempotency_key
        assert key is not None
        now = utc_now()
        wanted = KeyedCall(
            caller=context.caller or "",
            key=key,
            call_fingerprint=compute_call_fingerprint("", call.tool, call.arguments),
            tool=call.tool,
            call_id=context.call_id,
            began=now,
            expires=now + self._lasts,
        )
        first = await self._claim_or_wait(wanted, context)
        if first is None:
            return await self._run_claimed(wanted, call, run)
        if first.call_fingerprint != wanted.call_fingerprint:
            return outcomes.build_key_conflict(first.tool, first.began)
        if first.state is IdempotencyState.DONE and first.outcome is not None:
            return outcomes.build_replayed(from_json(Outcome, first.outcome), at=first.began)
        return outcomes.build_key_unfinished(
            call, first.began, running=first.state is IdempotencyState.RUNNING
        )

    async def _claim_or_wait(self, wanted: KeyedCall, context: CallContext) -> KeyedCall | None:
        """None when the key is ours now; else the call that has it, ended if it ends in our time."""
        place = (wanted.caller, wanted.key)
        patience = context.seconds
        began = anyio.current_time()
        while True:
            first = await self._keys.claim(replace(wanted, began=utc_now()))
            if first is None or first.state is not IdempotencyState.RUNNING:
                return first
            if first.call_fingerprint != wanted.call_fingerprint:
                return first
            here = self._running.get(place)
            longest = (
                patience
                if here is not None
                else min(WAIT_FOR_OTHER_PROCESS_S, patience or WAIT_FOR_OTHER_PROCESS_S)
            )
            left = None if longest is None else longest - (anyio.current_time() - began)
            if left is not None and left <= 0:
                return first
            with anyio.move_on_after(left):
                await (anyio.sleep(POLL_INTERVAL_S) if here is None else here.wait())

    async def _run_claimed(self, claimed: KeyedCall, call: Call, run: RunCall) -> Outcome:
        place = (claimed.caller, claimed.key)
        over = self._running[place] = anyio.Event()
        outcome: Outcome | None = None
        try:
            outcome = await run()
            return outcome
        finally:
            with anyio.CancelScope(shield=True):
                await self._store_outcome(claimed, call, outcome)
            del self._running[place]
            over.set()

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
            # It stays on record as running: nothing more runs under this key.
            log.exception("the outcome of %s could not be kept under its idempotency key", claimed.call_id)


def _needs_input(outcome: Outcome) -> bool:
    return outcome.result is not None and is_input_required(outcome.result)


def _may_have_taken_effect(call: Call, outcome: Outcome | None) -> bool:
    if outcome is None:  # it was cut short, and how far it had come is not known here
        return call.effect is not Effect.READ
    return outcome.error is ErrorKind.UNKNOWN


def _encode_outcome(outcome: Outcome) -> bytes:
    try:
        data = to_json(outcome)
    except ValueError:  # half a character, from a server
        data = write_json(to_valid_json(to_plain(outcome), max_depth=MAX_DEPTH + 20))
    if len(data) <= MAX_KEPT_BYTES or outcome.result is None:
        return data
    return _encode_outcome(replace(outcome, result=None))
