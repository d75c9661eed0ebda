"""What of the requests somebody may see: all with the right to watch, else their own."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.events import Event, RequestNarrowed
from fingerpost.records import Narrowing, Principal, Right
from fingerpost.surfaces.api.operation import Problem


def only_of(principal: Principal, *also: Right) -> str | None:
    """None: they see everybody's. Else the name of the caller whose requests they see: their own.

    `also` are rights that let one see everything here, beside that to watch. Raises `Problem`.
    """
    if any(principal.may(right) for right in (Right.WATCH, *also)):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise may_not(Right.WATCH)


def is_bound(principal: Principal) -> bool:
    """Whether they may use some tools alone: requests of others may name any, and so may the settings."""
    scope = principal.scope
    return bool(scope.servers or scope.tools or scope.effects or principal.profiles)


def check_unbound(principal: Principal) -> None:
    """Raises `Problem` for who is bound, where an answer speaks of everything there is."""
    if is_bound(principal):
        detail = "Your key is bound to certain tools or profiles, and this speaks of all there are."
        raise Problem(403, "You may not see this", detail)


def requests_of(principal: Principal) -> str | None:
    """Whose requests they see, with everything that was considered for them; None: everybody's.

    Who is bound sees their own, whatever their rights. Raises `Problem`.
    """
    own = only_of(principal)
    return principal.name if own is None and is_bound(principal) else own


def shown_narrowing(narrowing: Narrowing, principal: Principal) -> Narrowing:
    """What was found for a request, as this caller may hear it.

    Which tools are hidden from them, and by which rule, is for those who may watch everything.
    """
    if principal.may(Right.WATCH) and not is_bound(principal):
        return narrowing
    return replace(narrowing, shortlist=replace(narrowing.shortlist, hidden=()))


def shown_event(event: Event, principal: Principal) -> Event:
    """The event, as this caller may hear it."""
    if isinstance(event, RequestNarrowed):
        return replace(event, narrowing=shown_narrowing(event.narrowing, principal))
    return event


def may_not(right: Right) -> Problem:
    """What somebody hears who lacks a right."""
    return Problem(403, "You may not do this", f"Your key does not give you the right `{right}`.")
