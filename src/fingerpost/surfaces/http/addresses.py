"""Hosts, ports and origins, and which of them a request may name.

Checking both Host and Origin stops DNS rebinding: a page can make its name resolve to this machine, but
cannot choose these headers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.settings.model import GatewaySettings
from fingerpost.settings.validation import DEFAULT_PORTS, is_loopback

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/@?#]+)(?::(?P<port>\d{1,5}|\*))?")
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound


@frozen(kw_only=False)
class Authority:
    """`host` or `host:port`. The host is lower-case; IPv6 addresses have no brackets."""

    host: str
    port: int | None = None
    any_port: bool = False  # written as `host:*`

    @classmethod
    def parse(cls, text: str) -> Authority | None:
        """Parse a Host header or an entry of `allowed_hosts`. Return None if it is invalid."""
        match = _AUTHORITY.fullmatch(text.strip())
        if match is None:
            return None
        host = match["host"].strip("[]").lower().rstrip(".")
        if match["port"] == "*":
            return cls(host, any_port=True)
        port = int(match["port"]) if match["port"] else None
        return None if port is not None and port > 65535 else cls(host, port)


@frozen(kw_only=False)
class WebOrigin:
    """The origin of a web page. The port is always explicit."""

    scheme: str
    host: str
    port: int | None  # None: any, written as `*`

    @classmethod
    def parse(cls, text: str) -> WebOrigin | None:
        """Parse an Origin header or an entry of `allowed_origins`.

        Return None for `null` and invalid values.
        """
        scheme, separator, rest = text.strip().lower().partition("://")
        authority = Authority.parse(rest.rstrip("/")) if separator else None
        if authority is None or not scheme:
            return None
        port = None if authority.any_port else authority.port or DEFAULT_PORTS.get(scheme)
        return None if port is None and not authority.any_port else cls(scheme, authority.host, port)


def is_every_address(host: str) -> bool:
    """Return whether this host means all addresses of the machine."""
    return host.strip("[]") in _ANY_ADDRESS


def is_ip_literal(host: str) -> bool:
    """Return whether the host is an IP address. Unlike a name, it cannot be made to resolve elsewhere."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def get_reachable_address(bound: str) -> str:
    """Return the `host:port` at which browsers reach a server bound to `bound`, which may be `0.0.0.0`.

    The result is an IP address: a server bound to all addresses accepts one as Host, but not the machine's
    name.
    """
    authority = Authority.parse(bound)
    if authority is None or not is_every_address(authority.host):
        return bound
    host = _get_own_address(socket.AF_INET6 if ":" in authority.host else socket.AF_INET)
    return f"[{host}]:{authority.port}" if ":" in host else f"{host}:{authority.port}"


# Addresses reserved for documentation (RFC 5737, RFC 3849): they select the outgoing route.
_REMOTE_ADDRESSES: Final = {socket.AF_INET: ("192.0.2.1", 9), socket.AF_INET6: ("2001:db8::1", 9)}
_LOOPBACK_ADDRESSES: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def _get_own_address(family: socket.AddressFamily) -> str:
    """Return this machine's address for others, or loopback if there is none. Nothing is sent."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.settimeout(0)
            probe.connect(_REMOTE_ADDRESSES[family])
            return probe.getsockname()[0]
    except OSError:
        return _LOOPBACK_ADDRESSES[family]


_MAX_CACHED_TARGETS: Final = 256
_MAX_HEADER_LENGTH: Final = 300


@frozen(kw_only=False)
class RequestTarget:
    """The target of a request. `refusal` is a sentence if the target is not this gateway."""

    refusal: str | None
    loopback: bool  # Host is a loopback name


class AllowedHosts:
    """The hosts and origins this gateway accepts."""

    def __init__(self, settings: GatewaySettings, bound: Authority) -> None:
        self._bound = bound
        self._hosts = [entry for text in settings.allowed_hosts if (entry := Authority.parse(text))]
        self._origins = [entry for text in settings.allowed_origins if (entry := WebOrigin.parse(text))]
        self._literal_origins = frozenset(settings.allowed_origins)  # such as `null`, `vscode-webview://…`
        if not is_every_address(settings.host):
            self._hosts.append(Authority(settings.host.strip("[]").lower()))  # a host name, not an address
        if settings.public_url and (public := WebOrigin.parse(_get_origin(settings.public_url))) is not None:
            self._hosts.append(Authority(public.host))
            self._origins.append(public)
        self._targets: dict[tuple[str, str | None], RequestTarget] = {}

    @property
    def allows_any_origin(self) -> bool:
        """Whether any web page may send requests."""
        return "*" in self._literal_origins or any(entry.host == "*" for entry in self._origins)

    def get_target(self, headers: Mapping[str, str]) -> RequestTarget:
        """Return the target of a request, by its Host and Origin headers. Results are cached."""
        asked = headers.get("host", ""), headers.get("origin")
        try:
            return self._targets[asked]
        except KeyError:
            answer = self._build_target(*asked)
            if len(asked[0]) + len(asked[1] or "") <= _MAX_HEADER_LENGTH:  # limits memory
                if len(self._targets) >= _MAX_CACHED_TARGETS:
                    self._targets.clear()
                self._targets[asked] = answer
            return answer

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        """Return whether a health probe is answered. Orchestrators send probes with an IP address as Host, or
        without Host.

        Foreign host names and pages are still refused.
        """
        if is_cross_site_embed(headers):
            return False
        if (host := headers.get("host")) is None:
            return "origin" not in headers
        if "origin" in headers:
            return self.get_target(headers).refusal is None
        authority = Authority.parse(host)
        return authority is not None and (is_ip_literal(authority.host) or self._is_known_host(authority))

    def _build_target(self, host: str, origin: str | None) -> RequestTarget:
        authority = Authority.parse(host)
        loopback = authority is not None and is_loopback(authority.host)
        return RequestTarget(self._explain_refusal(authority, origin), loopback)

    def _explain_refusal(self, authority: Authority | None, origin: str | None) -> str | None:
        if authority is None or not self._is_known_host(authority):
            return "This Host is not allowed. If it should be, add it to gateway.allowed_hosts."
        if origin is not None and not self._allows_origin(origin, authority):
            return (
                "Pages of this Origin may not call this gateway. "
                "If they should, add it to gateway.allowed_origins."
            )
        return None

    def _is_known_host(self, asked: Authority) -> bool:
        if is_loopback(asked.host) or asked.host == self._bound.host:
            return True
        if is_every_address(self._bound.host) and is_ip_literal(asked.host):
            return True
        return any(
            fnmatchcase(asked.host, entry.host) and entry.port in (None, asked.port) for entry in self._hosts
        )

    def _allows_origin(self, text: str, asked: Authority) -> bool:
        if text in self._literal_origins or "*" in self._literal_origins:
            return True
        origin = WebOrigin.parse(text)
        if origin is None:
            return False
        if any(_covers_origin(entry, origin) for entry in self._origins):
            return True
        # A page served by this gateway: same host and port. All loopback names are the same host.
        are_loopback = is_loopback(origin.host) and is_loopback(asked.host)
        return are_loopback and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))


def is_cross_site_embed(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another site embeds this URL: without Origin, but marked by browsers."""
    elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return elsewhere and "origin" not in headers and headers.get("sec-fetch-mode") != "navigate"


def _covers_origin(entry: WebOrigin, origin: WebOrigin) -> bool:
    return (
        entry.scheme == origin.scheme
        and fnmatchcase(origin.host, entry.host)
        and entry.port in (None, origin.port)
    )


def _get_origin(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}"
