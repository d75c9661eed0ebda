"""What an HTTP answer means when it is not simply a result: the same for both ways we speak HTTP."""

from __future__ import annotations

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from fingerpost.errors import FingerpostError, ServerReplyInvalid, ServerUnavailable
from fingerpost.servers.failures import (
    UNKNOWN_OUTCOME,
    SessionRejected,
    build_connection_failure,
    build_http_refusal,
    build_sign_in_required,
    clean_text,
)
from fingerpost.servers.lifeline import ConnectionState
from fingerpost.servers.redirects import is_same_server

JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream"
EMPTY_STATUSES = (202, 204)  # good, and without content: right for a notification, not for a request


class ReplyErrors:
    """Judges the answers of one server."""

    def __init__(self, server: str, state: ConnectionState) -> None:
        self._server = server
        self._lifeline = state

    def build_not_mcp(self, kind: str) -> FingerpostError:
        """A good status, and content that is no message."""
        if kind == "text/html":
            return build_sign_in_required(
                self._server, "it answered with a web page, which is usually a login page"
            )
        of_type = f"content of type {kind!r:.80}" if kind else "content that has no type"
        message = f"{self._server} answered with {of_type}, which is not MCP"
        return ServerReplyInvalid(message, server=self._server)

    def build_refused(self, status: int, retry_after: str | None) -> FingerpostError:
        """A status that is not a reply, and no readable error with it."""
        if status in EMPTY_STATUSES:
            return self.build_unreadable(f"is missing (HTTP {status})")
        if status >= 500:
            self._lifeline.request_probe()
        return build_http_refusal(self._server, status, retry_after)

    def build_redirected(self, here: str, status: int, location: str) -> FingerpostError:
        if is_same_server(here, status, location):
            message = f"{self._server} redirects to {location}, again and again: it leads nowhere"
            return ServerUnavailable(message, server=self._server, hint="correct its url, or its redirects")
        message = f"{self._server} redirects to {location}, another address; that is not followed"
        return ServerUnavailable(message, server=self._server, hint="use that address if it is the right one")

    def build_unreadable(self, why: str) -> ServerReplyInvalid:
        return ServerReplyInvalid(f"the reply of {self._server} {clean_text(why)}", server=self._server)

    def build_wrong_id(self, found: object) -> ServerReplyInvalid:
        return self.build_unreadable(f"carries the id of another request ({found!r:.40})")

    def build_cut_short(self) -> FingerpostError:
        message = f"{self._server} ended its reply before it was complete"
        return ServerUnavailable(message, server=self._server, hint=UNKNOWN_OUTCOME)

    def build_session_lost(self) -> FingerpostError:
        """The server forgot us. Ends the connection, so that the next call finds a new one."""
        message = f"{self._server} no longer knows our session; connecting again"
        error = SessionRejected(message, server=self._server, hint="the request did not run; send it again")
        if self._lifeline.is_initialized:
            self._lifeline.end(build_connection_failure(error))
        return error


def is_session_lost(status: int, code: int | None, session: str | None) -> bool:
    """404 is how the protocol says it; many servers say 400 with an error of their own instead."""
    if session is None or status not in (400, 404, 410):
        return False
    return code is None or code not in (INVALID_PARAMS, METHOD_NOT_FOUND)


def parse_content_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
