"""The web console and the documentation: static files, read once and served from memory."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.surfaces.http.access import Authenticator
from fingerpost.surfaces.http.asgi import AsgiScope, Header, HttpError, Receive, Send, parse_headers, respond

STATIC_FOLDER: Final = Path(__file__).parent / "static"
SITE_FOLDER: Final = Path(__file__).parent / "site"  # built by `make docs`
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
    policy: str  # the content security policy


_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def read_files(folder: Path) -> Mapping[str, StaticFile]:
    """Read every file of a known type, by its path below the folder."""
    return {
        path.relative_to(folder).as_posix(): _read_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _MEDIA_TYPES and path.is_file()
    }


def _read_file(path: Path) -> StaticFile:
    """Read a file. Inline scripts of a page are allowed by their hashes, and no other inline script is."""
    body = path.read_bytes()
    scripts = _INLINE_SCRIPT.findall(body) if path.suffix == ".html" else []
    hashes = sorted({b64encode(hashlib.sha256(script).digest()).decode() for script in scripts})
    return StaticFile(
        body,
        _MEDIA_TYPES[path.suffix],
        f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        _CONTENT_SECURITY_POLICY.format(scripts="".join(f" 'sha256-{one}'" for one in hashes)),
    )


# Cached but revalidated, so that an upgrade is visible at once.
_REVALIDATED: Final = b"no-cache"
# For paths that hold the version: another version has other paths.
_LASTING: Final = b"max-age=31536000, immutable"


def _build_headers(
    policy: str = _CONTENT_SECURITY_POLICY.format(scripts=""), caching: bytes = _REVALIDATED
) -> tuple[Header, ...]:
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", caching),
    )


_COMMON_HEADERS: Final = _build_headers()
_TEXT_TYPE: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_HTML_TYPE: Final[Header] = (b"content-type", b"text/html; charset=utf-8")
_MESSAGE_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} - Fingerpost</title>'
    '<meta name="viewport" content="width=device-width"><h1>{title}</h1><p>{text}</p></html>'
)
_NOT_FOUND: Final = _MESSAGE_PAGE.format(
    title="There is nothing at this address", text='<a href="/">Go to the console</a>'
)
_DOCS_NOT_FOUND: Final = _MESSAGE_PAGE.format(
    title="There is no such page", text='<a href="/docs/">Go to the documentation</a>'
)
_DOCS_NOT_BUILT: Final = _MESSAGE_PAGE.format(
    title="The documentation is not part of this installation",
    text="In a clone of the repository, run <code>make docs</code> and start Fingerpost again. "
    "The same pages are in its folder <code>docs</code>.",
)


_VERSIONED: Final = re.compile(r"/console/v([0-9a-f]{16})/(?=.)")


class ConsoleApp:
    """Serves files from memory, by the paths of requests.

    A file whose path holds `version` may be kept for good. Another version in a path is what a page of an
    earlier release asks for: it gets the file of today, for once.

    Requests with an unknown Host are refused (DNS rebinding).
    """

    def __init__(
        self,
        files: Mapping[str, StaticFile],
        authenticator: Authenticator,
        *,
        not_found: str = _NOT_FOUND,
        version: str = "",
    ) -> None:
        self._files = files
        self._authenticator = authenticator
        self._not_found = not_found.encode()
        self._version = version

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
        if (versioned := _VERSIONED.match(path)) is not None:
            path = f"/console/{path[versioned.end() :]}"
        found = self._files.get(path)
        bodiless = scope["method"] == "HEAD"
        if found is None and f"{path}/" in self._files:
            # Relative, so that it is right behind a proxy that adds a prefix.
            location = f"{path.rpartition('/')[2]}/".encode()
            await respond(send, 307, b"", ((b"location", location), *_COMMON_HEADERS))
            return
        if found is None:
            body = b"" if bodiless else self._not_found
            await respond(send, 404, body, (_HTML_TYPE, *_COMMON_HEADERS))
            return
        is_lasting = versioned is not None and versioned[1] == self._version
        caching = _LASTING if is_lasting else _REVALIDATED
        common = ((b"etag", found.etag.encode()), *_build_headers(found.policy, caching))
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
    """Open the console for the paths `/` and `/console`, and its icon at `/favicon.ico`, where browsers look
    for one of pages that name none.

    Its page names all other files with the version of all files in their paths, so that a browser asks for
    them once.
    """
    files = await anyio.to_thread.run_sync(read_files, folder)
    version = hashlib.sha256("".join(file.etag for file in files.values()).encode()).hexdigest()[:16]
    index = files[INDEX_NAME]
    body = index.body.replace(b'="/console/', f'="/console/v{version}/'.encode())
    index = replace(index, body=body, etag=f'"{version}"')
    paths = {f"/console/{name}": file for name, file in files.items()}
    paths |= dict.fromkeys(("/", "/console", "/console/", f"/console/{INDEX_NAME}"), index)
    paths["/favicon.ico"] = files["logo.svg"]
    yield ConsoleApp(paths, authenticator, version=version)


@asynccontextmanager
async def open_docs(
    authenticator: Authenticator, *, folder: Path = SITE_FOLDER
) -> AsyncGenerator[ConsoleApp]:
    """Open the documentation for the path `/docs`. Where it was not built, a page says how to."""
    files = await anyio.to_thread.run_sync(read_files, folder)
    paths = {f"/docs/{name}": file for name, file in files.items()}
    if (index := files.get(INDEX_NAME)) is not None:
        paths["/docs/"] = index
    yield ConsoleApp(paths, authenticator, not_found=_DOCS_NOT_FOUND if paths else _DOCS_NOT_BUILT)
