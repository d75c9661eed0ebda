"""Whether what a program passes as arguments can be passed on at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fingerpost.errors import CallError
from fingerpost.records import check_json
from fingerpost.records.json import to_valid_json


def check_json_object(arguments: object) -> None:
    """Raise where they are no JSON object. Half a character is let pass: calls with it are on record."""
    if not isinstance(arguments, Mapping):
        message = f"the arguments are a {type(arguments).__name__} and no object"
        raise CallError(message, hint="Pass a dict of names and values; {} where there are none.")
    given = cast("object", arguments)
    reason = check_json(given)
    if reason is None:
        return
    try:
        reason = check_json(to_valid_json(given))
    except ValueError as deep:
        reason = str(deep)
    if reason is not None:
        message = f"the arguments cannot be written as JSON: one {reason}"
        raise CallError(message, hint="Use texts, numbers, true, false, null, lists and dicts of these.")
