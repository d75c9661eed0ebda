"""Images and speech from services with OpenAI's API, and speech from a local synthesiser."""

from __future__ import annotations

import base64
import binascii
import json
import re
import shutil
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.call.digest.results import MAX_ASSET_BYTES
from fingerpost.frozen import frozen
from fingerpost.llm.content import as_mapping
from fingerpost.records import Json, JsonObject
from fingerpost.redaction import register_secret, scrub
from fingerpost.settings import AssetEndpointSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2


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
    """Return the format by the first bytes, or None if it is not supported."""
    if data[:4] == b"RIFF":
        return {b"WAVE": "wav", b"WEBP": "webp"}.get(data[8:12])
    return next((form for start, form in _MAGIC_BYTES if data.startswith(start)), None)


MAX_REPLY_BYTES: Final = MAX_ASSET_BYTES * 4 // 3 + 64 * 1024  # as base64 in JSON
CONNECT_TIMEOUT_S: Final = 10.0
_MAX_ERROR_LENGTH: Final = 200
_HINT_BY_STATUS: Final = {
    401: "Check its api_key.",
    403: "Check what its api_key may do.",
    404: "Check its base_url and model.",
}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


async def generate_image(
    settings: AssetEndpointSettings, prompt: str, *, size: str | None, seconds: float | None
) -> tuple[str, bytes]:
    """Return the format (`png`) and the bytes of an image for this prompt."""
    body: dict[str, Json] = {"prompt": prompt, "n": 1}
    if size is not None:
        body["size"] = size
    async with _open_service(settings, seconds) as service:
        reply = await service.post("images/generations", body)
        try:
            first = as_mapping(json.loads(reply)["data"][0])
        except (ValueError, RecursionError, KeyError, IndexError, TypeError):
            raise _build_invalid_reply_error("nothing that could be understood") from None
        encoded, address = first.get("b64_json"), first.get("url")
        if isinstance(encoded, str):
            data = _decode_base64(encoded)
        elif isinstance(address, str):
            data = await service.fetch(address)
        else:
            raise _build_invalid_reply_error("neither a picture nor where one is")
    form = detect_format(data)
    if form not in ("png", "jpg", "webp", "gif"):
        raise _build_invalid_reply_error("something that is no picture")
    return form, data


async def generate_speech(
    settings: AssetEndpointSettings, text: str, *, voice: str, file_format: str, seconds: float | None
) -> tuple[str, bytes]:
    """Return the format (`mp3`) and the bytes of the spoken text."""
    body: dict[str, Json] = {"input": text, "voice": voice, "response_format": file_format}
    async with _open_service(settings, seconds) as service:
        data = await service.post("audio/speech", body)
    found = detect_format(data)
    if found not in ("wav", "mp3", "flac", "ogg", "aac"):
        raise _build_invalid_reply_error("something that is no sound")
    return found, data


class _MediaService:
    """A client of the service for one request."""

    def __init__(self, client: httpx2.AsyncClient, settings: AssetEndpointSettings) -> None:
        self._client = client
        self._settings = settings

    async def post(self, path: str, body: dict[str, Json]) -> bytes:
        if self._settings.model is not None:
            body["model"] = self._settings.model
        address = f"{self._settings.base_url.rstrip('/')}/{path}"
        return await self._read_response("POST", address, json=body, limit=MAX_REPLY_BYTES)

    async def fetch(self, address: str) -> bytes:
        """Return the content of a URL from the response: a data URL, or one at the service itself."""
        if address.startswith("data:"):
            head, comma, encoded = address.partition(",")
            if not comma or not head.endswith(";base64"):
                raise _build_invalid_reply_error("an invalid data URL")
            return await anyio.to_thread.run_sync(_decode_base64, encoded)
        if _parse_origin(address) != _parse_origin(self._settings.base_url):
            raise ToolRefused(
                "The image service keeps its picture at another address than its own, which is not fetched.",
                hint="Have it answer with b64_json.",
            )
        return await self._read_response("GET", address, limit=MAX_ASSET_BYTES)

    async def _read_response(
        self, method: str, address: str, *, limit: int, json: JsonObject | None = None
    ) -> bytes:
        async with self._client.stream(method, address, json=json) as response:
            pieces: list[bytes] = []
            read = 0
            async for piece in response.aiter_raw():
                read += len(piece)
                if read > limit:
                    raise _build_invalid_reply_error(f"more than {limit:,} bytes")
                pieces.append(piece)
            data = b"".join(pieces)
            if response.status_code != 200:
                raise _build_service_error(response.status_code, data)
            return data


@asynccontextmanager
async def _open_service(
    settings: AssetEndpointSettings, seconds: float | None
) -> AsyncGenerator[_MediaService]:
    import httpx2

    if settings.api_key:
        register_secret(settings.api_key)
    allowed = settings.timeout if seconds is None else min(seconds, settings.timeout)
    client = await anyio.to_thread.run_sync(_build_client, settings, allowed)
    try:
        with anyio.fail_after(allowed):
            async with client:
                yield _MediaService(client, settings)
    except (TimeoutError, httpx2.TimeoutException) as late:
        message = f"The service at {_get_host(settings)} did not answer within {allowed:g} s."
        raise ToolRefused(message, hint="Raise its timeout in builtin.specialists.") from late
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        detail = scrub(str(error))[:_MAX_ERROR_LENGTH] or type(error).__name__
        message = f"The service at {_get_host(settings)} cannot be reached: {detail}."
        raise ToolRefused(message, hint="Check its base_url in builtin.specialists.") from error


def _build_client(settings: AssetEndpointSettings, seconds: float) -> httpx2.AsyncClient:
    """Build the HTTP client. Call it in a thread: it reads certificates from disk."""
    import httpx2

    headers = {"accept-encoding": "identity"}
    if settings.api_key:
        headers["authorization"] = f"Bearer {settings.api_key}"
    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_TIMEOUT_S, seconds))
    return httpx2.AsyncClient(timeout=timeout, follow_redirects=False, headers=headers)


def _decode_base64(encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        raise _build_invalid_reply_error("bytes that cannot be decoded") from None
    if len(data) > MAX_ASSET_BYTES:
        raise _build_invalid_reply_error(f"more than {MAX_ASSET_BYTES:,} bytes")
    return data


def _build_service_error(status: int, body: bytes) -> ToolRefused:
    """Build an error with the service's own message, without secrets."""
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    error = as_mapping(found).get("error", found)
    words = as_mapping(error).get("message") or as_mapping(error).get("detail") or error
    text = " ".join(words.split()) if isinstance(words, str) else ""
    detail = f": {scrub(text[:2000])[:_MAX_ERROR_LENGTH]}" if text else ""
    message = f"The service refused with status {status}{detail}."
    return ToolRefused(message, hint=_HINT_BY_STATUS.get(status, "Try again later, or with other words."))


def _build_invalid_reply_error(what: str) -> ToolRefused:
    return ToolRefused(f"The service answered with {what}.", hint="Check its base_url and model.")


def _parse_origin(address: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None


def _get_host(settings: AssetEndpointSettings) -> str:
    try:
        return urlsplit(settings.base_url).netloc.rpartition("@")[2] or "its base_url"
    except ValueError:
        return "its base_url"


SPEECH_TIMEOUT_S: Final = 60.0
_VOICE_PATTERN: Final = re.compile(r"^[A-Za-z0-9_+-]{1,40}$")


@frozen
class Synthesiser:
    """A program that reads text from its standard input and writes WAV to its standard output."""

    program: str
    arguments: tuple[str, ...]
    voice_option: str | None = None  # the option for the voice


_KNOWN_SYNTHESISERS: Final = (
    Synthesiser(program="espeak-ng", arguments=("--stdin", "--stdout"), voice_option="-v"),
    Synthesiser(program="espeak", arguments=("--stdin", "--stdout"), voice_option="-v"),
    Synthesiser(program="text2wave", arguments=()),
)


async def synthesise_speech(text: str, *, voice: str | None, seconds: float | None) -> bytes:
    """Return the spoken text as WAV. Raises `ToolRefused` if no synthesiser is installed."""
    path, found = await anyio.to_thread.run_sync(_find_synthesiser)
    if path is None or found is None:
        none_of = f"none of {', '.join(known.program for known in _KNOWN_SYNTHESISERS)} is installed"
        message = f"Speech is not available: no speech service is configured, and {none_of}."
        hint = "Set builtin.specialists.speech to an OpenAI-compatible service, or install espeak-ng."
        raise ToolRefused(message, hint=hint)
    command = [path, *found.arguments]
    if voice is not None and found.voice_option is not None:
        if not _VOICE_PATTERN.match(voice):
            message = f"{voice!r:.60} is no name of a voice."
            raise ToolRefused(message, hint="Use one such as en, de or en-us, or leave it out.")
        command += [found.voice_option, voice]
    allowed = SPEECH_TIMEOUT_S if seconds is None else min(seconds, SPEECH_TIMEOUT_S)
    try:
        with anyio.fail_after(allowed):
            result = await anyio.run_process(command, input=text.encode(), check=False)
    except TimeoutError as late:
        message = f"{found.program} did not finish within {allowed:g} s."
        raise ToolRefused(message, hint="Give it less to say.") from late
    if result.returncode != 0 or detect_format(result.stdout) != "wav":
        message = f"{found.program} failed (status {result.returncode})."
        raise ToolRefused(message, hint="Try it in a terminal; perhaps the voice is not installed.")
    at = result.stdout.find(b"data", 12)
    if at < 0 or len(result.stdout) < at + 8:
        return result.stdout
    head = result.stdout[:4] + struct.pack("<I", len(result.stdout) - 8) + result.stdout[8:at]
    return head + b"data" + struct.pack("<I", len(result.stdout) - at - 8) + result.stdout[at + 8 :]


def _find_synthesiser() -> tuple[str | None, Synthesiser | None]:
    for known in _KNOWN_SYNTHESISERS:
        if path := shutil.which(known.program):
            return path, known
    return None, None
