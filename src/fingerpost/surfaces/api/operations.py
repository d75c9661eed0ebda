"""Every operation there is."""

from __future__ import annotations

from anyio.abc import TaskGroup

from fingerpost.insight.ledger import JournalReader
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api import resources
from fingerpost.surfaces.api.approvals import ApprovalOperations
from fingerpost.surfaces.api.asking import RequestOperations
from fingerpost.surfaces.api.description import ApiDescription
from fingerpost.surfaces.api.doors import ApiAuth
from fingerpost.surfaces.api.me import AccountOperations
from fingerpost.surfaces.api.operation import ApiOperation
from fingerpost.surfaces.api.packets import PacketOperations
from fingerpost.surfaces.api.resuming import ApprovalResumer
from fingerpost.surfaces.api.sessions import ConsoleSessions
from fingerpost.surfaces.api.streams import StreamSlots
from fingerpost.surfaces.api.waiting import PendingCounter
from fingerpost.tasks import run_restarting


def build_all_operations(
    router: Router,
    *,
    ledger: JournalReader,
    address: str,
    auth: ApiAuth,
    sessions: ConsoleSessions,
    streams: StreamSlots,
    tasks: TaskGroup,
    loaded: Loaded | None = None,
) -> tuple[ApiOperation, ...]:
    """All of them, the description of all of them last."""
    waiting = PendingCounter(router.calls.approvals, router.events)
    resuming = ApprovalResumer(router, tasks)
    tasks.start_soon(run_restarting, resuming.end_expired)
    operations = (
        *AccountOperations(router, address=address, auth=auth, sessions=sessions).build_operations(),
        *PacketOperations(ledger, router.store.journal, waiting, streams).build_operations(),
        *RequestOperations(router, streams).build_operations(),
        *ApprovalOperations(router, resuming).build_operations(),
        *resources.build_resource_operations(router, ledger, loaded),
    )
    return (*operations, *ApiDescription(operations, address=address).build_operations())
