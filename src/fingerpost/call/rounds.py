"""Leave for the further rounds of a call that somebody was asked about.

A grant holds for one call. When the server answers it with `input_required`, the
caller comes back with the same call and the server's own state of it: that is the
same call going on, not another one. Leave is therefore kept until then, for
exactly this call, this caller and this state, once, and for a while only.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fingerpost.records import Call, CallContext, JsonObject, Permit
from fingerpost.servers.caller import RequestContext

ROUND_SECONDS: Final = 900.0
MAX_KEPT_ROUNDS: Final = 1000

RoundKey = tuple[str, str | None, str | None, str | None]


class RoundPermits:
    """The calls that were allowed by a person and wait for their caller's next round."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[RoundKey, tuple[float, Permit]] = OrderedDict()

    def keep_permit(self, call: Call, context: CallContext, result: JsonObject, permit: Permit) -> None:
        """The server asks for more input: whoever answers it has leave to go on."""
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
        """Leave to go on with the call, when this is its next round."""
        if request_context is None or not request_context.is_continuation:
            return None
        until, leave = self._kept.pop(
            _build_round_key(call, context, request_context.request_state), (0.0, None)
        )
        return leave if self._clock() < until else None


def _build_round_key(call: Call, context: CallContext, state: str | None) -> RoundKey:
    return (call.fingerprint, context.caller, context.conversation, state)
