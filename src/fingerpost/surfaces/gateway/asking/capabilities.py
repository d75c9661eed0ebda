"""What a client said it can do, against what a question needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

_CAPABILITY: Final = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
_ASKABLE: Final = frozenset(_CAPABILITY.values())
_CONTEXTS: Final = ("thisServer", "allServers")


def can_be_asked(capabilities: JsonObject) -> bool:
    """Whether a client takes questions at all."""
    return not _ASKABLE.isdisjoint(capabilities)


def takes_forms(capabilities: JsonObject) -> bool:
    """Whether the person behind the client can be asked with a form."""
    return not missing(capabilities, ELICIT, {})


def can_confirm(request: ClientRequest) -> bool:
    """Whether the person behind the client can be asked about a call, and their word counts.

    Any program can declare elicitation and answer itself, so it counts for those who may decide alone.
    """
    return takes_forms(request.capabilities) and request.principal.may_confirm


def missing(capabilities: JsonObject, method: str, params: JsonObject) -> JsonObject | None:
    """The capabilities the client would need for this question; None when it has them.

    A question nobody knows needs a capability nobody has: an empty object.
    """
    if method not in _CAPABILITY:
        return {}
    name = _CAPABILITY[method]
    part = _part(method, params)
    declared = capabilities.get(name)
    if isinstance(declared, Mapping) and _has(cast("JsonObject", declared), method, part):
        return None
    needed: dict[str, Json] = {} if part is None else {part: {}}
    return {name: needed}


def _part(method: str, params: JsonObject) -> str | None:
    """The part of the capability that this very question needs."""
    if method == ELICIT:
        return "url" if params.get("mode") == "url" else "form"
    if method == SAMPLE and (params.get("tools") or params.get("toolChoice")):
        return "tools"
    # Behind a gateway "this server" means all of them: nobody's context goes where it was not offered.
    if method == SAMPLE and params.get("includeContext") in _CONTEXTS:
        return "context"
    return None


def _has(declared: JsonObject, method: str, part: str | None) -> bool:
    if part is None or isinstance(declared.get(part), Mapping):
        return True
    # Before there were two kinds of elicitation, `{}` meant a form; it still does.
    return method == ELICIT and part == "form" and declared.get("url") is None
