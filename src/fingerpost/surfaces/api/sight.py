"""What of the requests somebody may see: all with the right to watch, else their own."""

from __future__ import annotations

from fingerpost.records import Principal, Right
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


def may_not(right: Right) -> Problem:
    """What somebody hears who lacks a right."""
    return Problem(403, "You may not do this", f"Your key does not give you the right `{right}`.")
