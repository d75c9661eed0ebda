"""The public keys of an authorization server: found by its metadata, kept, renewed when they change.

Keys are taken from https addresses only (or this machine's own), without
following redirects, within a bound of time and size. While the issuer cannot be
reached the keys of the last hour go on being used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import orjson

from fingerpost.frozen import frozen
from fingerpost.redaction import scrub
from fingerpost.settings.addresses import is_trustworthy
from fingerpost.settings.model import SignInSettings

log = logging.getLogger("fingerpost.access")

FETCH_SECONDS: Final = 5.0
FETCH_BYTES: Final = 512 * 1024
MOST_KEYS: Final = 100
RENEW_AFTER: Final = 600.0
USABLE_FOR: Final = 3600.0
UNKNOWN_KEY_EVERY: Final = 30.0  # or anybody could make us ask the issuer as often as they like
FAILED_EVERY: Final = 5.0

Jwk = Mapping[str, Any]


class IssuerUnreachable(Exception):
    """The issuer's keys cannot be had at the moment."""


@frozen(kw_only=False)
class _KeySet:
    keys: tuple[Jwk, ...] = field(repr=False)
    fetched: float


class Issuer:
    """One authorization server's keys."""

    def __init__(self, settings: SignInSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = settings.issuer
        self._jwks_url = settings.jwks_url
        self._clock = clock
        self._lock = anyio.Lock()
        self._set: _KeySet | None = None
        self._failed: float | None = None
        self._told: str | None = None  # why it failed, as the log has it

    async def keys_for(self, kid: str | None) -> tuple[Jwk, ...]:
        """The keys a token may be signed with: the one of this id, or all when it names none.

        Raises `IssuerUnreachable`.
        """
        keys = await self._current(since=None)
        if found := _named(keys.keys, kid):
            return found
        if kid is not None and self._clock() - keys.fetched >= UNKNOWN_KEY_EVERY:
            return _named((await self._current(since=keys.fetched)).keys, kid)
        return ()

    async def _current(self, *, since: float | None) -> _KeySet:
        """The keys as known; fetched when they are old, or no newer than `since`."""
        if self._set is not None and not self._is_due(self._set, since):
            return self._set
        async with self._lock:  # who waited here finds what the one before fetched
            held = self._set
            if held is not None and not self._is_due(held, since):
                return held
            if self._failed is None or self._clock() - self._failed >= FAILED_EVERY:
                return await self._renew(held)
        return self._still_usable(held, "the issuer could not be reached a moment ago")

    def _is_due(self, held: _KeySet, since: float | None) -> bool:
        return self._clock() - held.fetched >= RENEW_AFTER or held.fetched == since

    async def _renew(self, held: _KeySet | None) -> _KeySet:
        try:
            with anyio.fail_after(FETCH_SECONDS):
                keys = await self._fetch()
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            OSError,
            ValueError,
        ) as error:  # TimeoutError is an OSError
            self._failed = self._clock()
            self._tell(str(error) or type(error).__name__)
            return self._still_usable(held, f"{type(error).__name__}: {error}")
        self._failed = self._told = None
        self._set = _KeySet(keys, self._clock())
        return self._set

    def _tell(self, reason: str) -> None:
        """Once for each reason: everybody who comes with a token asks again."""
        if reason != self._told:
            self._told = reason
            log.warning(
                "The keys of %s, by which tokens are checked, cannot be had (%s). "
                "Check gateway.sign_in.issuer and jwks_url, and whether this machine reaches them.",
                scrub(self._issuer),
                scrub(reason),
            )

    def _still_usable(self, held: _KeySet | None, reason: str) -> _KeySet:
        if held is None or self._clock() - held.fetched >= USABLE_FOR:
            raise IssuerUnreachable(reason)
        return held

    async def _fetch(self) -> tuple[Jwk, ...]:
        # Making a client reads certificates and settings from disk.
        async with await anyio.to_thread.run_sync(_client) as client:
            url = self._jwks_url or await self._discover(client)
            document = await _get(client, url)
        listed = document.get("keys")
        if not isinstance(listed, list):
            message = "the key document holds no keys"
            raise ValueError(message)
        entries = cast("list[object]", listed)[:MOST_KEYS]
        return tuple(cast("Jwk", entry) for entry in entries if isinstance(entry, dict))

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        """Where the issuer says its keys are (RFC 8414, then OpenID Connect)."""
        for url in metadata_urls(self._issuer):
            try:
                metadata = await _get(client, url)
            except _Missing:
                continue
            # Whoever serves this document must be the one it speaks for (RFC 8414, 3.3).
            if metadata.get("issuer") != self._issuer:
                message = "the metadata are those of another issuer"
                raise ValueError(message)
            jwks_url = metadata.get("jwks_uri")
            if isinstance(jwks_url, str) and is_trustworthy(jwks_url):
                return jwks_url
            message = "the metadata name no trustworthy address of keys"
            raise ValueError(message)
        message = "the issuer publishes no metadata; set gateway.sign_in.jwks_url"
        raise ValueError(message)


def _client() -> httpx2.AsyncClient:
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    return httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_SECONDS, headers=headers)


class _Missing(ValueError):
    """There is no such document."""


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be, in the order to look."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = (
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
        f"{base}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(urls))


async def _get(client: httpx2.AsyncClient, url: str) -> Mapping[str, object]:
    async with client.stream("GET", url) as response:
        if response.status_code == HTTPStatus.NOT_FOUND:
            message = f"there is nothing at {url}"
            raise _Missing(message)
        if response.status_code != HTTPStatus.OK:
            message = f"{url} answered with status {response.status_code}"
            raise ValueError(message)
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > FETCH_BYTES:
                message = f"{url} answered with more than {FETCH_BYTES} bytes"
                raise ValueError(message)
    document: object = orjson.loads(body)
    if not isinstance(document, dict):
        message = f"{url} did not answer with a JSON object"
        raise ValueError(message)
    return cast("Mapping[str, object]", document)


def _named(keys: tuple[Jwk, ...], kid: str | None) -> tuple[Jwk, ...]:
    return keys if kid is None else tuple(key for key in keys if key.get("kid") == kid)
