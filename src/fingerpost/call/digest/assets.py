"""Assets: what tools made, kept with the full results of calls, for their caller, for as long.

So whatever fetches a result by its handle fetches an asset, too; they make room for newer
ones in the same way.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import anyio.to_thread

from fingerpost.call.digest.results import ResultStore
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, create_id

SCHEME: Final = "fingerpost://results/"
_URI_PREFIX: Final = re.compile(r", part (\d{1,4})\b")
MEDIA_TYPES: Final[Mapping[str, str]] = {
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
MAX_ASSET_BYTES: Final = 16 * 1024 * 1024  # packed and as text it has to fit into what is kept of one result


@frozen
class Asset:
    """Bytes of a kind, under a name a file can have."""

    name: str
    media_type: str
    data: bytes
    about: str = ""  # in words, such as `a bar chart with 4 bars`


@frozen
class KeptAsset:
    """What was kept, and how to find it again."""

    handle: str
    name: str
    media_type: str
    size: int
    about: str

    @property
    def uri(self) -> str:
        return build_asset_uri(self.handle, self.name)

    @property
    def summary(self) -> str:
        """One line for a model and a person: what it is, and how to get at it."""
        return (
            f"Made {self.about}: {self.name}, {self.media_type}, {self.size:,} bytes, kept as {self.handle}. "
            f"To save it: `fingerpost result {self.handle} --out {self.name}`, "
            f"or GET /api/assets/{self.handle}."
        )


async def keep_asset(results: ResultStore, asset: Asset, *, caller: str | None) -> KeptAsset:
    """Keep it for this caller."""
    block = await anyio.to_thread.run_sync(_build_block, asset)
    handle = await results.keep(create_id("ast"), {"content": [block]}, caller=caller)
    return KeptAsset(
        handle=handle,
        name=asset.name,
        media_type=asset.media_type,
        size=len(asset.data),
        about=asset.about,
    )


async def fetch_asset(results: ResultStore, handle: str, *, caller: str | None) -> Asset | None:
    """The asset kept under this handle, or None: unknown, over, or somebody else's.

    Without a caller it is the owner of the house who asks.
    """
    page = await results.read_page(handle, caller=caller)
    if page is None or len(page.references) != 1:  # a result that holds something else
        return None
    place = _URI_PREFIX.search(page.references[0])
    found = None if place is None else await results.read_part(handle, int(place[1]))
    if found is None:
        return None
    media_type, data = found
    return Asset(name=parse_asset_name(page.references[0]) or "asset", media_type=media_type, data=data)


def build_asset_uri(handle: str, name: str) -> str:
    return f"{SCHEME}{handle}/{quote(name)}"


def parse_asset_handle(uri: str) -> str | None:
    """The handle in an address of ours."""
    return uri.removeprefix(SCHEME).partition("/")[0] if uri.startswith(SCHEME) else None


def parse_asset_name(reference: str) -> str:
    """The name behind `image/png, 4 KB, part 1, fingerpost://results/res_…/chart.png`; empty: it has none."""
    return unquote(reference.rpartition("/")[2]) if SCHEME in reference else ""


def _build_block(asset: Asset) -> JsonObject:
    encoded = base64.b64encode(asset.data).decode()
    # The handle is not known yet: it is made of the call's id. Who reads it back knows it.
    resource: JsonObject = {
        "uri": build_asset_uri("asset", asset.name),
        "mimeType": asset.media_type,
        "blob": encoded,
    }
    return {"type": "resource", "resource": resource}


def build_named_asset(stem: str, form: str, data: bytes, about: str) -> Asset:
    """An asset of one of the forms above, named after what it is about."""
    return Asset(
        name=f"{build_file_stem(stem)}.{form}", media_type=MEDIA_TYPES.get(form, FILE), data=data, about=about
    )


def build_file_stem(text: str, max_length: int = 40) -> str:
    """A file's name out of any text: small ASCII letters, digits and dashes."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower())
    return "-".join(kept.split())[:max_length].strip("-") or "asset"
