"""`fingerpost builtin`: list the built-in servers, or run one of them on stdio or over HTTP."""

from __future__ import annotations

import hashlib
import hmac
import os
import signal
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import click
import orjson
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from fingerpost.builtin import SERVER_NAMES, BuiltinHost, make_server
from fingerpost.builtin.registry import SERVER_TITLES
from fingerpost.builtin.workspace.server import build_unreviewed_writes
from fingerpost.errors import ConfigError
from fingerpost.settings.validation import is_loopback
from fingerpost.surfaces.cli.commands import KEY_VARIABLE
from fingerpost.surfaces.cli.common import read_settings
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import clean_text, print_json, print_note, print_table
from fingerpost.surfaces.cli.streams import style_text
from fingerpost.surfaces.http.addresses import AllowedHosts, Authority
from fingerpost.surfaces.http.asgi import (
    JSON_TYPE,
    AsgiMessage,
    AsgiScope,
    HttpError,
    Receive,
    Send,
    parse_headers,
    respond,
)
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from fingerpost.builtin.toolkit import BuiltinServer


MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 200  # of the older protocol; the newer one has no sessions
SESSION_IDLE_SECONDS: Final = 30 * 60.0
MCP_PATH: Final = "/mcp"
MIN_KEY_LENGTH: Final = 16
MAX_KEY_LENGTH: Final = 4096
_CHALLENGE_HEADER: Final = (b"www-authenticate", b'Bearer realm="fingerpost"')
_KEY_NEEDED_MESSAGE: Final = "A key is needed: send it as `Authorization: Bearer …` or `X-API-Key: …`."
_INVALID_KEY_MESSAGE: Final = "The key is not valid. Ask its operator for the right one."


async def serve_stdio(server: BuiltinServer) -> None:
    """Serve on standard input and output until the client closes them or the process is terminated."""
    ended = anyio.Event()
    terminated = False

    async def run_server() -> None:
        async with stdio_server() as (read, write):
            await server.mcp.run(read, write, server.mcp.create_initialization_options())
        ended.set()

    async def wait_for_signal() -> None:
        nonlocal terminated
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for _ in received:
                terminated = True
                ended.set()

    async with anyio.create_task_group() as tasks:
        async with server.open():
            tasks.start_soon(run_server)
            tasks.start_soon(wait_for_signal)
            await ended.wait()
        if terminated:
            # All resources of the server are closed. A thread still waits for input that may never come,
            # and it cannot be interrupted.
            os._exit(0)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_http(server: BuiltinServer) -> AsyncGenerator[ASGIApp]:
    """Yield the server as a streamable HTTP app. The caller is responsible for authentication."""
    manager = StreamableHTTPSessionManager(
        server.mcp,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_SECONDS,
    )
    async with server.open(), manager.run():
        yield manager.handle_request


def read_key(value: str | None, file: Path | None) -> str:
    """Return the API key. Raises `ConfigError` if it is missing or weak."""
    if file is not None:
        try:
            with file.open(encoding="utf-8") as lines:
                value = lines.readline(MAX_KEY_LENGTH)
        except (OSError, UnicodeDecodeError) as error:
            message = f"the key cannot be read from {file}: {error}"
            raise ConfigError(message, hint="name a file whose first line is the key") from error
    key = (value or "").strip()
    if not key:
        raise ConfigError(
            "over HTTP the server needs a key; without one, every program that reaches it could use it",
            hint="write one into a file (`openssl rand -hex 32 > key.txt`) and name it with --key-file, "
            "or put it into the variable FINGERPOST_BUILTIN_KEY",
        )
    if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
        message = f"the key must be at least {MIN_KEY_LENGTH} ASCII characters without spaces"
        raise ConfigError(message, hint="`openssl rand -hex 32` makes a good one")
    return key


async def serve_http(server: BuiltinServer, common: CommonOptions, *, host: str, port: int, key: str) -> int:
    """Serve until a signal. Raises `ConfigError` if the address cannot be bound."""
    gateway = (await anyio.to_thread.run_sync(read_settings, common)).settings.gateway
    listening = listen_at(host, port)
    with listening:
        bound = get_address(listening)
        hosts = AllowedHosts(
            gateway.model_copy(update={"host": host}), Authority.parse(bound) or Authority(host, port)
        )
        async with open_http(server) as app:
            await serve_app(
                KeyedApp(app, hosts=hosts, key=key),
                listening,
                arrival_seconds=gateway.request_seconds,
                on_started=lambda: _print_address(
                    server, f"http://{bound}{MCP_PATH}", host, as_json=common.as_json
                ),
            )
    return 0


def _print_address(server: BuiltinServer, address: str, host: str, *, as_json: bool) -> None:
    if not is_loopback(host):
        note = "without encryption the key can be read in transit: put a proxy with TLS in front"
        print_note(note)
    if as_json:
        print_json({"name": server.name, "address": address, "tools": list(server.tools)})
    else:
        click.echo(f"Serving {server.name} at {style_text(address, bold=True)} (Ctrl-C stops it)")


class KeyedApp:
    """ASGI wrapper that checks host and API key, and drains requests on shutdown."""

    def __init__(self, app: ASGIApp, *, hosts: AllowedHosts, key: str) -> None:
        self._app = app
        self._hosts = hosts
        self._digest = _hash_key(key)
        self._streams: set[anyio.CancelScope] = set()
        self._calls: set[anyio.CancelScope] = set()
        self._closed = False
        self._calls_done = anyio.Event()  # set when no call is running after the close

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            headers, _ = parse_headers(scope["headers"])
            self._check_request(scope["path"], headers)
        except HttpError as fault:
            body = orjson.dumps({"error": fault.message})
            await respond(send, fault.status, body, (JSON_TYPE, *fault.headers))
            return
        answer = _ResponseTracker(send)
        # A GET is a notification stream, which does not end by itself.
        with (
            self._track(self._streams if scope["method"] == "GET" else self._calls) as cancel_scope,
            cancel_scope,
        ):
            await cast("Any", self._app)(scope, receive, answer.send)
        if cancel_scope.cancelled_caught:
            await answer.finish()

    async def drain(self, seconds: float) -> None:
        """Cancel streams at once and calls after `seconds`."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.cancel()
        if not self._calls:
            return
        with anyio.move_on_after(seconds):
            await self._calls_done.wait()
        for call in tuple(self._calls):
            call.cancel()

    def _check_request(self, path: str, headers: Mapping[str, str]) -> None:
        if self._closed:
            raise HttpError(503, "This server is being stopped.", headers=((b"connection", b"close"),))
        if (refusal := self._hosts.get_target(headers).refusal) is not None:
            raise HttpError(403, refusal)
        given = _read_credential(headers)
        if given is None:
            raise HttpError(401, _KEY_NEEDED_MESSAGE, headers=(_CHALLENGE_HEADER,))
        if not hmac.compare_digest(_hash_key(given), self._digest):
            invalid = (_CHALLENGE_HEADER[0], _CHALLENGE_HEADER[1] + b', error="invalid_token"')
            raise HttpError(401, _INVALID_KEY_MESSAGE, headers=(invalid,))
        if path.rstrip("/") != MCP_PATH:
            raise HttpError(404, f"Not found. The server is at {MCP_PATH}.")

    @contextmanager
    def _track(self, running: set[anyio.CancelScope]) -> Generator[anyio.CancelScope]:
        cancel_scope = anyio.CancelScope()
        running.add(cancel_scope)
        try:
            yield cancel_scope
        finally:
            running.discard(cancel_scope)
            if self._closed and not self._calls:
                self._calls_done.set()


class _ResponseTracker:
    """Tracks what was sent of a response, to end a cancelled one correctly."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = self._ended = False

    async def send(self, message: AsgiMessage) -> None:
        self._started = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        if not self._started:
            await respond(self._send, 503, orjson.dumps({"error": "This server was stopped."}))
        elif not self._ended:
            await self._send({"type": "http.response.body", "body": b""})


def _read_credential(headers: Mapping[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or None


def _hash_key(key: str) -> bytes:
    """Return a hash of fixed length, so that comparing takes constant time."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def run_builtin(
    *,
    name: str | None,
    reviewed: bool,
    http: bool,
    host: str,
    port: int,
    key_file: Path | None,
    common: CommonOptions,
) -> int:
    """List the built-in servers, or run one of them for any MCP client."""
    # Removed from the environment, so that programs started by the server do not get it.
    key = os.environ.pop(KEY_VARIABLE, None)
    if reviewed:
        return _mark_reviewed(name, common)
    if name is None:
        return _list_builtins(common)
    server = make_server(name, _build_host(common))
    if http:
        given = read_key(key, key_file)
        return anyio.run(lambda: serve_http(server, common, host=host, port=port, key=given))
    anyio.run(serve_stdio, server)
    return 0


def _mark_reviewed(name: str | None, common: CommonOptions) -> int:
    if name != "workspace":
        raise click.BadParameter("only the workspace has files to review", param_hint="--reviewed")
    names = build_unreviewed_writes(_build_host(common)).mark_reviewed()
    if common.as_json:
        print_json({"reviewed": names})
        return 0
    for each in names:
        click.echo(f"  {clean_text(each)}")
    click.echo(f"Reviewed: {len(names)} written since the last review." if names else "Nothing was written.")
    return 0


def _build_host(common: CommonOptions) -> BuiltinHost:
    return BuiltinHost(settings=read_settings(common).settings, folder=Path.cwd())


def _list_builtins(common: CommonOptions) -> int:
    host = _build_host(common)
    on = host.settings.builtin.enabled
    tools = {name: list(make_server(name, host).tools) for name in SERVER_NAMES}
    if common.as_json:
        print_json(
            [
                {"name": name, "about": SERVER_TITLES[name], "tools": tools[name], "enabled": name in on}
                for name in SERVER_NAMES
            ]
        )
        return 0
    print_table(
        None,
        ("name", "on", "what it is", "tools"),
        (
            (name, "yes" if name in on else "no", SERVER_TITLES[name], ", ".join(tools[name]))
            for name in SERVER_NAMES
        ),
    )
    places = read_settings(common).places
    assert places is not None  # they were loaded from files
    click.echo(f"To switch one on, put these two lines into {clean_text(str(places.new_config))}:")
    click.echo('  [builtin]\n  enabled = ["workspace"]')
    click.echo("`fingerpost builtin NAME` runs one alone.")
    return 0
