"""Something that was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MEDIA: Final[Mapping[str, str]] = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "glb": "model/gltf-binary",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
}
FILE: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """Bytes of a kind, under a name a file can have."""

    name: str
    media_type: str
    data: bytes
    about: str = ""  # in words, such as `a bar chart with 4 bars`


def asset(stem: str, form: str, data: bytes, about: str) -> Asset:
    """An asset of one of the forms above, named after what it is about."""
    return Asset(name=f"{file_stem(stem)}.{form}", media_type=MEDIA.get(form, FILE), data=data, about=about)


def file_stem(text: str, longest: int = 40) -> str:
    """A file's name out of any text: small ASCII letters, digits and dashes."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower())
    return "-".join(kept.split())[:longest].strip("-") or "asset"
