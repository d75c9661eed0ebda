"""How a client that is turned away learns where to sign in (RFC 9728)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from fingerpost.records import Json, JsonObject
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import base_of, reachable

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_PATHS: Final = ("/mcp", "/mcp/route", "/mcp/all")


class Documents:
    """The protected-resource metadata, and the challenge that points to them."""

    def __init__(self, settings: GatewaySettings, *, bound: str, profiles: Iterable[str] = ()) -> None:
        self._settings = settings
        own = (settings.public_url or f"http://{reachable(bound)}").rstrip("/")
        self._resource = _resource(settings, own)
        self._base = base_of(self._resource) or own
        self._profiles = profiles
        self._prefix = urlsplit(own).path

    def all(self) -> Mapping[str, JsonObject]:
        """By path; nothing where nobody can sign in."""
        sign_in = self._settings.sign_in
        if sign_in is None:
            return {}
        document: dict[str, Json] = {
            "resource": self._resource,
            "authorization_servers": [sign_in.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Fingerpost",
        }
        if sign_in.scopes:
            document["scopes_supported"] = [*sign_in.scopes]
        ours = [*_PATHS, *(f"/mcp/p/{name}" for name in self._profiles)]  # those there are now
        paths = {
            "",
            urlsplit(self._resource).path.rstrip("/"),
            *ours,
            *(f"{self._prefix}{path}" for path in ours),
        }
        return {f"{WELL_KNOWN}{path}": document for path in sorted(paths)}

    def challenge(self, error: str | None = None, scopes: tuple[str, ...] = ()) -> tuple[str, str]:
        """The `WWW-Authenticate` header of a refusal."""
        parts = ['realm="fingerpost"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._settings.sign_in is not None:
            path = urlsplit(self._resource).path.rstrip("/")
            parts.append(f'resource_metadata="{self._base}{WELL_KNOWN}{path}"')
        return "www-authenticate", f"Bearer {', '.join(parts)}"


def _resource(settings: GatewaySettings, own: str) -> str:
    """What tokens are asked for: the audience, where that is an address at all."""
    if settings.sign_in is not None and base_of(settings.sign_in.audience) is not None:
        return settings.sign_in.audience
    return f"{own}/mcp"
