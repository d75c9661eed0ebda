"""Where an answer sends us, and whether we go there: only where it stays with the same server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from urllib.parse import SplitResult, urljoin, urlsplit

from fingerpost.errors import ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.settings.addresses import LINK_LOCAL_FIX, LINK_LOCAL_MESSAGE, is_link_local

REDIRECT_STATUSES = (301, 302, 303, 307, 308)
SAME_METHOD_STATUSES = (307, 308)  # only these mean: the same request, body and all
_DEFAULT_PORTS = {"http": 80, "https": 443}


async def resolve_addresses(origin: tuple[str, int]) -> list[str]:
    """The addresses a name stands for now; none where it cannot be found out."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*origin, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def check_address(spec: ServerSpec) -> None:
    """Raises where a server's address is link-local or a metadata service, also by way of its name."""
    parts = urlsplit(spec.url or "")
    host = parts.hostname or ""
    if spec.allow_link_local:
        return
    addresses = await resolve_addresses((host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)))
    if any(map(is_link_local, (host, *addresses))):
        message = f"the address of {spec.name} {LINK_LOCAL_MESSAGE}"
        raise ServerUnavailable(message, server=spec.name, hint=LINK_LOCAL_FIX)


def resolve_redirect(here: str, status: int, location: str | None) -> str | None:
    """The address a redirect leads to."""
    if status not in REDIRECT_STATUSES or not location:
        return None
    with suppress(ValueError):
        target = urljoin(here, location)
        _get_origin(urlsplit(target))
        return target
    return None


def is_same_server(here: str, status: int, target: str) -> bool:
    """Whether the same request may be sent there: to the same server, or to its TLS port."""
    if status not in SAME_METHOD_STATUSES:
        return False
    before, after = urlsplit(here), urlsplit(target)
    if after.username is not None or after.password is not None:
        return False
    upgraded = (_get_origin(before), _get_origin(after)) == (
        ("http", before.hostname, 80),
        ("https", before.hostname, 443),
    )
    return upgraded or _get_origin(before) == _get_origin(after)


def strip_secrets(target: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(target)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _get_origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Raises `ValueError` for a port that is none."""
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
