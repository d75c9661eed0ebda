"""What a client said it can do, against what a question needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest

ELICIT_METHOD: Final = "elicitation/create"
SAMPLE_METHOD: Final = "sampling/createMessage"
ROOTS_METHOD: Final = "roots/list"

_CAPABILITY_BY_METHOD: Final = {
    ELICIT_METHOD: "elicitation",
    SAMPLE_METHOD: "sampling",
    ROOTS_METHOD: "roots",
}
_QUESTION_CAPABILITIES: Final = frozenset(_CAPABILITY_BY_METHOD.values())
_SAMPLING_CONTEXTS: Final = ("thisServer", "allServers")


def can_be_asked(capabilities: JsonObject) -> bool:
    """Whether a client takes questions at all."""
    return not _QUESTION_CAPABILITIES.isdisjoint(capabilities)


def can_show_forms(capabilities: JsonObject) -> bool:
    """Whether the person behind the client can be asked with a form."""
    return not find_missing_capability(capabilities, ELICIT_METHOD, {})


def can_approve(request: ClientRequest) -> bool:
    """Whether the person behind the client can be asked about a call, and their word counts.

    Any program can declare elicitation and answer itself, so it counts for those who may decide alone.
    """
    return can_show_forms(request.capabilities) and request.principal.may_confirm


def find_missing_capability(capabilities: JsonObject, method: str, params: JsonObject) -> JsonObject | None:
    """The capabilities the client would need for this question; None when it has them.

    A question nobody knows needs a capability nobody has: an empty object.
    """
    if method not in _CAPABILITY_BY_METHOD:
        return {}
    name = _CAPABILITY_BY_METHOD[method]
    part = _get_capability_part(method, params)
    declared = capabilities.get(name)
    if isinstance(declared, Mapping) and _has_capability(cast("JsonObject", declared), method, part):
        return None
    needed: dict[str, Json] = {} if part is None else {part: {}}
    return {name: needed}


def _get_capability_part(method: str, params: JsonObject) -> str | None:
    """The part of the capability that this very question needs."""
    if method == ELICIT_METHOD:
        return "url" if params.get("mode") == "url" else "form"
    if method == SAMPLE_METHOD and (params.get("tools") or params.get("toolChoice")):
        return "tools"
    # Behind a gateway "this server" means all of them: nobody's context goes where it was not offered.
    if method == SAMPLE_METHOD and params.get("includeContext") in _SAMPLING_CONTEXTS:
        return "context"
    return None


def _has_capability(declared: JsonObject, method: str, part: str | None) -> bool:
    if part is None or isinstance(declared.get(part), Mapping):
        return True
    # Before there were two kinds of elicitation, `{}` meant a form; it still does.
    return method == ELICIT_METHOD and part == "form" and declared.get("url") is None
