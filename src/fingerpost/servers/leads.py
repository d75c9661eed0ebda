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

from fingerpost.servers.redirects import looked_up
from fingerpost.settings.addresses import is_link_local, is_loopback

Address = IPv4Address | IPv6Address

_LINK_LOCAL: Final = (
    "link-local and metadata addresses are for this machine alone: clouds keep credentials there"
)

# What names of one's own network end in; those without a dot are none of the internet's either.
_AT_HOME: Final = (".local", ".lan", ".internal", ".home.arpa")


def why_not(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """Why an address this server points to is not followed; None when it may be."""
    host, own = _host(address), _host(server)
    if address.scheme not in ("http", "https") or host == "":
        return "it is not a web address"
    if is_link_local(str(host)) and host != own:
        return _LINK_LOCAL
    if address.scheme == "https":
        return None
    if is_loopback(str(host)):
        return None if is_loopback(str(own)) else "it is this machine, where the server is not"
    if host == own and server.scheme == "http" and _is_at_home(host):
        return None
    return "it is not https, so that anybody on the way could read or change what is said"


async def why_not_connect(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """The same before it is connected to: what its name stands for counts, too."""
    why = why_not(address, server=server)
    if why is not None or _host(address) == _host(server):
        return why
    default = 443 if address.scheme == "https" else 80
    found = await looked_up((address.raw_host.decode("ascii"), address.port or default))
    return _LINK_LOCAL if any(map(is_link_local, found)) else None


def _host(url: httpx2.URL) -> str | Address:
    """Whom a URL leads to: an address where it is one, however it is written, else a name."""
    name = url.raw_host.decode("ascii").lower().rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return _odd_address(name) or name
    return getattr(address, "ipv4_mapped", None) or address


def _odd_address(name: str) -> Address | None:
    """`2852039166` and `0xa9fea9fe` are addresses to whoever connects."""
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def _is_at_home(host: str | Address) -> bool:
    """Whether a host lies in a network of one's own, where https is hard to come by."""
    if isinstance(host, str):
        return "." not in host or host.endswith(_AT_HOME)
    return not host.is_global
