"""The web console: its static files, read once and served from memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.surfaces.http.access import Authenticator
from fingerpost.surfaces.http.asgi import AsgiScope, Header, HttpError, Receive, Send, parse_headers, respond

STATIC_FOLDER: Final = Path(__file__).parent / "static"
INDEX_NAME: Final = "index.html"

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


@frozen(kw_only=False)
class StaticFile:
    """One file with its response headers."""

    body: bytes
    media: str
    etag: str


def read_files(folder: Path = STATIC_FOLDER) -> Mapping[str, StaticFile]:
    """Read every file of a known type, by its path below the folder."""
    return {
        path.relative_to(folder).as_posix(): _read_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _MEDIA_TYPES and path.is_file()
    }


def _read_file(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(body, _MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


CONSOLE_PREFIX: Final = "/console/"
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),  # cached but revalidated, so that an upgrade is visible at once
)
_TEXT_TYPE: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_HTML_TYPE: Final[Header] = (b"content-type", b"text/html; charset=utf-8")
_NOT_FOUND_PAGE: Final = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Not here - Fingerpost</title>'
    b'<meta name="viewport" content="width=device-width"><h1>There is nothing at this address</h1>'
    b'<p><a href="/">Go to the console</a></p></html>'
)


class ConsoleApp:
    """Serves the files from memory. Requests with an unknown Host are refused (DNS rebinding)."""

    def __init__(self, files: Mapping[str, StaticFile], authenticator: Authenticator) -> None:
        self._files = files
        self._authenticator = authenticator

    async def drain(self, seconds: float) -> None:
        """Do nothing: no request takes long."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            headers, _ = parse_headers(scope["headers"])
        except HttpError as fault:
            await respond(send, fault.status, fault.message.encode(), (_TEXT_TYPE, *_COMMON_HEADERS))
            return
        if not self._authenticator.allows_origin(headers):
            message = b"This address is not one of this Fingerpost's. If it is: gateway.allowed_hosts.\n"
            await respond(send, 403, message, (_TEXT_TYPE, *_COMMON_HEADERS))
        elif scope["method"] not in {"GET", "HEAD"}:
            await respond(send, 405, b"Use GET.\n", ((b"allow", b"GET, HEAD"), _TEXT_TYPE, *_COMMON_HEADERS))
        else:
            await self._respond_file(scope, headers, send)

    async def _respond_file(self, scope: AsgiScope, headers: Mapping[str, str], send: Send) -> None:
        path: str = scope["path"]
        name = (
            INDEX_NAME
            if path in {"/", CONSOLE_PREFIX, CONSOLE_PREFIX.rstrip("/")}
            else path.removeprefix(CONSOLE_PREFIX)
        )
        found = self._files.get(name) if name == INDEX_NAME or path.startswith(CONSOLE_PREFIX) else None
        bodiless = scope["method"] == "HEAD"
        if found is None:
            await respond(send, 404, b"" if bodiless else _NOT_FOUND_PAGE, (_HTML_TYPE, *_COMMON_HEADERS))
            return
        common = ((b"etag", found.etag.encode()), *_COMMON_HEADERS)
        if headers.get("if-none-match") == found.etag:
            await send({"type": "http.response.start", "status": 304, "headers": [*common]})
            await send({"type": "http.response.body", "body": b""})
            return
        media = (b"content-type", found.media.encode())
        await respond(send, 200, b"" if bodiless else found.body, (media, *common))


@asynccontextmanager
async def open_console(
    authenticator: Authenticator, *, folder: Path = STATIC_FOLDER
) -> AsyncGenerator[ConsoleApp]:
    """Open the console for the paths `/` and `/console`."""
    yield ConsoleApp(await anyio.to_thread.run_sync(read_files, folder), authenticator)
