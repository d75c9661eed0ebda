"""Who asks, as the surfaces see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Right
from fingerpost.store.keys import PREFIX

HOST_REFUSED: Final = (
    "This Host or Origin is not this gateway's. If it should be, add it to gateway.allowed_hosts."
)
# Browsers give what says so to no page of another site.
SAME_ORIGIN_HEADERS: Final = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


@frozen
class Endpoint:
    """What a path leads to: `/mcp`, `/mcp/p/<profile>`, `/v1/chat/completions`, `/api/packets`."""

    path: str
    mode: str = ""  # of the MCP gateway: auto, route, all
    profile: str | None = None
    right: Right | None = Right.USE  # without it nobody is let in; None: whoever is known
    any_profile: bool = False  # which profile is meant stands in the request, and is checked there


@frozen
class AccessDenial:
    """Why somebody is not let in, as the HTTP answer they get."""

    status: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()


class Authenticator(Protocol):
    """Says who asks. Asked for every HTTP request, so it takes no time where it need not."""

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        """Who this is, by lower-case headers; `remote` is where they come from.

        Host and Origin are checked here, too, and whoever is refused is told of here.
        """
        ...

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Whether a web page may call us, by Host and Origin; its credential comes with the call."""
        ...

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        """Whether a health probe with these headers is answered. It needs no credential."""
        ...

    def get_public_documents(self) -> Mapping[str, JsonObject]:
        """Public documents by path (`/.well-known/oauth-protected-resource…`)."""
        ...


def get_forwarded_authorization(headers: Mapping[str, str]) -> str | None:
    """The caller's own `Authorization` for servers set up for it, where it is not what let them in here.

    A key or token for Fingerpost is for nobody else; one beside an `X-API-Key` is, except a key of ours.
    """
    given = headers.get("authorization")
    if given is None or "x-api-key" not in headers:
        return None
    return None if given.partition(" ")[2].strip().startswith(PREFIX) else given
