"""What a checked token says: who its holder is, and what they may touch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Effect, Principal, Right, Scope

LONGEST_NAME: Final = 200
MOST_SCOPES: Final = 200
OURS: Final = "fingerpost:"


class ClaimsRefused(Exception):
    """The token is good, but what it says is not."""


def scopes_of(claims: Mapping[str, object]) -> tuple[str, ...]:
    """The scopes of a token, by either of the names they go by."""
    given = claims.get("scope", claims.get("scp"))
    if isinstance(given, str):
        return tuple(given.split())[:MOST_SCOPES]
    if isinstance(given, list):
        return tuple(str(entry) for entry in cast("list[object]", given))[:MOST_SCOPES]
    return ()


def principal_of(claims: Mapping[str, object], scopes: tuple[str, ...]) -> Principal:
    """Who holds this token. Raises `ClaimsRefused` for what we cannot read: half a bound would be none."""
    servers: list[str] = []
    tools: list[str] = []
    effects: list[Effect] = []
    profiles: list[str] = []
    rights = [Right.USE]
    places = {"server": servers, "tool": tools, "profile": profiles}
    for scope in scopes:
        if not scope.startswith(OURS):
            continue
        kind, _, value = scope.removeprefix(OURS).partition(":")
        if kind == "effect" and value in set(Effect):
            effects.append(Effect(value))
        elif kind == "may" and value in set(Right):
            rights.append(Right(value))
        elif kind in places and value:
            places[kind].append(value)
        else:
            message = f"the scope {scope[:LONGEST_NAME]!r} is not one we know"
            raise ClaimsRefused(message)
    return Principal(
        name=_name(claims),
        kind="token",
        scope=Scope(servers=tuple(servers), tools=tuple(tools), effects=tuple(effects)),
        profiles=tuple(profiles),
        rights=tuple(dict.fromkeys(rights)),
    )


def _name(claims: Mapping[str, object]) -> str:
    """`token:<sub>`, with the client where it is named. No key and no local person is called so."""
    subject = claims.get("sub")
    client = claims.get("client_id", claims.get("azp"))
    if not isinstance(subject, str):
        message = "the token names no subject"
        raise ClaimsRefused(message)
    name = (
        f"token:{subject}@{client}" if isinstance(client, str) and client != subject else f"token:{subject}"
    )
    if not subject.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        message = "the token's subject is empty, too long or unprintable"
        raise ClaimsRefused(message)
    return name
