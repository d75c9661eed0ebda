"""Where a server may lead us while somebody signs in to it.

A server names the addresses of its sign-in itself, and we go there from this
machine, with a code that is worth a token, or send a person's browser. So a
hostile server could have us knock at doors that are open to this machine alone,
or have a person type a password where anybody on the way can read it.

A name that points to another such door need not be looked up: over https nothing
is said before the other side has proved to be who the name says. Link-local and
metadata addresses are not even connected to: names are looked up for those.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import httpx2

from fingerpost.servers.redirects import resolve_addresses
from fingerpost.settings.addresses import is_link_local, is_loopback

IpAddress = IPv4Address | IPv6Address

_LINK_LOCAL: Final = (
    "link-local and metadata addresses are for this machine alone: clouds keep credentials there"
)

# What names of one's own network end in; those without a dot are none of the internet's either.
_PRIVATE_NETWORKS: Final = (".local", ".lan", ".internal", ".home.arpa")


def find_redirect_fault(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """Why an address this server points to is not followed; None when it may be."""
    host, own = _get_host(address), _get_host(server)
    if address.scheme not in ("http", "https") or host == "":
        return "it is not a web address"
    if is_link_local(str(host)) and host != own:
        return _LINK_LOCAL
    if address.scheme == "https":
        return None
    if is_loopback(str(host)):
        return None if is_loopback(str(own)) else "it is this machine, where the server is not"
    if host == own and server.scheme == "http" and _is_private_host(host):
        return None
    return "it is not https, so that anybody on the way could read or change what is said"


async def why_not_connect(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """The same before it is connected to: what its name stands for counts, too."""
    why = find_redirect_fault(address, server=server)
    if why is not None or _get_host(address) == _get_host(server):
        return why
    default = 443 if address.scheme == "https" else 80
    found = await resolve_addresses((address.raw_host.decode("ascii"), address.port or default))
    return _LINK_LOCAL if any(map(is_link_local, found)) else None


def _get_host(url: httpx2.URL) -> str | IpAddress:
    """Whom a URL leads to: an address where it is one, however it is written, else a name."""
    name = url.raw_host.decode("ascii").lower().rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return _parse_numeric_address(name) or name
    return getattr(address, "ipv4_mapped", None) or address


def _parse_numeric_address(name: str) -> IpAddress | None:
    """`2852039166` and `0xa9fea9fe` are addresses to whoever connects."""
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def _is_private_host(host: str | IpAddress) -> bool:
    """Whether a host lies in a network of one's own, where https is hard to come by."""
    if isinstance(host, str):
        return "." not in host or host.endswith(_PRIVATE_NETWORKS)
    return not host.is_global
