"""What a checked token says: who its holder is, and what they may touch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Effect, Principal, Right, Scope

LONGEST_NAME: Final = 200
MOST_SCOPES: Final = 1000
OURS: Final = "fingerpost:"

# By either name: some issuers say one, some the other, some both.
_CLAIMS: Final = ("scope", "scp")
# Ours by its beginning, or meant as one of ours and written as we do not read it: in capitals, behind a
# comma or behind an address. A number after it is the port of a host that is called so.
_MEANT = re.compile(r"^fingerpost:|fingerpost:(?!\d)", re.IGNORECASE)


class ClaimsRefused(Exception):
    """The token is good, but what it says is not."""


def scopes_of(claims: Mapping[str, object]) -> tuple[str, ...]:
    """All scopes of a token.

    Raises `ClaimsRefused` for what we cannot read whole: half a bound would be none.
    """
    scopes = tuple(scope for name in _CLAIMS for scope in _listed(name, claims.get(name)))
    if len(scopes) > MOST_SCOPES:
        message = f"the token has more than {MOST_SCOPES} scopes"
        raise ClaimsRefused(message)
    return scopes


def _listed(name: str, given: object) -> list[str]:
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
    raise ClaimsRefused(message)


def principal_of(
    claims: Mapping[str, object], scopes: tuple[str, ...], *, meant_for: tuple[str, ...] = ()
) -> Principal:
    """Who holds this token; `meant_for` are the profiles it was asked for, if for these alone.

    Raises `ClaimsRefused` for what we cannot read.
    """
    servers: list[str] = []
    tools: list[str] = []
    effects: list[Effect] = []
    profiles: list[str] = []
    rights = [Right.USE]
    places = {"server": servers, "tool": tools, "profile": profiles}
    for scope in scopes:
        if _MEANT.search(scope) is None:
            continue
        named, _, value = scope.removeprefix(OURS).partition(":")
        kind = named if scope.startswith(OURS) else ""
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
        profiles=_in_both(tuple(profiles), meant_for),
        rights=tuple(dict.fromkeys(rights)),
    )


def _in_both(scoped: tuple[str, ...], meant_for: tuple[str, ...]) -> tuple[str, ...]:
    """The profiles that scopes and audience leave; where one of the two says nothing, the other's."""
    if not scoped or not meant_for:
        return scoped or meant_for
    both = tuple(name for name in scoped if name in meant_for)
    if not both:  # which would read as: all of them
        message = "the token's scopes name other profiles than its audience"
        raise ClaimsRefused(message)
    return both


def _name(claims: Mapping[str, object]) -> str:
    """`token:<sub>`, with the client where it is named. No key and no local person is called so.

    What stands behind the last "@" is the client, so that no two have one name: a subject with an "@" and
    no client ends with one.
    """
    subject = claims.get("sub")
    client = claims.get("client_id", claims.get("azp"))
    if not isinstance(subject, str):
        message = "the token names no subject"
        raise ClaimsRefused(message)
    name = f"token:{subject}"
    if isinstance(client, str) and client not in ("", subject):
        name += f"@{client.replace('%', '%25').replace('@', '%40')}"
    elif "@" in subject:
        name += "@"
    if not subject.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        message = "the token's subject is empty, too long or unprintable"
        raise ClaimsRefused(message)
    return name
