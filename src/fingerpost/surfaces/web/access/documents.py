"""How a client that is turned away learns where to sign in (RFC 9728)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from fingerpost.records import Json, JsonObject
from fingerpost.settings.model import SignInSettings
from fingerpost.surfaces.web.access.addresses import get_base_url
from fingerpost.surfaces.web.access.resources import ProtectedResources

WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"


class ResourceMetadata:
    """The protected-resource metadata, and the challenge that points to them.

    Clients compare: the resource a document names must be the address it was asked for (RFC 9728, 3.3).
    """

    def __init__(self, sign_in: SignInSettings | None, resources: ProtectedResources) -> None:
        self._sign_in = sign_in
        self._resources = resources

    def get_documents(self) -> Mapping[str, JsonObject]:
        """By path; nothing where nobody can sign in."""
        if self._sign_in is None:
            return {}
        main, prefix = self._resources.main, self._resources.prefix
        named = {"": main, _get_path(main): main}
        for path, resource in self._resources.get_resources().items():
            named[path] = named[f"{prefix}{path}"] = resource
        return {
            f"{WELL_KNOWN_PATH}{path}": _build_document(self._sign_in, named[path]) for path in sorted(named)
        }

    def build_challenge(
        self, path: str, error: str | None = None, scopes: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """The `WWW-Authenticate` header of a refusal at this path."""
        parts = ['realm="fingerpost"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._sign_in is not None:
            resource = self._resources.get_resources().get(path, self._resources.main)
            parts.append(
                f'resource_metadata="{get_base_url(resource)}{WELL_KNOWN_PATH}{_get_path(resource)}"'
            )
        return "www-authenticate", f"Bearer {', '.join(parts)}"


def _build_document(sign_in: SignInSettings, resource: str) -> JsonObject:
    document: dict[str, Json] = {
        "resource": resource,
        "authorization_servers": [sign_in.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Fingerpost",
    }
    if sign_in.scopes:
        document["scopes_supported"] = [*sign_in.scopes]
    return document


def _get_path(resource: str) -> str:
    return urlsplit(resource).path.rstrip("/")
