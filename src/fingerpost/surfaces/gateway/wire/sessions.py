"""Who is connected (handshake era), and for how long. A session is a record: no task, no stream."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fingerpost.records import Principal
from fingerpost.surfaces.gateway.exchange import ClientRequest, RequestId
from fingerpost.surfaces.gateway.wire.audience import Notification, NotificationListeners
from fingerpost.surfaces.gateway.wire.backlog import NotificationBacklog
from fingerpost.surfaces.gateway.wire.questions import ClientQuestions
from fingerpost.surfaces.gateway.wire.running import ActiveRequest
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import Endpoint


@dataclass(slots=True, eq=False)
class McpSession:
    """One client's session. `request` is its `initialize`, as others get to see it."""

    id: str
    request: ClientRequest
    header: Header
    unsubscribe: Callable[[], None] = lambda: None
    last_seen: float = 0.0
    in_flight: dict[RequestId, ActiveRequest] = field(default_factory=dict[RequestId, ActiveRequest])
    questions: ClientQuestions = field(default_factory=ClientQuestions)
    backlog: NotificationBacklog = field(default_factory=NotificationBacklog)
    stream: object | None = None  # the GET stream that is open now

    def receive(self, notification: Notification) -> None:
        self.backlog.add(notification)

    @property
    def busy(self) -> bool:
        return bool(self.in_flight) or self.stream is not None

    def is_owned_by(self, principal: Principal, endpoint: Endpoint) -> bool:
        owner = self.request.principal
        return (
            owner.name == principal.name
            and owner.kind == principal.kind
            and self.request.endpoint.path == endpoint.path
        )


class McpSessions:
    """All sessions, the longest silent first."""

    def __init__(
        self,
        audience: NotificationListeners,
        *,
        limit: int,
        idle_seconds: float,
        on_end: Callable[[McpSession, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audience = audience
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._on_end = on_end
        self._clock = clock
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @staticmethod
    def create_id() -> str:
        return secrets.token_urlsafe(24)

    def open(self, request: ClientRequest) -> McpSession | None:
        """A session for this `initialize` request; None when there are too many busy ones."""
        if request.session is None or (len(self._sessions) >= self._limit and not self._make_room(request)):
            return None
        header = (b"mcp-session-id", request.session.encode())
        session = McpSession(id=request.session, request=request, header=header, last_seen=self._clock())
        session.unsubscribe = self._audience.add(session)
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str, principal: Principal, endpoint: Endpoint) -> McpSession | None:
        """The session of this very client: somebody else's does not exist for it."""
        session = self._sessions.get(session_id)
        if session is None or not session.is_owned_by(principal, endpoint):
            return None
        self.touch(session)
        return session

    def touch(self, session: McpSession) -> None:
        if session.id in self._sessions:
            session.last_seen = self._clock()
            self._sessions.move_to_end(session.id)

    def end_session(self, session: McpSession, reason: str) -> None:
        """Forget it, end what runs for it, and tell whoever held something for it."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.unsubscribe()
        session.questions.cancel_all()
        session.backlog.close()
        for running in list(session.in_flight.values()):
            running.cancel("The session ended.")
        self._on_end(session, reason)

    def end_idle_sessions(self) -> None:
        """End those that were silent for long."""
        limit = self._clock() - self._idle_seconds
        for session in list(self._sessions.values()):
            if session.last_seen > limit:
                return
            if not session.busy:
                self.end_session(session, f"silent for {self._idle_seconds:g} s")

    def end_all_sessions(self, reason: str) -> None:
        for session in list(self._sessions.values()):
            self.end_session(session, reason)

    def _make_room(self, request: ClientRequest) -> bool:
        """End the longest silent session that does nothing: one of the same principal, if there is any.

        So whoever opens sessions without end takes them from themselves, not from everybody else.
        """
        idle = [session for session in self._sessions.values() if not session.busy]
        own = (
            session for session in idle if session.is_owned_by(request.principal, session.request.endpoint)
        )
        leaving = next(own, None) or next(iter(idle), None)
        if leaving is None:
            return False
        self.end_session(leaving, "made room for another client")
        return True
