"""Host names, ports and origins as HTTP writes them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from fingerpost.frozen import frozen

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/@?#]+)(?::(?P<port>\d{1,5}|\*))?")
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound


@frozen(kw_only=False)
class Authority:
    """`host` or `host:port`; the host in small letters, an IPv6 address without brackets."""

    host: str
    port: int | None = None
    any_port: bool = False  # written as `host:*`


@frozen(kw_only=False)
class Origin:
    """Where a web page comes from, its port always said."""

    scheme: str
    host: str
    port: int | None  # None: any, written as `*`


def read_authority(text: str) -> Authority | None:
    """What a Host header or an entry of `allowed_hosts` names; None when it names nothing."""
    match = _AUTHORITY.fullmatch(text.strip())
    if match is None:
        return None
    host = match["host"].strip("[]").lower().rstrip(".")
    if match["port"] == "*":
        return Authority(host, any_port=True)
    port = int(match["port"]) if match["port"] else None
    return None if port is not None and port > 65535 else Authority(host, port)


def read_origin(text: str) -> Origin | None:
    """What an Origin header or an entry of `allowed_origins` names; None for `null` and everything odd."""
    scheme, separator, rest = text.strip().lower().partition("://")
    authority = read_authority(rest.rstrip("/")) if separator else None
    if authority is None or not scheme:
        return None
    port = None if authority.any_port else authority.port or DEFAULT_PORTS.get(scheme)
    return None if port is None and not authority.any_port else Origin(scheme, authority.host, port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nobody else can reach it."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_every_address(host: str) -> bool:
    """Whether listening at this host means listening at every address of the machine."""
    return host.strip("[]") in _ANY_ADDRESS


def is_literal(host: str) -> bool:
    """Whether a host is an address in numbers: a name may be made to point anywhere, numbers may not."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def host_of(url: str) -> str:
    """The host of a URL, empty when it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def base_of(url: str) -> str | None:
    """`https://host:port` of an http or https URL, None for anything else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}" if known else None
