"""What a checked token says: who its holder is, and what they may touch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Effect, Principal, Right, Scope

MAX_NAME_LENGTH: Final = 200
MAX_SCOPES: Final = 1000
SCOPE_PREFIX: Final = "fingerpost:"

# By either name: some issuers say one, some the other, some both.
_SCOPE_CLAIMS: Final = ("scope", "scp")
# Ours by its beginning, or meant as one of ours and written as we do not read it: in capitals, behind a
# comma or behind an address. A number after it is the port of a host that is called so.
_SCOPE_MEANINGS = re.compile(r"^fingerpost:|fingerpost:(?!\d)", re.IGNORECASE)


class InvalidClaims(Exception):
    """The token is good, but what it says is not."""


def get_scopes(claims: Mapping[str, object]) -> tuple[str, ...]:
    """All scopes of a token.

    Raises `InvalidClaims` for what we cannot read whole: half a bound would be none.
    """
    scopes = tuple(scope for name in _SCOPE_CLAIMS for scope in _parse_scope_claim(name, claims.get(name)))
    if len(scopes) > MAX_SCOPES:
        message = f"the token has more than {MAX_SCOPES} scopes"
        raise InvalidClaims(message)
    return scopes


def _parse_scope_claim(name: str, given: object) -> list[str]:
    """What one claim lists: a text with spaces between, or a list of texts. None says nothing."""
    if given is None:
        return []
    if isinstance(given, str):
        return given.split()
    if isinstance(given, list):
        entries = cast("list[object]", given)
        texts = [entry for entry in entries if isinstance(entry, str)]
        if len(texts) == len(entries):
            return texts
    message = f"the token's {name} is neither a text nor a list of texts"
    raise InvalidClaims(message)


def build_principal(
    claims: Mapping[str, object], scopes: tuple[str, ...], *, audience_profiles: tuple[str, ...] = ()
) -> Principal:
    """Who holds this token; `meant_for` are the profiles it was asked for, if for these alone.

    Raises `InvalidClaims` for what we cannot read.
    """
    servers: list[str] = []
    tools: list[str] = []
    effects: list[Effect] = []
    profiles: list[str] = []
    rights = [Right.USE]
    places = {"server": servers, "tool": tools, "profile": profiles}
    for scope in scopes:
        if _SCOPE_MEANINGS.search(scope) is None:
            continue
        named, _, value = scope.removeprefix(SCOPE_PREFIX).partition(":")
        kind = named if scope.startswith(SCOPE_PREFIX) else ""
        if kind == "effect" and value in set(Effect):
            effects.append(Effect(value))
        elif kind == "may" and value in set(Right):
            rights.append(Right(value))
        elif kind in places and value:
            places[kind].append(value)
        else:
            message = f"the scope {scope[:MAX_NAME_LENGTH]!r} is not one we know"
            raise InvalidClaims(message)
    return Principal(
        name=_build_principal_name(claims),
        kind="token",
        scope=Scope(servers=tuple(servers), tools=tuple(tools), effects=tuple(effects)),
        profiles=_intersect_profiles(tuple(profiles), audience_profiles),
        rights=tuple(dict.fromkeys(rights)),
    )


def _intersect_profiles(scoped: tuple[str, ...], audience_profiles: tuple[str, ...]) -> tuple[str, ...]:
    """The profiles that scopes and audience leave; where one of the two says nothing, the other's."""
    if not scoped or not audience_profiles:
        return scoped or audience_profiles
    both = tuple(name for name in scoped if name in audience_profiles)
    if not both:  # which would read as: all of them
        message = "the token's scopes name other profiles than its audience"
        raise InvalidClaims(message)
    return both


def _build_principal_name(claims: Mapping[str, object]) -> str:
    """`token:<sub>`, with the client where it is named. No key and no local person is called so.

    What stands behind the last "@" is the client, so that no two have one name: a subject with an "@" and
    no client ends with one.
    """
    subject = claims.get("sub")
    client = claims.get("client_id", claims.get("azp"))
    if not isinstance(subject, str):
        message = "the token names no subject"
        raise InvalidClaims(message)
    name = f"token:{subject}"
    if isinstance(client, str) and client not in ("", subject):
        name += f"@{client.replace('%', '%25').replace('@', '%40')}"
    elif "@" in subject:
        name += "@"
    if not subject.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        message = "the token's subject is empty, too long or unprintable"
        raise InvalidClaims(message)
    return name
