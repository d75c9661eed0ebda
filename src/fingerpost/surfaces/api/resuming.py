"""Going on with requests whose call a person decided, when nobody else does.

A program or a chat client that holds the request goes on by itself; whoever comes second
finds it done. A request goes on within the bounds of whoever asked it, not of the person
who approved. One that was asked on its caller's own terms (a model, options, tools) is left to
that caller, because the terms are kept nowhere: they come again with the next message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.events import RouteBegan
from fingerpost.records import Pending, Principal, utc_now
from fingerpost.router import Router
from fingerpost.surfaces.web.asgi import Fault
from fingerpost.surfaces.web.reach import Reach, reach_of

log = logging.getLogger("fingerpost.api")

_NO_REQUEST = "The call belongs to no request: its client makes it again, and then it runs."
_THEIRS = (
    "The program that asked goes on with it: at once where it still waits, else when it next sends a message "
    "(within {seconds:.0f} s of an approval; later it has to ask again)."
)
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
        begun = await self._begun(pending.packet_id)
        if any(event.own_terms for event in begun):
            return _THEIRS.format(seconds=self._router.settings.call.grant_seconds)
        reach = await self._reach(pending, begun)
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

    async def _begun(self, packet_id: str) -> list[RouteBegan]:
        """How the request set out, and each time somebody went on with it."""
        entries = await self._router.store.journal.events(packet_id=packet_id, kinds=(RouteBegan.kind,))
        return [entry.event for entry in entries if isinstance(entry.event, RouteBegan)]

    async def _reach(self, pending: Pending, begun: Sequence[RouteBegan]) -> Reach | None:
        """The bounds of whoever asked; None where they may not ask any more."""
        caller = await self._caller(pending.caller)
        if caller is None:
            return None
        try:
            return reach_of(caller, begun[-1].profile if begun else None, self._router.profiles)
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
