"""Signing in to a server, once, with a person and a browser.

A listener on the loopback address waits for the browser to come back with the
authority's answer. Nothing is stored unless the whole way succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull
from pydantic import AnyUrl

from fingerpost.errors import ConfigError, ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.servers.failures import clean_text, from_exception
from fingerpost.servers.http import HttpClients
from fingerpost.servers.oauth import OAuthSignIn, OAuthTokenStorage, SignInStore, build_client_metadata
from fingerpost.servers.redirects import check_address
from fingerpost.servers.wary import CheckedSignIn, check_redirect

SIGN_IN_SECONDS = 300.0
MAX_CALLBACK_LENGTH = 16 * 1024
CALLBACK_SECONDS = 10.0

_INITIALIZE_REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "fingerpost", "version": "0"},
    },
}
_PAGE = b"<!doctype html><meta charset=utf-8><title>Fingerpost</title><p>%s You can close this window."


async def sign_in(
    spec: ServerSpec,
    tokens: SignInStore,
    *,
    open_browser: Callable[[str], object],
    timeout: float = SIGN_IN_SECONDS,
) -> bool:
    """Sign in to this server. False when it did not ask for that. Raises `ServerUnavailable`."""
    if spec.url is None or spec.transport not in ("http", "sse"):
        message = f"{spec.name} is not a server at an address; only those are signed in to"
        raise ConfigError(message, hint="programs get their credentials by their env")
    keeper = OAuthTokenStorage(tokens, spec.name, OAuthSignIn(address=spec.url))
    try:
        with anyio.fail_after(timeout):
            await check_address(spec)
            await _run_sign_in(spec, spec.url, keeper, open_browser)
    except TimeoutError:
        message = f"nobody signed in to {spec.name} within {timeout:g} s"
        raise ServerUnavailable(message, server=spec.name, hint="run the command again") from None
    except OAuthFlowError as error:
        message = f"signing in to {spec.name} failed: {clean_text(str(error))}"
        raise ServerUnavailable(message, server=spec.name) from error
    except Exception as error:
        raise from_exception(spec.name, error) from error
    return keeper.sign_in.tokens is not None


async def _run_sign_in(
    spec: ServerSpec, address: str, storage: OAuthTokenStorage, open_browser: Callable[[str], object]
) -> None:
    async with AsyncExitStack() as stack:
        callback = await stack.enter_async_context(
            _OAuthCallback(spec.oauth.redirect_port if spec.oauth else 0)
        )
        storage.sign_in.client = _build_registered_client(spec, callback.address)

        async def send_person(url: str) -> None:
            await check_redirect(url, "to authorize", address)
            await anyio.to_thread.run_sync(open_browser, url)

        flow = CheckedSignIn(
            address,
            build_client_metadata(spec.oauth, callback.address),
            storage,
            send_person,
            callback.wait_for_code,
        )
        storage.context = flow.context
        http = HttpClients()
        stack.push_async_callback(http.aclose)
        client = await stack.enter_async_context(await http.build_client(headers=spec.headers, auth=flow))
        accept = {"Accept": "application/json, text/event-stream"}
        async with client.stream("POST", address, json=_INITIALIZE_REQUEST, headers=accept) as response:
            if response.status_code in (401, 403):
                message = f"{spec.name} still refuses after signing in (HTTP {response.status_code})"
                raise ServerUnavailable(message, server=spec.name, hint="does this account have access?")


def _build_registered_client(spec: ServerSpec, redirect: str) -> OAuthClientInformationFull | None:
    """The client somebody registered by hand, when the authority does not let us register ourselves."""
    if spec.oauth is None or spec.oauth.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=spec.oauth.client_id,
        client_secret=spec.oauth.client_secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="none" if spec.oauth.client_secret is None else "client_secret_post",
    )


class _OAuthCallback:
    """The loopback address the browser is sent back to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._came = anyio.Event()
        self._query: dict[str, list[str]] = {}

    async def __aenter__(self) -> _OAuthCallback:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    @property
    def address(self) -> str:
        port = self._listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        return f"http://127.0.0.1:{port}/callback"

    async def wait_for_code(self) -> AuthorizationCodeResult:
        await self._came.wait()
        first = {name: values[0] for name, values in self._query.items()}
        if "code" not in first:
            detail = first.get("error_description") or first.get("error") or "no code came back"
            raise OAuthFlowError(detail)
        return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(CALLBACK_SECONDS):
                try:
                    target = await _read_request_target(stream)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                parts = urlsplit(target)
                query = parse_qs(parts.query)
                wanted = parts.path == "/callback" and ("code" in query or "error" in query)
                body = _PAGE % (b"Fingerpost has the answer." if wanted else b"Nothing here.")
                head = (
                    f"HTTP/1.1 {200 if wanted else 404} -\r\nContent-Type: text/html\r\nConnection: close\r\n"
                )
                await stream.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                if wanted and not self._came.is_set():
                    self._query = query
                    self._came.set()


async def _read_request_target(stream: SocketStream) -> str:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_CALLBACK_LENGTH:
        head += await stream.receive()
    words = head.split(b"\r\n", 1)[0].split()
    return words[1].decode("latin-1") if len(words) > 1 else "/"
