"""Quotas of users, keys and profiles: rates, calls at once, tokens and cost, for all processes together."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

import anyio

from fingerpost.errors import QuotaReached, StoreError
from fingerpost.frozen import frozen
from fingerpost.records import LOCAL_NAME, Principal, Quota, QuotaSubject
from fingerpost.records.access import DAY_S, MINUTE_S, find_quota

if TYPE_CHECKING:
    from fingerpost.store.callers import QuotaStore

MAX_LEASE: Final = 1000  # units that a process takes at a time
SPARE_SLOT_S: Final = 0.25  # a slot is kept this long for the next call of the same caller
RUNNING_RETRY_S: Final = 1
_MAX_REMEMBERED: Final = 10_000  # callers

_DESCRIPTIONS: Final = {
    "requests_per_minute": "requests per minute",
    "calls_per_minute": "calls per minute",
    "running": "calls at once",
    "tokens_per_day": "tokens per day",
    "cost_per_day": "cost per day",
}


@frozen(kw_only=False)
class _AppliedQuota:
    """A quota for one user, key or profile."""

    subject: str  # such as `user dana`
    quota: Quota

    def get_limit(self, measure: str) -> float | None:
        return getattr(self.quota, measure)


@dataclass(slots=True)
class _UnitLease:
    """Units of a rate that this process has taken for one minute."""

    period: int
    left: int = 0
    wanted: int = 1  # at the next time; doubles
    exhausted: bool = False
    lock: anyio.Lock = field(default_factory=anyio.Lock)


@dataclass(slots=True)
class _Slots:
    """Slots that this process holds for one subject."""

    running: int = 0
    waiting: int = 0
    held: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def start(self) -> bool:
        """Use a free slot. Return False if there is none."""
        free = self.running < self.held
        self.running += free
        return free


class Quotas:
    """Enforces quotas. Without any, nothing is counted."""

    def __init__(
        self,
        configured: Sequence[Quota],
        store: QuotaStore,
        instance: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._configured = tuple(configured)
        self._stored: tuple[Quota, ...] = ()
        self._store = store
        self._instance = instance
        self._clock = clock
        # By the names of the user, the key and the profile.
        self._applied: dict[tuple[str, str, str | None], tuple[_AppliedQuota, ...]] = {}
        self._users: OrderedDict[str, str] = OrderedDict()  # by the name of their keys and tokens
        self._leases: dict[tuple[str, str], _UnitLease] = {}
        self._slots: dict[str, _Slots] = {}
        self._released = anyio.Event()
        self.active = bool(self._configured)

    @property
    def all(self) -> tuple[Quota, ...]:
        """All quotas: the stored ones, then those of the settings. Of each kind the first match counts."""
        return (*self._stored, *self._configured)

    def configure(self, configured: Sequence[Quota]) -> None:
        """Use these quotas of the settings from now on."""
        self._set_quotas(tuple(configured), self._stored)

    async def refresh(self) -> None:
        """Use the quotas that are in the store now."""
        stored = tuple(await self._store.list_all())
        if stored != self._stored:
            self._set_quotas(self._configured, stored)

    def _set_quotas(self, configured: tuple[Quota, ...], stored: tuple[Quota, ...]) -> None:
        self._configured, self._stored = configured, stored
        self.active = bool(configured or stored)
        self._applied.clear()
        self._leases.clear()  # a limit that was reached may be another one now

    @asynccontextmanager
    async def admit(
        self, principal: Principal, profile: str | None, *, calls: bool = False, runs: bool = False
    ) -> AsyncGenerator[None]:
        """Count a request of this caller, with `calls` also a call. With `runs` it holds a slot until the
        block ends.

        Raises `QuotaReached`.
        """
        if not self.active:
            yield
            return
        self._remember_user(principal)
        applied = self._find_applied(principal.name, profile)
        running: list[_Slots] = []
        try:
            if runs:
                for one in applied:
                    await self._start_running(one, running)
            await self._take_units(applied, requests=True, calls=calls)
            yield
        finally:
            for slots in running:
                slots.running -= 1
            if running:
                self._released.set()

    async def take_call(self, caller: str | None, profile: str | None) -> None:
        """Count one call within a request. Raises `QuotaReached`."""
        if self.active:
            applied = self._find_applied(caller or LOCAL_NAME, profile)
            await self._take_units(applied, calls=True)

    async def check_spending(self, caller: str | None, profile: str | None) -> None:
        """Raise `QuotaReached` if the tokens or the cost of today are used up."""
        if not self.active:
            return
        day = int(self._clock() // DAY_S)
        limited = [
            (one, measure, limit)
            for one in self._find_applied(caller or LOCAL_NAME, profile)
            for measure in ("tokens_per_day", "cost_per_day")
            if (limit := one.get_limit(measure)) is not None
        ]
        if not limited:
            return
        used = await self._store.get_use([(one.subject, measure, day) for one, measure, _ in limited])
        for (one, measure, limit), count in zip(limited, used, strict=True):
            if count >= limit:
                raise self._build_refusal(one, measure, DAY_S)

    def add_spending(
        self, caller: str | None, profile: str | None, *, tokens: int, cost: float | None
    ) -> None:
        """Count tokens and cost of a model."""
        if not self.active:
            return
        day = int(self._clock() // DAY_S)
        for one in self._find_applied(caller or LOCAL_NAME, profile):
            for measure, amount in (("tokens_per_day", tokens), ("cost_per_day", cost)):
                if amount and one.get_limit(measure) is not None:
                    self._store.add_use_soon(one.subject, measure, day, float(amount))

    async def return_spare_slots(self) -> None:
        """Return slots that are not used any more, until cancelled."""
        while True:
            await self._released.wait()
            self._released = anyio.Event()
            await anyio.sleep(SPARE_SLOT_S)
            for subject, slots in list(self._slots.items()):
                if slots.running < slots.held:
                    await self._return_spare(subject, slots)

    async def _return_spare(self, subject: str, slots: _Slots) -> None:
        async with slots.lock:
            before, slots.held = slots.held, slots.running
            try:
                await self._store.set_slots(subject, self._instance, slots.held)
            except StoreError:
                slots.held = before
                self._released.set()  # try again
        if not slots.held and not slots.running and not slots.waiting:
            self._slots.pop(subject, None)

    def _remember_user(self, principal: Principal) -> None:
        """Remember whose key this is: within a request only the name of the caller is known."""
        if principal.user and self._users.get(principal.name) != principal.user:
            self._users[principal.name] = principal.user
            if len(self._users) > _MAX_REMEMBERED:
                self._users.popitem(last=False)

    def _find_applied(self, caller: str, profile: str | None) -> tuple[_AppliedQuota, ...]:
        key = (self._users.get(caller, caller), caller, profile)
        found = self._applied.get(key)
        if found is None:
            if len(self._applied) >= _MAX_REMEMBERED:
                self._applied.clear()
            found = self._applied[key] = tuple(
                _AppliedQuota(f"{kind} {name}", quota)
                for kind, name in zip(get_args(QuotaSubject), key, strict=True)
                if name is not None and (quota := find_quota(self.all, kind, name)) is not None
            )
        return found

    async def _take_units(
        self, applied: Sequence[_AppliedQuota], *, requests: bool = False, calls: bool = False
    ) -> None:
        """Take units of all quotas, or of none."""
        taken: list[_UnitLease] = []
        try:
            for one in applied:
                if requests and one.quota.requests_per_minute is not None:
                    limit = one.quota.requests_per_minute
                    taken.append(await self._take_unit(one, "requests_per_minute", limit))
                if calls and one.quota.calls_per_minute is not None:
                    limit = one.quota.calls_per_minute
                    taken.append(await self._take_unit(one, "calls_per_minute", limit))
        except QuotaReached:
            for lease in taken:
                lease.left += 1
            raise

    async def _take_unit(self, one: _AppliedQuota, measure: str, limit: int) -> _UnitLease:
        """Take one unit of this minute: one that this process has, or several from the store."""
        period = int(self._clock() // MINUTE_S)
        key = (one.subject, measure)
        lease = self._leases.get(key)
        if lease is None or lease.period != period:
            if len(self._leases) >= _MAX_REMEMBERED:
                self._leases = {k: kept for k, kept in self._leases.items() if kept.period == period}
            lease = self._leases[key] = _UnitLease(period)
        if not lease.left and not lease.exhausted:
            async with lease.lock:
                if not lease.left and not lease.exhausted:
                    lease.left = await self._store.take_units(
                        one.subject, measure, period, wanted=lease.wanted, limit=limit
                    )
                    lease.wanted = min(2 * lease.wanted, MAX_LEASE)
                    lease.exhausted = not lease.left
        if not lease.left:
            raise self._build_refusal(one, measure, MINUTE_S)
        lease.left -= 1
        return lease

    async def _start_running(self, one: _AppliedQuota, running: list[_Slots]) -> None:
        limit = one.quota.running
        if limit is None:
            return
        slots = self._slots.setdefault(one.subject, _Slots())
        if not slots.start():
            slots.waiting += 1
            try:
                async with slots.lock:
                    if not slots.start():
                        # Slots that this process does not know of would not be returned before it ends.
                        with anyio.CancelScope(shield=True):
                            slots.held = await self._store.take_slots(
                                one.subject,
                                self._instance,
                                needed=slots.running + slots.waiting,
                                limit=limit,
                            )
                        if not slots.start():
                            raise self._build_refusal(one, "running", None)
            finally:
                slots.waiting -= 1
                if slots.running < slots.held:  # taken for another task, which was cancelled meanwhile
                    self._released.set()
        running.append(slots)

    def _build_refusal(self, one: _AppliedQuota, measure: str, period_s: int | None) -> QuotaReached:
        """Build the error. A period ends with the clock's minute or day (UTC)."""
        seconds = RUNNING_RETRY_S if period_s is None else math.ceil(period_s - self._clock() % period_s)
        limit = one.get_limit(measure)
        message = f"the limit of {limit:,.12g} {_DESCRIPTIONS[measure]} for {one.subject} is reached"
        return QuotaReached(message, limit=measure, seconds=seconds)
