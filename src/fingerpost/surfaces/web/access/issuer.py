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

FETCH_TIMEOUT_S: Final = 5.0
MAX_FETCH_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100
RENEW_AFTER_S: Final = 600.0
MAX_KEY_AGE_S: Final = 3600.0
UNKNOWN_KEY_INTERVAL_S: Final = 30.0  # or anybody could make us ask the issuer as often as they like
RETRY_INTERVAL_S: Final = 5.0

Jwk = Mapping[str, Any]


class IssuerUnreachable(Exception):
    """The issuer's keys cannot be had at the moment."""


@frozen(kw_only=False)
class _KeySet:
    keys: tuple[Jwk, ...] = field(repr=False)
    fetched: float


class TokenIssuer:
    """One authorization server's keys."""

    def __init__(self, settings: SignInSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = settings.issuer
        self._jwks_url = settings.jwks_url
        self._clock = clock
        self._lock = anyio.Lock()
        self._set: _KeySet | None = None
        self._failed: float | None = None
        self._told: str | None = None  # why it failed, as the log has it

    async def find_keys(self, kid: str | None) -> tuple[Jwk, ...]:
        """The keys a token may be signed with: the one of this id, or all when it names none.

        Raises `IssuerUnreachable`.
        """
        keys = await self._get_key_set(since=None)
        if found := _filter_by_kid(keys.keys, kid):
            return found
        if kid is not None and self._clock() - keys.fetched >= UNKNOWN_KEY_INTERVAL_S:
            return _filter_by_kid((await self._get_key_set(since=keys.fetched)).keys, kid)
        return ()

    async def _get_key_set(self, *, since: float | None) -> _KeySet:
        """The keys as known; fetched when they are old, or no newer than `since`."""
        if self._set is not None and not self._is_due(self._set, since):
            return self._set
        async with self._lock:  # who waited here finds what the one before fetched
            held = self._set
            if held is not None and not self._is_due(held, since):
                return held
            if self._failed is None or self._clock() - self._failed >= RETRY_INTERVAL_S:
                return await self._renew_keys(held)
        return self._check_usable(held, "the issuer could not be reached a moment ago")

    def _is_due(self, key_set: _KeySet, since: float | None) -> bool:
        return self._clock() - key_set.fetched >= RENEW_AFTER_S or key_set.fetched == since

    async def _renew_keys(self, key_set: _KeySet | None) -> _KeySet:
        try:
            with anyio.fail_after(FETCH_TIMEOUT_S):
                keys = await self._fetch_keys()
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            OSError,
            ValueError,
        ) as error:  # TimeoutError is an OSError
            self._failed = self._clock()
            self._log_failure(str(error) or type(error).__name__)
            return self._check_usable(key_set, f"{type(error).__name__}: {error}")
        self._failed = self._told = None
        self._set = _KeySet(keys, self._clock())
        return self._set

    def _log_failure(self, reason: str) -> None:
        """Once for each reason: everybody who comes with a token asks again."""
        if reason != self._told:
            self._told = reason
            log.warning(
                "The keys of %s, by which tokens are checked, cannot be had (%s). "
                "Check gateway.sign_in.issuer and jwks_url, and whether this machine reaches them.",
                scrub(self._issuer),
                scrub(reason),
            )

    def _check_usable(self, key_set: _KeySet | None, reason: str) -> _KeySet:
        if key_set is None or self._clock() - key_set.fetched >= MAX_KEY_AGE_S:
            raise IssuerUnreachable(reason)
        return key_set

    async def _fetch_keys(self) -> tuple[Jwk, ...]:
        # Making a client reads certificates and settings from disk.
        async with await anyio.to_thread.run_sync(_build_client) as client:
            url = self._jwks_url or await self._discover_keys_url(client)
            document = await _get_document(client, url)
        listed = document.get("keys")
        if not isinstance(listed, list):
            message = "the key document holds no keys"
            raise ValueError(message)
        entries = cast("list[object]", listed)[:MAX_KEYS]
        return tuple(cast("Jwk", entry) for entry in entries if isinstance(entry, dict))

    async def _discover_keys_url(self, client: httpx2.AsyncClient) -> str:
        """Where the issuer says its keys are (RFC 8414, then OpenID Connect)."""
        for url in build_metadata_urls(self._issuer):
            try:
                metadata = await _get_document(client, url)
            except _MissingDocument:
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


def _build_client() -> httpx2.AsyncClient:
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    return httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_TIMEOUT_S, headers=headers)


class _MissingDocument(ValueError):
    """There is no such document."""


def build_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be, in the order to look."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = (
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
        f"{base}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(urls))


async def _get_document(client: httpx2.AsyncClient, url: str) -> Mapping[str, object]:
    async with client.stream("GET", url) as response:
        if response.status_code == HTTPStatus.NOT_FOUND:
            message = f"there is nothing at {url}"
            raise _MissingDocument(message)
        if response.status_code != HTTPStatus.OK:
            message = f"{url} answered with status {response.status_code}"
            raise ValueError(message)
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_FETCH_BYTES:
                message = f"{url} answered with more than {MAX_FETCH_BYTES} bytes"
                raise ValueError(message)
    document: object = orjson.loads(body)
    if not isinstance(document, dict):
        message = f"{url} did not answer with a JSON object"
        raise ValueError(message)
    return cast("Mapping[str, object]", document)


def _filter_by_kid(keys: tuple[Jwk, ...], kid: str | None) -> tuple[Jwk, ...]:
    return keys if kid is None else tuple(key for key in keys if key.get("kid") == kid)
