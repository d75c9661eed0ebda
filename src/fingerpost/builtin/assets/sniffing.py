"""What some bytes really are, whatever somebody says they are."""

from __future__ import annotations

from typing import Final

_MAGIC_BYTES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\xff\xf1", "aac"),
    (b"\xff\xf9", "aac"),
    (b"\xff\xfb", "mp3"),
    (b"\xff\xf3", "mp3"),
    (b"\xff\xf2", "mp3"),
)


def detect_format(data: bytes) -> str | None:
    """Its form by its first bytes, or None where it is none of those we keep."""
    if data[:4] == b"RIFF":
        return {b"WAVE": "wav", b"WEBP": "webp"}.get(data[8:12])
    return next((form for start, form in _MAGIC_BYTES if data.startswith(start)), None)
