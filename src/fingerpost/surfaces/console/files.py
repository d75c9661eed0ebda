"""The console's files, read once and kept: there are few, and they are small."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fingerpost.frozen import frozen

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
    """One file, ready to be sent."""

    body: bytes
    media: str
    etag: str


def read_files(folder: Path = STATIC_FOLDER) -> Mapping[str, StaticFile]:
    """Every file that a browser knows what to do with, by its path below the folder."""
    return {
        path.relative_to(folder).as_posix(): _read_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _MEDIA_TYPES and path.is_file()
    }


def _read_file(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(body, _MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
