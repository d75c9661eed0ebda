"""OAuth resources of the gateway (RFC 8707) and the metadata that names the authorization server (RFC
9728).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from fingerpost.records import Json, JsonObject
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.settings.validation import get_base_url
from fingerpost.surfaces.http.addresses import get_reachable_address

_ENDPOINT_PATHS: Final = ("/mcp", "/mcp/route", "/mcp/all")
_ENDPOINT_PATTERN = re.compile(r"(?P<root>.*?)/mcp(?:/route|/all|/p/[^/?#]+)?")


class ProtectedResources:
    """The resource names of this gateway's endpoints, and the accepted audiences."""

    def __init__(self, settings: GatewaySettings, *, bound: str, profiles: Iterable[str] = ()) -> None:
        audience = None if settings.sign_in is None else settings.sign_in.audience
        named = audience if audience is not None and get_base_url(audience) is not None else None
        root = None if named is None else _parse_root(named)
        base_url = settings.public_url or root or f"http://{get_reachable_address(bound)}"
        self._base_url = base_url.rstrip("/")
        self._audience = audience
        self._profiles = profiles
        self._is_ours = root is not None and root == self._base_url
        self._shared_resource = None if named is None or self._is_ours else named
        self.main = named or f"{self._base_url}/mcp"

    @property
    def prefix(self) -> str:
        """The path prefix that a proxy adds, or an empty string."""
        return urlsplit(self._base_url).path

    def get_resources(self) -> Mapping[str, str]:
        """Return the resource of each current endpoint, by path."""
        return {path: self._shared_resource or f"{self._base_url}{path}" for path in self._get_endpoints()}

    def get_audiences(self) -> Mapping[str, str | None]:
        """Return the accepted audiences, each with the profile that it limits a token to."""
        taken: dict[str, str | None] = {}
        if self._is_ours:
            taken = {f"{self._base_url}{path}": profile for path, profile in self._get_endpoints().items()}
        if self._audience is not None:
            taken[self._audience] = None
        return taken

    def _get_endpoints(self) -> Mapping[str, str | None]:
        return {**dict.fromkeys(_ENDPOINT_PATHS), **{f"/mcp/p/{name}": name for name in self._profiles}}


def _parse_root(address: str) -> str | None:
    """Return the root URL of a gateway with this endpoint URL, or None if it is not an endpoint URL."""
    match = _ENDPOINT_PATTERN.fullmatch(address)
    return None if match is None else match["root"]


WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"


class ResourceMetadata:
    """The protected-resource metadata, and the challenge that refers to them.

    Clients check that the resource named in a document is the URL they requested (RFC 9728, 3.3).
    """

    def __init__(self, sign_in: SignInSettings | None, resources: ProtectedResources) -> None:
        self._sign_in = sign_in
        self._resources = resources

    def get_documents(self) -> Mapping[str, JsonObject]:
        """Return the documents by path. Empty if sign-in is not configured."""
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
        """Build the `WWW-Authenticate` header of a denial at this path."""
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
