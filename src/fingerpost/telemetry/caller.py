"""The trace a caller is in, kept beside the task that serves them.

Surfaces note what came with a request (`traceparent` among the headers of HTTP or in the
`_meta` of MCP); spans read it when they begin. Nothing here loads OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_TRACE_HEADER_LENGTH: Final = 1_000  # characters of either

_carrier_variable: ContextVar[Mapping[str, str] | None] = ContextVar("fingerpost_trace", default=None)


def get_trace_carrier() -> Mapping[str, str] | None:
    """What the caller of this task sent along; None where nothing came."""
    return _carrier_variable.get()


@contextmanager
def use_trace_carrier(carrier: Mapping[str, object]) -> Generator[None]:
    """What happens in the block happens for a caller who sent these headers (or this `_meta`)."""
    parent = carrier.get(TRACEPARENT)
    if not isinstance(parent, str) or len(parent) > MAX_TRACE_HEADER_LENGTH:
        yield
        return
    state = carrier.get(TRACESTATE)
    kept = {TRACEPARENT: parent}
    if isinstance(state, str) and len(state) <= MAX_TRACE_HEADER_LENGTH:
        kept[TRACESTATE] = state
    token = _carrier_variable.set(kept)
    try:
        yield
    finally:
        _carrier_variable.reset(token)
