"""What an HTTP answer means when it is not simply a result: the same for both ways we speak HTTP."""

from __future__ import annotations

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from fingerpost.errors import FingerpostError, ServerReplyInvalid, ServerUnavailable
from fingerpost.servers.failures import (
    UNKNOWN_OUTCOME,
    SessionLost,
    readable,
    refusal,
    setback_of,
    sign_in_needed,
)
from fingerpost.servers.lifeline import Lifeline
from fingerpost.servers.redirects import stays

JSON = "application/json"
EVENTS = "text/event-stream"
NO_REPLY = (202, 204)  # good, and without content: right for a notification, not for a request


class Replies:
    """Judges the answers of one server."""

    def __init__(self, server: str, lifeline: Lifeline) -> None:
        self._server = server
        self._lifeline = lifeline

    def not_mcp(self, kind: str) -> FingerpostError:
        """A good status, and content that is no message."""
        if kind == "text/html":
            return sign_in_needed(self._server, "it answered with a web page, which is usually a login page")
        of_type = f"content of type {kind!r:.80}" if kind else "content that has no type"
        message = f"{self._server} answered with {of_type}, which is not MCP"
        return ServerReplyInvalid(message, server=self._server)

    def refused(self, status: int, retry_after: str | None) -> FingerpostError:
        """A status that is not a reply, and no readable error with it."""
        if status in NO_REPLY:
            return self.unreadable(f"is missing (HTTP {status})")
        if status >= 500:
            self._lifeline.doubt()
        return refusal(self._server, status, retry_after)

    def redirected(self, here: str, status: int, location: str) -> FingerpostError:
        if stays(here, status, location):
            message = f"{self._server} redirects to {location}, again and again: it leads nowhere"
            return ServerUnavailable(message, server=self._server, hint="correct its url, or its redirects")
        message = f"{self._server} redirects to {location}, another address; that is not followed"
        return ServerUnavailable(message, server=self._server, hint="use that address if it is the right one")

    def unreadable(self, why: str) -> ServerReplyInvalid:
        return ServerReplyInvalid(f"the reply of {self._server} {readable(why)}", server=self._server)

    def another_id(self, found: object) -> ServerReplyInvalid:
        return self.unreadable(f"carries the id of another request ({found!r:.40})")

    def cut_short(self) -> FingerpostError:
        message = f"{self._server} ended its reply before it was complete"
        return ServerUnavailable(message, server=self._server, hint=UNKNOWN_OUTCOME)

    def session_lost(self) -> FingerpostError:
        """The server forgot us. Ends the connection, so that the next call finds a new one."""
        message = f"{self._server} no longer knows our session; connecting again"
        error = SessionLost(message, server=self._server, hint="the request did not run; send it again")
        if self._lifeline.handshaken:
            self._lifeline.end(setback_of(error))
        return error


def says_session_lost(status: int, code: int | None, session: str | None) -> bool:
    """404 is how the protocol says it; many servers say 400 with an error of their own instead."""
    if session is None or status not in (400, 404, 410):
        return False
    return code is None or code not in (INVALID_PARAMS, METHOD_NOT_FOUND)


def kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
