"""Every operation there is."""

from __future__ import annotations

from anyio.abc import TaskGroup

from fingerpost.insight.ledger import Ledger
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api import resources
from fingerpost.surfaces.api.approvals import Inbox
from fingerpost.surfaces.api.asking import Counter
from fingerpost.surfaces.api.description import Description
from fingerpost.surfaces.api.doors import Doors
from fingerpost.surfaces.api.me import Desk
from fingerpost.surfaces.api.operation import Operation
from fingerpost.surfaces.api.packets import Packets
from fingerpost.surfaces.api.resuming import Resuming
from fingerpost.surfaces.api.sessions import Sessions
from fingerpost.surfaces.api.streams import Streams
from fingerpost.surfaces.api.waiting import Waiting
from fingerpost.tasks import kept_up


def all_operations(
    router: Router,
    *,
    ledger: Ledger,
    address: str,
    doors: Doors,
    sessions: Sessions,
    streams: Streams,
    tasks: TaskGroup,
    loaded: Loaded | None = None,
) -> tuple[Operation, ...]:
    """All of them, the description of all of them last."""
    waiting = Waiting(router.calls.approvals, router.events)
    resuming = Resuming(router, tasks)
    tasks.start_soon(kept_up, resuming.end_expired)
    operations = (
        *Desk(router, address=address, doors=doors, sessions=sessions).operations(),
        *Packets(ledger, router.store.journal, waiting, streams).operations(),
        *Counter(router, streams).operations(),
        *Inbox(router, resuming).operations(),
        *resources.operations(router, ledger, loaded),
    )
    return (*operations, *Description(operations, address=address).operations())
