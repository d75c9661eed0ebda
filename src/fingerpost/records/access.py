"""Who asks, and what they may touch."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final, Literal

from fingerpost.frozen import frozen
from fingerpost.records.tools import Effect


@frozen
class Scope:
    """What somebody may use at all. An empty part sets no bound; rules of the policy apply inside it."""

    servers: tuple[str, ...] = ()  # names, `*` allowed
    tools: tuple[str, ...] = ()  # keys `server/tool`, `*` allowed
    effects: tuple[Effect, ...] = ()
    profile: str | None = None  # the profile whose bounds these are
    delegated: bool = False  # what an agent may use under that profile, in place of the profile's own bounds
    personal: tuple[str, ...] = ()  # tools (keys) that a server listed to this caller's own key: no bound

    @property
    def bounded(self) -> bool:
        return bool(self.servers or self.tools or self.effects or self.personal)


class Right(StrEnum):
    """What somebody may do at all. An agent's key uses; it does not approve what it asked for itself."""

    USE = "use"  # ask, call tools, chat; and see what became of one's own requests
    WATCH = "watch"  # see everybody's requests, the servers, the figures and the audit trail
    CONFIRM = "confirm"  # its client's person decides about its own calls, by elicitation
    APPROVE = "approve"  # decide what waits for a person
    MANAGE = "manage"  # switch tools and servers, accept changed definitions, close breakers


ALL_RIGHTS: Final = tuple(Right)
DECIDING_RIGHTS: Final = frozenset({Right.CONFIRM, Right.APPROVE, Right.MANAGE})  # what no tool may have
LOCAL_NAME: Final = "local"  # of callers without a key, on surfaces that want a name; reserved


def is_same_person(one: str | None, other: str | None) -> bool:
    """Return whether two names mean the same caller. Without a key it is None or `LOCAL_NAME`."""
    return (one or LOCAL_NAME) == (other or LOCAL_NAME)


@frozen
class Principal:
    """Somebody we know: by a key, by a signed token, or because they sit at this machine."""

    name: str
    kind: Literal["local", "key", "token"] = "local"
    scope: Scope = field(default_factory=Scope)
    profiles: tuple[str, ...] = ()  # the only profiles they may use; empty: every endpoint
    rights: tuple[Right, ...] = (Right.USE,)

    def may(self, right: Right) -> bool:
        return right in self.rights

    @property
    def may_confirm(self) -> bool:
        """Whether what its client says in answer to our question counts as a person's word."""
        return self.may(Right.CONFIRM) or self.may(Right.APPROVE)

    def may_use(self, profile: str | None) -> bool:
        """Whether they may use the endpoint of this profile (None: those without one)."""
        return not self.profiles or profile in self.profiles
