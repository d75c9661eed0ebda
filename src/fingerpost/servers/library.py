"""What a connection needs, and the way to the code that makes one.

That code and the MCP library under it take a second to load. They are loaded with the first connection, in a
thread; commands that only read the store do without them.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import anyio
import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.servers.process import LogFolder
from fingerpost.settings.model import LimitSettings

if TYPE_CHECKING:
    from fingerpost.servers.http_client import HttpClients
    from fingerpost.servers.oauth import TokenExchange

# The handshake is shared by all callers, so it declares everything any caller may be able to do. What
# a specific caller cannot do is refused when a server asks for it. Where calls have no caller (a
# command, a program), nothing is declared, so servers do not offer tools that need a caller.
ALL_CAPABILITIES: Final[JsonObject] = {
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
}


SIGN_IN_SECONDS: Final = 300.0


class SignInStore(Protocol):
    """Storage of sign-ins by server name, implemented by the store. `data` is secret."""

    async def get(self, server: str) -> bytes | None: ...

    async def put(self, server: str, data: bytes) -> None: ...

    async def has(self, server: str) -> bool: ...

    async def remove(self, server: str) -> object: ...


# Waits until no other process renews the sign-in of this name, and holds that for a block.
HoldRenewal = Callable[[str], AbstractAsyncContextManager[object]]


class ConnectLibrary:
    """The code that connects, and the HTTP clients that connections share."""

    def __init__(self) -> None:
        self.clients: HttpClients | None = None  # made by the first connection that needs them
        self._lock = anyio.Lock()

    async def load(self):
        """Return the module that connects. The first use loads it in a thread."""
        async with self._lock:  # so that many servers do not occupy a thread each
            # A package has an attribute for a module that is loaded completely.
            if not hasattr(sys.modules["fingerpost.servers"], "connect"):
                await anyio.to_thread.run_sync(import_module, "fingerpost.servers.connect")
        from fingerpost.servers import connect

        return connect

    async def open_exchange(self, spec: ServerSpec) -> TokenExchange:
        """Return the exchange of callers' tokens for those of this server."""
        connect = await self.load()
        self.clients = self.clients or connect.HttpClients()
        return connect.TokenExchange(spec, self.clients)

    async def aclose(self) -> None:
        if self.clients is not None:
            await self.clients.aclose()


@frozen
class ConnectionProfile:
    """What a replacement connection must offer before it is used instead of the existing one."""

    capabilities: JsonObject  # capabilities of the existing connection
    tool_count: int  # number of tools on the existing connection


@frozen
class GatewaySearch:
    """Where gateways of the same store are found, and who is told why one of them is not used."""

    sockets: Path  # without what differs between gateways
    report: Callable[[str], None]
    reported: set[str] = field(default_factory=set[str])  # kinds of reasons; each is reported once
    wait_seconds: float = 0.0  # for the gateway; then only the programs that it started are used


def find_gateways(sockets: Path) -> list[tuple[Path, str]]:
    """Return the sockets with their secrets, newest first. A folder that others can write to is not used."""
    try:
        check_socket_folder(sockets.parent)
        found = sorted(
            sockets.parent.glob(f"{sockets.name}-*.sock"),
            key=lambda path: path.lstat().st_mtime,
            reverse=True,
        )
    except OSError:
        return []
    gateways: list[tuple[Path, str]] = []
    for path in found:
        with suppress(OSError, ValueError):
            gateways.append((path, path.with_suffix(".key").read_text("ascii")))
    return gateways


def check_socket_folder(folder: Path) -> None:
    """Raise `PermissionError` unless the folder is this user's alone."""
    if os.name != "posix":
        raise PermissionError
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError


STATUS_REQUEST: Final = "status"
_STATUS_SECONDS: Final = 3.0
_MAX_STATUS_BYTES: Final = 1024 * 1024


def read_gateway_status(path: Path, secret: str) -> dict[str, Any] | None:
    """Return what the gateway at this socket says of itself, or None if no process answers."""
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.settimeout(_STATUS_SECONDS)
            opened.connect(str(path))
            opened.sendall(json.dumps({"secret": secret, "ask": STATUS_REQUEST}).encode() + b"\n")
            with opened.makefile("rb") as answers:
                answer = json.loads(answers.readline(_MAX_STATUS_BYTES))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


@frozen
class ConnectDeps:
    """Dependencies of a connection besides the server's entry."""

    limits: LimitSettings
    library: ConnectLibrary
    tokens: SignInStore | None
    hold_renewal: HoldRenewal = nullcontext
    abilities: Callable[[], JsonObject] = dict  # capabilities of the callers
    standard: ConnectionProfile | None = None
    # Gateways whose connections are used where possible.
    gateways: Callable[[], GatewaySearch | None] = lambda: None
    logs: Callable[[], LogFolder | None] = lambda: None  # where stderr of servers is written


async def sign_in(
    spec: ServerSpec,
    tokens: SignInStore,
    *,
    open_browser: Callable[[str], object],
    timeout: float = SIGN_IN_SECONDS,
) -> bool:
    """Sign in to this server. Return False if the server does not require it. Raises `ServerUnavailable`."""
    connect = await ConnectLibrary().load()
    return await connect.sign_in(spec, tokens, open_browser=open_browser, timeout=timeout)


SignOutResult = Literal["not signed in", "revoked", "not revoked"]


def build_user_token_name(server: str, user: str) -> str:
    """Return the name under which the sign-in of one user is stored. Server names have no `/`."""
    return f"user/{server}/{user}"
