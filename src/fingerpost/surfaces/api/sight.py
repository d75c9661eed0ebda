"""What of the requests somebody may see: all with the right to watch, else their own."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.events import Event, RequestNarrowed
from fingerpost.records import Narrowing, Principal, Right
from fingerpost.surfaces.api.operation import ApiProblem


def get_visible_caller(principal: Principal, *also: Right) -> str | None:
    """None: they see everybody's. Else the name of the caller whose requests they see: their own.

    `also` are rights that let one see everything here, beside that to watch. Raises `ApiProblem`.
    """
    if any(principal.may(right) for right in (Right.WATCH, *also)):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise build_missing_right(Right.WATCH)


def is_scoped(principal: Principal) -> bool:
    """Whether they may use some tools alone: requests of others may name any, and so may the settings."""
    scope = principal.scope
    return bool(scope.servers or scope.tools or scope.effects or principal.profiles)


def check_unscoped(principal: Principal) -> None:
    """Raises `ApiProblem` for who is bound, where an answer speaks of everything there is."""
    if is_scoped(principal):
        detail = "Your key is bound to certain tools or profiles, and this speaks of all there are."
        raise ApiProblem(403, "You may not see this", detail)


def get_request_owner(principal: Principal) -> str | None:
    """Whose requests they see, with everything that was considered for them; None: everybody's.

    Who is bound sees their own, whatever their rights. Raises `ApiProblem`.
    """
    own = get_visible_caller(principal)
    return principal.name if own is None and is_scoped(principal) else own


def filter_narrowing(narrowing: Narrowing, principal: Principal) -> Narrowing:
    """What was found for a request, as this caller may hear it.

    Which tools are hidden from them, and by which rule, is for those who may watch everything.
    """
    if principal.may(Right.WATCH) and not is_scoped(principal):
        return narrowing
    return replace(narrowing, shortlist=replace(narrowing.shortlist, hidden=()))


def filter_event(event: Event, principal: Principal) -> Event:
    """The event, as this caller may hear it."""
    if isinstance(event, RequestNarrowed):
        return replace(event, narrowing=filter_narrowing(event.narrowing, principal))
    return event


def build_missing_right(right: Right) -> ApiProblem:
    """What somebody hears who lacks a right."""
    return ApiProblem(403, "You may not do this", f"Your key does not give you the right `{right}`.")
