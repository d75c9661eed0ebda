"""What else is on the port beside MCP, each opened when it is first asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fingerpost.frozen import frozen
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.web.gate import Authenticator
from fingerpost.surfaces.web.later import LazyApp
from fingerpost.surfaces.web.port import ServedApp
from fingerpost.surfaces.web.rate import RateLimiter


@frozen(kw_only=False)
class SurfaceDeps:
    """What every surface is opened with."""

    router: Router
    authenticator: Authenticator
    address: str  # where people reach us
    loaded: Loaded | None = None  # what the settings were read from


class _StreamReaders:
    """Who reads live streams at this moment: the API knows, once it is open, and /metrics tells."""

    def __init__(self) -> None:
        self._counted: Callable[[], int] | None = None

    def set_counter(self, counter: Callable[[], int]) -> None:
        self._counted = counter

    def count(self) -> int:
        return 0 if self._counted is None else self._counted()


def build_lazy_apps(deps: SurfaceDeps) -> dict[str, LazyApp]:
    """By the first part of the paths they answer; what the settings switch off is not there."""
    settings = deps.router.settings
    rate = RateLimiter(settings.api.per_minute)  # one caller, one rate, whichever surface
    readers = _StreamReaders()
    parts: dict[str, LazyApp] = {}
    if settings.completions.enabled:
        parts["v1"] = LazyApp(lambda: _open_openai(deps, rate))
    if settings.api.enabled:
        parts["api"] = LazyApp(lambda: _open_api(deps, rate, readers))
    if settings.console.enabled:
        parts[""] = parts["console"] = LazyApp(lambda: _open_console(deps))
    parts["metrics"] = parts["readyz"] = LazyApp(lambda: _open_operations(deps, readers))
    return parts


# Each is imported by the thread that opens it.


def _open_openai(deps: SurfaceDeps, rate_limiter: RateLimiter) -> AbstractAsyncContextManager[ServedApp]:
    from fingerpost.surfaces.completions import open_openai_app

    return open_openai_app(
        deps.router, authenticator=deps.authenticator, address=deps.address, rate_limiter=rate_limiter
    )


def _open_api(
    deps: SurfaceDeps, rate_limiter: RateLimiter, readers: _StreamReaders
) -> AbstractAsyncContextManager[ServedApp]:
    from fingerpost.insight import JournalReader
    from fingerpost.surfaces.api import open_api

    @asynccontextmanager
    async def opened() -> AsyncGenerator[ServedApp]:
        router = deps.router
        async with (
            JournalReader.open(router.store, router.live) as ledger,
            open_api(
                router,
                authenticator=deps.authenticator,
                address=deps.address,
                ledger=ledger,
                rate_limiter=rate_limiter,
                loaded=deps.loaded,
            ) as api,
        ):
            readers.set_counter(lambda: api.streams)
            yield api

    return opened()


def _open_console(deps: SurfaceDeps) -> AbstractAsyncContextManager[ServedApp]:
    from fingerpost.surfaces.console import open_console

    return open_console(deps.authenticator)


def _open_operations(deps: SurfaceDeps, readers: _StreamReaders) -> AbstractAsyncContextManager[ServedApp]:
    """Counting begins with whoever reads it first: calls that nobody counts cost nothing."""
    from fingerpost.surfaces.operations import open_operations_app

    if not deps.router.settings.telemetry.metrics:
        return open_operations_app(deps.router, deps.authenticator)
    from fingerpost.telemetry.metrics import PrometheusMetrics

    metrics = PrometheusMetrics()
    deps.router.events.add(metrics)
    return open_operations_app(deps.router, deps.authenticator, metrics, streams=readers.count)
