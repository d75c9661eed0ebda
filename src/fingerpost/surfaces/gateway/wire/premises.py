"""What all parts of the wire share while the gateway is open."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from fingerpost.events import ClientLeft, EventSink
from fingerpost.records import Principal
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.gateway.exchange import Methods
from fingerpost.surfaces.gateway.wire.audience import Listeners
from fingerpost.surfaces.gateway.wire.doors import Doors
from fingerpost.surfaces.gateway.wire.http import Inbound
from fingerpost.surfaces.gateway.wire.running import Running, Work
from fingerpost.surfaces.gateway.wire.sessions import Session, Sessions

log = logging.getLogger("fingerpost.gateway")

CLOSING = "Fingerpost is shutting down; try again when it is back."


class Premises:
    """Methods, sessions, listeners, and a place for tasks that outlive one step of a request."""

    def __init__(
        self,
        methods: Methods,
        settings: GatewaySettings,
        events: EventSink,
        audience: Listeners,
        doors: Doors | None = None,
    ) -> None:
        """`doors` are those that HTTP clients come in by."""
        self.methods = methods
        self.settings = settings
        self.events = events
        self.audience = audience
        self._doors = doors
        self.closing = anyio.Event()
        self.listening = 0  # subscription streams open now
        self.sessions = Sessions(
            audience,
            limit=settings.max_sessions,
            idle_seconds=settings.session_seconds,
            left=self._session_left,
        )
        self._at_close: dict[object, Callable[[], None]] = {}
        self.work = Work()
        self._tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        if self._tasks is None:
            problem = "The gateway is not open: use `async with GatewayApp(…)`."
            raise RuntimeError(problem)
        return self._tasks

    def use(self, tasks: TaskGroup | None) -> None:
        self._tasks = tasks

    def running(self) -> Running:
        """For a request that is about to be answered: `end` on it stops it."""
        return Running(self.work)

    async def still_admit(self, inbound: Inbound, principal: Principal) -> bool:
        """Whether a stream that this request opened may stay open."""
        return self._doors is None or await self._doors.still_admit(inbound, principal)

    def at_close(self, end: Callable[[], None]) -> Callable[[], None]:
        """Have `end` called when the gateway closes; the result takes that back."""
        key = object()
        self._at_close[key] = end

        def forget() -> None:
            self._at_close.pop(key, None)

        return forget

    def end_streams(self) -> None:
        """Streams of news come to their end in good order."""
        for end in list(self._at_close.values()):
            end()

    def close(self) -> None:
        """No new streams or sessions; open streams end in good order."""
        self.closing.set()
        self.end_streams()
        self.sessions.end_all("the gateway closed")

    def left(self, session: str) -> None:
        """Tell the methods that a session or a stream is no more."""
        try:
            self.methods.left(session)
        except Exception:
            log.exception("What was held for a client could not be dropped")

    def _session_left(self, session: Session, reason: str) -> None:
        opening = session.request
        self.events.emit(
            ClientLeft(
                client=opening.client,
                endpoint=opening.endpoint.path,
                principal=opening.principal.name,
                reason=reason,
            )
        )
        self.left(session.id)
