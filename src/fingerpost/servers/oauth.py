"""Being signed in to a server: what is kept of a sign-in, and how it is used and renewed.

A connection never opens a browser. With a stored sign-in, requests carry its
token and it is renewed when it runs out; without one, the server's refusal
becomes the reason "needs signing in". Signing in itself is `login`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Protocol

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from fingerpost.records import OAuthSpec, ServerSpec
from fingerpost.redaction import register_secret
from fingerpost.servers.leads import why_not_connect


class SignInStore(Protocol):
    """Where sign-ins are kept, by the server's name. The store implements this; `data` is secret."""

    async def get(self, server: str) -> bytes | None: ...

    async def put(self, server: str, data: bytes) -> None: ...

    async def remove(self, server: str) -> object: ...


class OAuthSignIn(BaseModel):
    """All that is needed to go on being signed in after a restart.

    The library would keep tokens and client only, and guess where to renew
    them: right for servers that sign in themselves, wrong for all others.
    """

    address: str
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    authority: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    def register_secrets(self) -> None:
        """Have every secret in here masked wherever it might turn up."""
        secrets = [self.client.client_secret] if self.client is not None else []
        if self.tokens is not None:
            secrets += [self.tokens.access_token, self.tokens.refresh_token]
        for secret in secrets:
            if secret is not None:
                register_secret(secret)


class OAuthTokenStorage:
    """The library's token storage over our token book. Knows the flow it serves, to keep its findings too."""

    def __init__(self, store: SignInStore, server: str, sign_in: OAuthSignIn) -> None:
        self._book = store
        self._server = server
        self.sign_in = sign_in
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.sign_in.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        self.sign_in = self.sign_in.model_copy(
            update={
                "tokens": tokens,
                "expires_at": None if tokens.expires_in is None else time.time() + tokens.expires_in,
                "authority": context.oauth_metadata if context is not None else None,
                "resource": context.protected_resource_metadata if context is not None else None,
            }
        )
        self.sign_in.register_secrets()
        await self._book.put(self._server, self.sign_in.model_dump_json(exclude_none=True).encode())

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.sign_in.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Not yet worth writing down: without tokens it is of no use, and they follow.
        self.sign_in = self.sign_in.model_copy(update={"client": client_info})


async def load_sign_in(spec: ServerSpec, store: SignInStore | None) -> httpx2.Auth | None:
    """What signs our requests to this server, if somebody signed in to it before."""
    if store is None or spec.url is None or any(name.lower() == "authorization" for name in spec.headers):
        return None
    data = await store.get(spec.name)
    if data is None:
        return None
    try:
        sign_in = OAuthSignIn.model_validate_json(data)
    except ValidationError:
        return None
    # A token is for the server it was given for: an entry that now points elsewhere must not leak it there.
    if sign_in.tokens is None or sign_in.address != spec.url:
        return None
    # Nor is it renewed where no sign-in would lead today: one from before that was looked at.
    renewed_at = None if sign_in.authority is None else httpx2.URL(str(sign_in.authority.token_endpoint))
    if renewed_at is not None and await why_not_connect(renewed_at, server=httpx2.URL(spec.url)) is not None:
        return None
    sign_in.register_secrets()
    return _BearerAuth(
        spec.url,
        build_client_metadata(spec.oauth, "http://127.0.0.1/callback"),
        OAuthTokenStorage(store, spec.name, sign_in),
    )


def build_client_metadata(oauth: OAuthSpec | None, redirect: str) -> OAuthClientMetadata:
    """How we introduce ourselves to an authority."""
    scopes = oauth.scopes if oauth is not None else ()
    return OAuthClientMetadata(
        client_name="Fingerpost", redirect_uris=[AnyUrl(redirect)], scope=" ".join(scopes) or None
    )


class _BearerAuth(OAuthClientProvider):
    """Uses and renews tokens; never asks a person.

    The library's own flow holds a lock from sending a request to its answer, so
    that one slow call would hold up all others. Here the lock covers renewal only.
    """

    def __init__(self, address: str, client: OAuthClientMetadata, storage: OAuthTokenStorage) -> None:
        super().__init__(address, client, storage)
        storage.context = self.context
        self.context.current_tokens = storage.sign_in.tokens
        self.context.token_expiry_time = storage.sign_in.expires_at
        self.context.client_info = storage.sign_in.client
        self.context.oauth_metadata = storage.sign_in.authority
        self.context.protected_resource_metadata = storage.sign_in.resource

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with self.context.lock:
            if not self.context.is_token_valid() and self.context.can_refresh_token():
                await self._handle_refresh_response((yield await self._refresh_token()))
        used = self.context.current_tokens
        self._add_auth_header(request)
        response = yield request
        if response.status_code != 401:
            return
        async with self.context.lock:
            # Another request may have renewed it meanwhile; then only the header is old.
            if self.context.current_tokens is used and self.context.can_refresh_token():
                await self._handle_refresh_response((yield await self._refresh_token()))
        if self.context.current_tokens is not None and self.context.current_tokens is not used:
            self._add_auth_header(request)
            yield request
