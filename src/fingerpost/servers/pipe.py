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
from fingerpost.servers.lifeline import Lifeline
from fingerpost.servers.stdio import Child
from fingerpost.servers.talk import Talk
from fingerpost.servers.wire import encode


class ThinPipe:
    """Asks one child that has shaken hands."""

    def __init__(self, server: str, child: Child, lifeline: Lifeline) -> None:
        self._server = server
        self._child = child
        self._lifeline = lifeline

    async def ask(
        self, method: str, params: Mapping[str, Any], talk: Talk, *, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """The raw result. Raises our errors, or `MCPError` when the child is gone. Pipes have no headers."""
        request = {"jsonrpc": "2.0", "id": talk.request, "method": method, "params": params}
        try:
            reply = await self._child.ask(talk.request, encode(request) + b"\n")
        except anyio.get_cancelled_exc_class():
            reason = {"requestId": talk.request, "reason": "the caller no longer waits"}
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason}
            self._child.say(encode(notice) + b"\n")
            raise
        await talk.flush()
        if "result" in reply:
            return reply["result"]
        error = reply["error"]
        mcp = MCPError(error["code"], error["message"], error.get("data"))
        raise from_reply(self._server, mcp, loss=self._lifeline.setback)
