"""How a client that is turned away learns where to sign in (RFC 9728)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from fingerpost.records import Json, JsonObject
from fingerpost.settings.model import SignInSettings
from fingerpost.surfaces.web.access.addresses import base_of
from fingerpost.surfaces.web.access.resources import Resources

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class Documents:
    """The protected-resource metadata, and the challenge that points to them.

    Clients compare: the resource a document names must be the address it was asked for (RFC 9728, 3.3).
    """

    def __init__(self, sign_in: SignInSettings | None, resources: Resources) -> None:
        self._sign_in = sign_in
        self._resources = resources

    def all(self) -> Mapping[str, JsonObject]:
        """By path; nothing where nobody can sign in."""
        if self._sign_in is None:
            return {}
        main, prefix = self._resources.main, self._resources.prefix
        named = {"": main, _path(main): main}
        for path, resource in self._resources.at().items():
            named[path] = named[f"{prefix}{path}"] = resource
        return {f"{WELL_KNOWN}{path}": _document(self._sign_in, named[path]) for path in sorted(named)}

    def challenge(self, path: str, error: str | None = None, scopes: tuple[str, ...] = ()) -> tuple[str, str]:
        """The `WWW-Authenticate` header of a refusal at this path."""
        parts = ['realm="fingerpost"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._sign_in is not None:
            resource = self._resources.at().get(path, self._resources.main)
            parts.append(f'resource_metadata="{base_of(resource)}{WELL_KNOWN}{_path(resource)}"')
        return "www-authenticate", f"Bearer {', '.join(parts)}"


def _document(sign_in: SignInSettings, resource: str) -> JsonObject:
    document: dict[str, Json] = {
        "resource": resource,
        "authorization_servers": [sign_in.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Fingerpost",
    }
    if sign_in.scopes:
        document["scopes_supported"] = [*sign_in.scopes]
    return document


def _path(resource: str) -> str:
    return urlsplit(resource).path.rstrip("/")
