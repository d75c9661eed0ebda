"""A state is used once, whatever the number of gateways on one store and however often one restarts.

Leave to use a state is a one-time grant like any other: written when the state comes
back for the first time and spent in the same breath. Whoever comes second finds it spent.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from fingerpost.records import Grant, utc_now
from fingerpost.store import Store
from fingerpost.surfaces.gateway.asking.state import CLOCK_SKEW_S, RequestState

# A grant must outlive the state it stands for, or a slow clock would let the state be used again.
_REMEMBER_EXTRA_S: Final = timedelta(seconds=2 * CLOCK_SKEW_S)


async def mark_first_use(store: Store, request_state: RequestState) -> bool:
    """Whether this state is used now for the first time. It never is again."""
    return await store.grants.add_and_spend(
        Grant(
            grant_id=f"gnt_{request_state.state_id}",
            granted_by="gateway: leave to answer one question",
            granted_at=utc_now(),
            expires=datetime.fromtimestamp(request_state.expires, UTC) + _REMEMBER_EXTRA_S,
            call_fingerprint=f"state {request_state.state_id}",
        )
    )
