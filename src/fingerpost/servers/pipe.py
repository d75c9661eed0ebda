"""One request to a server that is a child process, the short way: written and read without the library.

The library's dispatcher costs half a millisecond for each call. Notifications
and questions still go through it; they are rare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from fingerpost.servers.failures import from_reply
from fingerpost.servers.lifeline import ConnectionState
from fingerpost.servers.stdio import ChildServer
from fingerpost.servers.talk import InFlightRequest
from fingerpost.servers.wire import encode


class DirectStdio:
    """Asks one child that has shaken hands."""

    def __init__(self, server: str, child: ChildServer, state: ConnectionState) -> None:
        self._server = server
        self._child = child
        self._lifeline = state

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """The raw result. Raises our errors, or `MCPError` when the child is gone. Pipes have no headers."""
        request = {"jsonrpc": "2.0", "id": in_flight.request, "method": method, "params": params}
        try:
            reply = await self._child.ask(in_flight.request, encode(request) + b"\n")
        except anyio.get_cancelled_exc_class():
            reason = {"requestId": in_flight.request, "reason": "the caller no longer waits"}
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason}
            self._child.send(encode(notice) + b"\n")
            raise
        await in_flight.flush()
        if "result" in reply:
            return reply["result"]
        error = reply["error"]
        mcp = MCPError(error["code"], error["message"], error.get("data"))
        raise from_reply(self._server, mcp, failure=self._lifeline.failure)
