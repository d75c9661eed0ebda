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
    Origin,
    is_every_address,
    is_literal,
    is_loopback,
    read_authority,
    read_origin,
)

_REMEMBERED: Final = 256
_LONGEST: Final = 300


@frozen(kw_only=False)
class Aim:
    """What a request was meant for. `refusal` is a sentence when it was not for us."""

    refusal: str | None
    loopback: bool  # it names this machine as only this machine can


class Hosts:
    """The names this gateway answers to."""

    def __init__(self, settings: GatewaySettings, bound: Authority) -> None:
        self._bound = bound
        self._hosts = [entry for text in settings.allowed_hosts if (entry := read_authority(text))]
        self._origins = [entry for text in settings.allowed_origins if (entry := read_origin(text))]
        self._literally = frozenset(settings.allowed_origins)  # `null`, `vscode-webview://…`
        if not is_every_address(settings.host):
            self._hosts.append(Authority(settings.host.strip("[]").lower()))  # by name, where it is one
        if settings.public_url and (public := read_origin(_origin_of(settings.public_url))) is not None:
            self._hosts.append(Authority(public.host))
            self._origins.append(public)
        self._judged: dict[tuple[str, str | None], Aim] = {}

    @property
    def takes_every_page(self) -> bool:
        """Whether any web page somebody happens to visit may call."""
        return "*" in self._literally or any(entry.host == "*" for entry in self._origins)

    def aim(self, headers: Mapping[str, str]) -> Aim:
        """What a request with these headers was meant for."""
        asked = headers.get("host", ""), headers.get("origin")
        try:
            return self._judged[asked]
        except KeyError:
            answer = self._judge(*asked)
            if len(asked[0]) + len(asked[1] or "") <= _LONGEST:  # strangers do not fill our memory
                if len(self._judged) >= _REMEMBERED:
                    self._judged.clear()
                self._judged[asked] = answer
            return answer

    def answers_probe(self, headers: Mapping[str, str]) -> bool:
        """Whether a health probe is answered: also one by address, as orchestrators send it, or without Host.

        No name of somebody else's leads here by that, and no page of theirs.
        """
        if embeds_from_elsewhere(headers):
            return False
        if (host := headers.get("host")) is None:
            return "origin" not in headers
        if "origin" in headers:
            return self.aim(headers).refusal is None
        authority = read_authority(host)
        return authority is not None and (is_literal(authority.host) or self._knows(authority))

    def _judge(self, host: str, origin: str | None) -> Aim:
        authority = read_authority(host)
        loopback = authority is not None and is_loopback(authority.host)
        return Aim(self._refusal(authority, origin), loopback)

    def _refusal(self, authority: Authority | None, origin: str | None) -> str | None:
        if authority is None or not self._knows(authority):
            return "This Host is not one of this gateway's. If it is, add it to gateway.allowed_hosts."
        if origin is not None and not self._takes(origin, authority):
            return (
                "Pages of this Origin may not call this gateway. "
                "If they should, add it to gateway.allowed_origins."
            )
        return None

    def _knows(self, asked: Authority) -> bool:
        if is_loopback(asked.host) or asked.host == self._bound.host:
            return True
        if is_every_address(self._bound.host) and is_literal(asked.host):
            return True
        return any(
            fnmatchcase(asked.host, entry.host) and entry.port in (None, asked.port) for entry in self._hosts
        )

    def _takes(self, text: str, asked: Authority) -> bool:
        if text in self._literally or "*" in self._literally:
            return True
        origin = read_origin(text)
        if origin is None:
            return False
        if any(_covers(entry, origin) for entry in self._origins):
            return True
        # A page that we ourselves serve: same name, same port. The names of loopback are one and the same.
        at_home = is_loopback(origin.host) and is_loopback(asked.host)
        return at_home and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))


def embeds_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a foreign page has its browser load this: that sends no Origin, but the browser says so."""
    elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return elsewhere and "origin" not in headers and headers.get("sec-fetch-mode") != "navigate"


def _covers(entry: Origin, origin: Origin) -> bool:
    return (
        entry.scheme == origin.scheme
        and fnmatchcase(origin.host, entry.host)
        and entry.port in (None, origin.port)
    )


def _origin_of(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}"
