"""Going on with requests whose call a person decided, when nobody else does.

A program or a chat client that holds the request goes on by itself; whoever comes second
finds it done. A request goes on within the bounds of whoever asked it, not of the person
who approved.
"""

from __future__ import annotations

import logging

from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.events import RouteBegan
from fingerpost.records import Pending, Principal, utc_now
from fingerpost.router import Router
from fingerpost.surfaces.web.asgi import Fault
from fingerpost.surfaces.web.reach import Reach, reach_of

log = logging.getLogger("fingerpost.api")

_NO_REQUEST = "The call belongs to no request: its client makes it again, and then it runs."
_NOT_KNOWN = "Whoever asked for it may not any more: its key does not hold."


class Resuming:
    """Resumes in the background, one packet at a time."""

    def __init__(self, router: Router, tasks: TaskGroup) -> None:
        self._router = router
        self._tasks = tasks
        self._under_way: set[str] = set()

    async def start(self, pending: Pending) -> str | None:
        """Go on with the request of this call. None: it goes on; else why it does not."""
        if pending.packet_id is None:
            return _NO_REQUEST
        reach = await self._reach(pending, pending.packet_id)
        if reach is None:
            return _NOT_KNOWN
        if pending.packet_id not in self._under_way:
            self._under_way.add(pending.packet_id)
            self._tasks.start_soon(self._run, pending, pending.packet_id, reach)
        return None

    async def _run(self, pending: Pending, packet_id: str, reach: Reach) -> None:
        try:
            await self._router.resume(
                pending.pending_id, caller=pending.caller, profile=reach.profile, scopes=reach.scopes
            )
        except FingerpostError as error:
            log.warning("%s could not go on after %s was decided: %s", packet_id, pending.pending_id, error)
        except Exception:
            log.exception("%s could not go on after %s was decided", packet_id, pending.pending_id)
        finally:
            self._under_way.discard(packet_id)

    async def _reach(self, pending: Pending, packet_id: str) -> Reach | None:
        """The bounds of whoever asked; None where they may not ask any more."""
        caller = await self._caller(pending.caller)
        if caller is None:
            return None
        begun = await self._router.store.journal.events(packet_id=packet_id, kinds=(RouteBegan.kind,))
        profiles = [entry.event.profile for entry in begun if isinstance(entry.event, RouteBegan)]
        try:
            return reach_of(caller, profiles[-1] if profiles else None, self._router.profiles)
        except Fault:
            return None

    async def _caller(self, name: str | None) -> Principal | None:
        """Whoever asked, with what bounds them now; what bounded them then, the journal adds."""
        if name is None or name == "local" or name.startswith("token:"):
            return Principal(name=name or "")
        now = utc_now()
        for key in await self._router.store.keys.all():
            if key.name == name and key.holds(now):
                return Principal(name=name, kind="key", scope=key.scope, profiles=key.profiles)
        return None
