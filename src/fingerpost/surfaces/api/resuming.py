"""Going on with requests whose call a person decided, when nobody else does.

A program or a chat client that holds the request goes on by itself; whoever comes second
finds it done. A request goes on within the bounds of whoever asked it, not of the person
who approved. One that was asked on its caller's own terms (a model, options, tools) is left to
that caller, because the terms are kept nowhere: they come again with the next message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, StoreError
from fingerpost.events import RouteBegan, RouteEnded
from fingerpost.records import Decision, Pending, Principal, RouteOutcome, utc_now
from fingerpost.router import Router
from fingerpost.surfaces.web.asgi import HttpError
from fingerpost.surfaces.web.reach import AccessScope, resolve_access_scope

log = logging.getLogger("fingerpost.api")

CHECK_INTERVAL_S: Final = 1.0
LOOK_BACK: Final = timedelta(days=1)  # for calls whose time was over while nothing was running here
_NO_REQUEST_MESSAGE = "The call belongs to no request: its client makes it again, and then it runs."
_CLIENT_RESUMES_MESSAGE = (
    "The program that asked goes on with it: at once where it still waits, else when it next sends a message "
    "(within {seconds:.0f} s of an approval; later it has to ask again)."
)
_UNKNOWN_CALLER_MESSAGE = "Whoever asked for it may not any more: its key does not hold."


class ApprovalResumer:
    """Resumes in the background, one packet at a time."""

    def __init__(self, router: Router, tasks: TaskGroup) -> None:
        self._router = router
        self._tasks = tasks
        self._under_way: set[str] = set()

    async def start_resuming(self, pending: Pending) -> str | None:
        """Go on with every request that waits for this call. None: one goes on; else why none does."""
        if pending.packet_id is None:
            return _NO_REQUEST_MESSAGE
        notes = [await self._start_packet(pending, packet_id) for packet_id in pending.packets]
        return None if None in notes else notes[0]

    async def _start_packet(self, pending: Pending, packet_id: str) -> str | None:
        begun = await self._find_route_starts(packet_id)
        if any(event.own_terms for event in begun) and pending.decision is not Decision.EXPIRED:
            return _CLIENT_RESUMES_MESSAGE.format(seconds=self._router.settings.call.grant_seconds)
        reach = await self._resolve_access_scope(pending, begun)
        if reach is None:
            return _UNKNOWN_CALLER_MESSAGE
        if packet_id not in self._under_way:
            self._under_way.add(packet_id)
            self._tasks.start_soon(self._resume_packet, pending, packet_id, reach)
        return None

    async def end_expired(self) -> None:
        """End requests whose call nobody decided about in time, whoever asked them. Until cancelled."""
        ended: set[str] = set()
        while True:
            try:
                for pending in await self._router.store.approvals.list_expired(since=utc_now() - LOOK_BACK):
                    if pending.pending_id not in ended:
                        ended.add(pending.pending_id)
                        await self._end_pending(pending)
            except StoreError as error:  # it may be back in a moment
                log.warning("calls that nobody decided about in time could not be read: %s", error)
            await anyio.sleep(CHECK_INTERVAL_S)

    async def _end_pending(self, pending: Pending) -> None:
        for packet_id in pending.packets:
            ends = await self._router.store.journal.list_events(packet_id=packet_id, kinds=(RouteEnded.kind,))
            last = ends[-1].event if ends else None
            if isinstance(last, RouteEnded) and last.outcome is RouteOutcome.WAITING:
                await self._start_packet(pending, packet_id)

    async def _resume_packet(self, pending: Pending, packet_id: str, access_scope: AccessScope) -> None:
        try:
            await self._router.resume(
                pending.pending_id,
                packet_id=packet_id,
                caller=pending.caller,
                profile=access_scope.profile,
                scopes=access_scope.scopes,
            )
        except FingerpostError as error:
            log.warning("%s could not go on after %s was decided: %s", packet_id, pending.pending_id, error)
        except Exception:
            log.exception("%s could not go on after %s was decided", packet_id, pending.pending_id)
        finally:
            self._under_way.discard(packet_id)

    async def _find_route_starts(self, packet_id: str) -> list[RouteBegan]:
        """How the request set out, and each time somebody went on with it."""
        entries = await self._router.store.journal.list_events(packet_id=packet_id, kinds=(RouteBegan.kind,))
        return [entry.event for entry in entries if isinstance(entry.event, RouteBegan)]

    async def _resolve_access_scope(
        self, pending: Pending, begun: Sequence[RouteBegan]
    ) -> AccessScope | None:
        """The bounds of whoever asked; None where they may not ask any more."""
        caller = await self._find_caller(pending.caller)
        if caller is None:
            return None
        try:
            return resolve_access_scope(caller, begun[-1].profile if begun else None, self._router.profiles)
        except HttpError:
            return None

    async def _find_caller(self, name: str | None) -> Principal | None:
        """Whoever asked, with what bounds them now; what bounded them then, the journal adds."""
        if name is None or name == "local" or name.startswith("token:"):
            return Principal(name=name or "")
        now = utc_now()
        for key in await self._router.store.keys.list_all():
            if key.name == name and key.is_valid(now):
                return Principal(name=name, kind="key", scope=key.scope, profiles=key.profiles)
        return None
