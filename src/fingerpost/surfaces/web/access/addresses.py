"""Host names, ports and origins as HTTP writes them."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.settings.addresses import DEFAULT_PORTS, get_base_url, get_host, is_loopback

__all__ = [
    "DEFAULT_PORTS",
    "Authority",
    "WebOrigin",
    "get_base_url",
    "get_host",
    "get_reachable_address",
    "is_every_address",
    "is_ip_literal",
    "is_loopback",
    "parse_authority",
    "parse_origin",
]

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/@?#]+)(?::(?P<port>\d{1,5}|\*))?")
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound


@frozen(kw_only=False)
class Authority:
    """`host` or `host:port`; the host in small letters, an IPv6 address without brackets."""

    host: str
    port: int | None = None
    any_port: bool = False  # written as `host:*`


@frozen(kw_only=False)
class WebOrigin:
    """Where a web page comes from, its port always said."""

    scheme: str
    host: str
    port: int | None  # None: any, written as `*`


def parse_authority(text: str) -> Authority | None:
    """What a Host header or an entry of `allowed_hosts` names; None when it names nothing."""
    match = _AUTHORITY.fullmatch(text.strip())
    if match is None:
        return None
    host = match["host"].strip("[]").lower().rstrip(".")
    if match["port"] == "*":
        return Authority(host, any_port=True)
    port = int(match["port"]) if match["port"] else None
    return None if port is not None and port > 65535 else Authority(host, port)


def parse_origin(text: str) -> WebOrigin | None:
    """What an Origin header or an entry of `allowed_origins` names; None for `null` and everything odd."""
    scheme, separator, rest = text.strip().lower().partition("://")
    authority = parse_authority(rest.rstrip("/")) if separator else None
    if authority is None or not scheme:
        return None
    port = None if authority.any_port else authority.port or DEFAULT_PORTS.get(scheme)
    return None if port is None and not authority.any_port else WebOrigin(scheme, authority.host, port)


def is_every_address(host: str) -> bool:
    """Whether listening at this host means listening at every address of the machine."""
    return host.strip("[]") in _ANY_ADDRESS


def is_ip_literal(host: str) -> bool:
    """Whether a host is an address in numbers: a name may be made to point anywhere, numbers may not."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def get_reachable_address(bound: str) -> str:
    """`host:port` by which people reach us who listen at `bound`: `0.0.0.0` leads nowhere in a browser.

    In numbers: a Host of that kind is taken when we listen everywhere, the machine's name is not.
    """
    authority = parse_authority(bound)
    if authority is None or not is_every_address(authority.host):
        return bound
    host = _get_own_address(socket.AF_INET6 if ":" in authority.host else socket.AF_INET)
    return f"[{host}]:{authority.port}" if ":" in host else f"{host}:{authority.port}"


# Addresses reserved for documentation (RFC 5737, RFC 3849): the way to them is the way out.
_REMOTE_ADDRESSES: Final = {socket.AF_INET: ("192.0.2.1", 9), socket.AF_INET6: ("2001:db8::1", 9)}
_LOOPBACK_ADDRESSES: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def _get_own_address(family: socket.AddressFamily) -> str:
    """The address we have for others, loopback where there are none. Nothing is sent."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.settimeout(0)
            way.connect(_REMOTE_ADDRESSES[family])
            return way.getsockname()[0]
    except OSError:
        return _LOOPBACK_ADDRESSES[family]
