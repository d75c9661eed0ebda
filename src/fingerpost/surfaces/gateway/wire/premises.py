"""What all parts of the wire share while the gateway is open."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from fingerpost.events import ClientLeft, EventSink
from fingerpost.records import Principal
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.gateway.exchange import McpMethods
from fingerpost.surfaces.gateway.wire.audience import NotificationListeners
from fingerpost.surfaces.gateway.wire.doors import GatewayAuth
from fingerpost.surfaces.gateway.wire.http import McpHttpRequest
from fingerpost.surfaces.gateway.wire.running import ActiveRequest, ActiveRequests
from fingerpost.surfaces.gateway.wire.sessions import McpSession, McpSessions

log = logging.getLogger("fingerpost.gateway")

SHUTDOWN_MESSAGE = "Fingerpost is shutting down; try again when it is back."


class GatewayState:
    """Methods, sessions, listeners, and a place for tasks that outlive one step of a request."""

    def __init__(
        self,
        methods: McpMethods,
        settings: GatewaySettings,
        events: EventSink,
        audience: NotificationListeners,
        auth: GatewayAuth | None = None,
    ) -> None:
        """`doors` are those that HTTP clients come in by."""
        self.methods = methods
        self.settings = settings
        self.events = events
        self.audience = audience
        self._auth = auth
        self.closing = anyio.Event()
        self.open_streams = 0  # subscription streams open now
        self.sessions = McpSessions(
            audience,
            limit=settings.max_sessions,
            idle_seconds=settings.session_seconds,
            on_end=self._on_session_end,
        )
        self._at_close: dict[object, Callable[[], None]] = {}
        self.active_requests = ActiveRequests()
        self._tasks: TaskGroup | None = None

    @property
    def task_group(self) -> TaskGroup:
        if self._tasks is None:
            problem = "The gateway is not open: use `async with GatewayApp(…)`."
            raise RuntimeError(problem)
        return self._tasks

    def set_tasks(self, tasks: TaskGroup | None) -> None:
        self._tasks = tasks

    def start_request(self) -> ActiveRequest:
        """For a request that is about to be answered: `end` on it stops it."""
        return ActiveRequest(self.active_requests)

    async def is_still_admitted(self, http_request: McpHttpRequest, principal: Principal) -> bool:
        """Whether a stream that this request opened may stay open."""
        return self._auth is None or await self._auth.is_still_admitted(http_request, principal)

    def call_at_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `end` called when the gateway closes; the result takes that back."""
        key = object()
        self._at_close[key] = callback

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
        self.sessions.end_all_sessions("the gateway closed")

    def forget_session(self, session: str) -> None:
        """Tell the methods that a session or a stream is no more."""
        try:
            self.methods.forget_session(session)
        except Exception:
            log.exception("What was held for a client could not be dropped")

    def _on_session_end(self, session: McpSession, reason: str) -> None:
        opening = session.request
        self.events.emit(
            ClientLeft(
                client=opening.client,
                endpoint=opening.endpoint.path,
                principal=opening.principal.name,
                reason=reason,
            )
        )
        self.forget_session(session.id)
