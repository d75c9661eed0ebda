"""The addresses tokens are asked for: each endpoint is a resource of its own (RFC 8707).

Where `audience` is the address of one of our endpoints, a token for any other is
as good: a client asks for the address it calls. One that was asked for the
endpoint of a profile opens that profile alone. Any other audience was agreed on
with the issuer, so it is taken to the letter and no endpoint's address is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import get_base_url, get_reachable_address

_ENDPOINT_PATHS: Final = ("/mcp", "/mcp/route", "/mcp/all")
_ENDPOINT_PATTERN = re.compile(r"(?P<root>.*?)/mcp(?:/route|/all|/p/[^/?#]+)?")


class ProtectedResources:
    """What this gateway's endpoints are called, and which audiences are theirs."""

    def __init__(self, settings: GatewaySettings, *, bound: str, profiles: Iterable[str] = ()) -> None:
        audience = None if settings.sign_in is None else settings.sign_in.audience
        named = audience if audience is not None and get_base_url(audience) is not None else None
        home = None if named is None else _parse_root(named)
        own = settings.public_url or home or f"http://{get_reachable_address(bound)}"
        self._own = own.rstrip("/")
        self._audience = audience
        self._profiles = profiles
        self._is_ours = home is not None and home == self._own
        self._one_for_all = None if named is None or self._is_ours else named
        self.main = named or f"{self._own}/mcp"

    @property
    def prefix(self) -> str:
        """The path before our own paths, where a proxy puts one there."""
        return urlsplit(self._own).path

    def get_resources(self) -> Mapping[str, str]:
        """The resource of each endpoint there is now, by its path."""
        return {path: self._one_for_all or f"{self._own}{path}" for path in self._get_endpoints()}

    def get_audiences(self) -> Mapping[str, str | None]:
        """What a token may be for, and the profile it is bound to by that."""
        taken: dict[str, str | None] = {}
        if self._is_ours:
            taken = {f"{self._own}{path}": profile for path, profile in self._get_endpoints().items()}
        if self._audience is not None:
            taken[self._audience] = None
        return taken

    def _get_endpoints(self) -> Mapping[str, str | None]:
        return {**dict.fromkeys(_ENDPOINT_PATHS), **{f"/mcp/p/{name}": name for name in self._profiles}}


def _parse_root(address: str) -> str | None:
    """Where a gateway is that has an endpoint of this address; None when it could be none."""
    match = _ENDPOINT_PATTERN.fullmatch(address)
    return None if match is None else match["root"]
