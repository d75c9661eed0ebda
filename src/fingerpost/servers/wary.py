"""The library's way of signing in, taken with care: not everywhere, and not without PKCE."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import OAuthMetadata

from fingerpost.servers.leads import why_not_connect

MAX_ADDRESS_LENGTH = 200


class CheckedSignIn(OAuthClientProvider):
    """Looks at every address before it goes there, and at the authority before it has anybody sign in."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    await self._check_request(outgoing)
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization(self) -> httpx2.Request:
        if self.context.oauth_metadata is not None:
            await check_authority(self.context.oauth_metadata, self.context.server_url)
        return await super()._perform_authorization()

    async def _check_request(self, outgoing: httpx2.Request) -> None:
        if outgoing.method == "GET" and _is_same_url(outgoing.url, httpx2.URL(self.context.server_url)):
            return  # its own documents are read where the server is
        if self.context.oauth_metadata is not None:
            await check_authority(self.context.oauth_metadata, self.context.server_url)
        await check_redirect(str(outgoing.url), "for its sign-in", self.context.server_url)


async def check_authority(authority: OAuthMetadata, server: str) -> None:
    """Raises `OAuthFlowError` for an authority nobody should sign in at."""
    endpoints = {
        "to authorize": authority.authorization_endpoint,
        "for tokens": authority.token_endpoint,
        "to register": authority.registration_endpoint,
    }
    for purpose, endpoint in endpoints.items():
        if endpoint is not None:
            await check_redirect(str(endpoint), purpose, server)
    # The MCP specification: where this is absent there is no PKCE, and clients refuse to go on. Without it
    # whoever gets hold of the code on its way back has the token.
    methods = authority.code_challenge_methods_supported or []
    if "S256" not in methods:
        said = f"only {', '.join(methods)}"[:MAX_ADDRESS_LENGTH] if methods else "nothing"
        message = (
            f"its authority {_format_url(httpx2.URL(str(authority.issuer)))} "
            "does not say that it supports PKCE "
            f"by S256 (code_challenge_methods_supported names {said}), without which nobody should sign in"
        )
        raise OAuthFlowError(message)


async def check_redirect(address: str, purpose: str, server: str) -> None:
    """Raises `OAuthFlowError` for an address that is not to be followed."""
    url = httpx2.URL(address)
    why = await why_not_connect(url, server=httpx2.URL(server))
    if why is not None:
        message = f"it pointed to {_format_url(url)} {purpose}, which was not followed: {why}"
        raise OAuthFlowError(message)


def _format_url(url: httpx2.URL) -> str:
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:MAX_ADDRESS_LENGTH]


def _is_same_url(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.raw_host, one.port) == (other.scheme, other.raw_host, other.port)
