"""Whether a request was meant for us, and whether a web page may send it.

A page a person merely visits can make its own name point at this machine and
call us from their browser (DNS rebinding). It cannot choose the Host its browser
sends, nor the Origin: so both must be names we expect.

For a Host the name decides. Its port may be another where something stands in
between (a tunnel, a container's port mapping), unless `allowed_hosts` names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import (
    DEFAULT_PORTS,
    Authority,
    WebOrigin,
    is_every_address,
    is_ip_literal,
    is_loopback,
    parse_authority,
    parse_origin,
)

_MAX_CACHED_TARGETS: Final = 256
_MAX_HEADER_LENGTH: Final = 300


@frozen(kw_only=False)
class RequestTarget:
    """What a request was meant for. `refusal` is a sentence when it was not for us."""

    refusal: str | None
    loopback: bool  # it names this machine as only this machine can


class AllowedHosts:
    """The names this gateway answers to."""

    def __init__(self, settings: GatewaySettings, bound: Authority) -> None:
        self._bound = bound
        self._hosts = [entry for text in settings.allowed_hosts if (entry := parse_authority(text))]
        self._origins = [entry for text in settings.allowed_origins if (entry := parse_origin(text))]
        self._literally = frozenset(settings.allowed_origins)  # `null`, `vscode-webview://…`
        if not is_every_address(settings.host):
            self._hosts.append(Authority(settings.host.strip("[]").lower()))  # by name, where it is one
        if settings.public_url and (public := parse_origin(_get_origin(settings.public_url))) is not None:
            self._hosts.append(Authority(public.host))
            self._origins.append(public)
        self._targets: dict[tuple[str, str | None], RequestTarget] = {}

    @property
    def allows_any_origin(self) -> bool:
        """Whether any web page somebody happens to visit may call."""
        return "*" in self._literally or any(entry.host == "*" for entry in self._origins)

    def check_target(self, headers: Mapping[str, str]) -> RequestTarget:
        """What a request with these headers was meant for."""
        asked = headers.get("host", ""), headers.get("origin")
        try:
            return self._targets[asked]
        except KeyError:
            answer = self._check_host(*asked)
            if len(asked[0]) + len(asked[1] or "") <= _MAX_HEADER_LENGTH:  # strangers do not fill our memory
                if len(self._targets) >= _MAX_CACHED_TARGETS:
                    self._targets.clear()
                self._targets[asked] = answer
            return answer

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        """Whether a health probe is answered: also one by address, as orchestrators send it, or without Host.

        No name of somebody else's leads here by that, and no page of theirs.
        """
        if is_cross_site_embed(headers):
            return False
        if (host := headers.get("host")) is None:
            return "origin" not in headers
        if "origin" in headers:
            return self.check_target(headers).refusal is None
        authority = parse_authority(host)
        return authority is not None and (is_ip_literal(authority.host) or self._is_known_host(authority))

    def _check_host(self, host: str, origin: str | None) -> RequestTarget:
        authority = parse_authority(host)
        loopback = authority is not None and is_loopback(authority.host)
        return RequestTarget(self._explain_refusal(authority, origin), loopback)

    def _explain_refusal(self, authority: Authority | None, origin: str | None) -> str | None:
        if authority is None or not self._is_known_host(authority):
            return "This Host is not one of this gateway's. If it is, add it to gateway.allowed_hosts."
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
        if text in self._literally or "*" in self._literally:
            return True
        origin = parse_origin(text)
        if origin is None:
            return False
        if any(_covers_origin(entry, origin) for entry in self._origins):
            return True
        # A page that we ourselves serve: same name, same port. The names of loopback are one and the same.
        at_home = is_loopback(origin.host) and is_loopback(asked.host)
        return at_home and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))


def is_cross_site_embed(headers: Mapping[str, str]) -> bool:
    """Whether a foreign page has its browser load this: that sends no Origin, but the browser says so."""
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
