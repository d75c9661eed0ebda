"""What preparing arguments comes to."""

from __future__ import annotations

from fingerpost.frozen import frozen
from fingerpost.records import Json, ParameterError, Repair


@frozen
class PreparedArguments:
    """Arguments that fit the tool's schema, or the reasons why they do not.

    `repairs` says what was changed on the way; with errors it says how far we got.
    `notes` names what could not be checked (a reference to another host, a pattern
    that is not run here, all that comes after too many steps): the server will
    judge that itself.
    """

    arguments: dict[str, Json]
    repairs: tuple[Repair, ...] = ()
    errors: tuple[ParameterError, ...] = ()
    signature: str = ""  # where there is something to put right
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors
