"""What else is on the port beside MCP, each opened when it is first asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fingerpost.frozen import frozen
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.web.gate import Gate
from fingerpost.surfaces.web.later import Later
from fingerpost.surfaces.web.port import Served
from fingerpost.surfaces.web.rate import Rate


@frozen(kw_only=False)
class House:
    """What every surface is opened with."""

    router: Router
    gate: Gate
    address: str  # where people reach us
    loaded: Loaded | None = None  # what the settings were read from


class _Readers:
    """Who reads live streams at this moment: the API knows, once it is open, and /metrics tells."""

    def __init__(self) -> None:
        self._counted: Callable[[], int] | None = None

    def counted_by(self, counted: Callable[[], int]) -> None:
        self._counted = counted

    def count(self) -> int:
        return 0 if self._counted is None else self._counted()


def surfaces(house: House) -> dict[str, Later]:
    """By the first part of the paths they answer; what the settings switch off is not there."""
    settings = house.router.settings
    rate = Rate(settings.api.per_minute)  # one caller, one rate, whichever surface
    readers = _Readers()
    parts: dict[str, Later] = {}
    if settings.completions.enabled:
        parts["v1"] = Later(lambda: _completions(house, rate))
    if settings.api.enabled:
        parts["api"] = Later(lambda: _api(house, rate, readers))
    if settings.console.enabled:
        parts[""] = parts["console"] = Later(lambda: _console(house))
    parts["metrics"] = parts["readyz"] = Later(lambda: _operations(house, readers))
    return parts


# Each is imported by the thread that opens it.


def _completions(house: House, rate: Rate) -> AbstractAsyncContextManager[Served]:
    from fingerpost.surfaces.completions import open_completions

    return open_completions(house.router, gate=house.gate, address=house.address, rate=rate)


def _api(house: House, rate: Rate, readers: _Readers) -> AbstractAsyncContextManager[Served]:
    from fingerpost.insight import Ledger
    from fingerpost.surfaces.api import open_api

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Served]:
        router = house.router
        async with (
            Ledger.open(router.store, router.live) as ledger,
            open_api(
                router,
                gate=house.gate,
                address=house.address,
                ledger=ledger,
                rate=rate,
                loaded=house.loaded,
            ) as api,
        ):
            readers.counted_by(lambda: api.streams)
            yield api

    return opened()


def _console(house: House) -> AbstractAsyncContextManager[Served]:
    from fingerpost.surfaces.console import open_console

    return open_console(house.gate)


def _operations(house: House, readers: _Readers) -> AbstractAsyncContextManager[Served]:
    """Counting begins with whoever reads it first: calls that nobody counts cost nothing."""
    from fingerpost.surfaces.operations import open_operations

    if not house.router.settings.telemetry.metrics:
        return open_operations(house.router, house.gate)
    from fingerpost.telemetry.metrics import Metrics

    metrics = Metrics()
    house.router.events.add(metrics)
    return open_operations(house.router, house.gate, metrics, streams=readers.count)
