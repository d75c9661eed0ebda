"""Arguments as a person types them: `KEY=VALUE` is text, `KEY:=JSON` is JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fingerpost.llm.tool_calls import read_arguments


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """The arguments these pairs stand for; a later one wins."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip(":"):
            message = f"{pair!r} is not KEY=VALUE"
            raise click.BadParameter(message, param_hint="KEY=VALUE")
        if key.endswith(":"):
            given[key[:-1]] = _parsed(pair, value)
        else:
            given[key] = value
    return given


def _parsed(pair: str, value: str) -> Any:
    parsed = read_arguments(f'{{"value": {value}}}')
    if isinstance(parsed, str):
        message = f"{pair}: {parsed}"
        raise click.BadParameter(message, param_hint="KEY:=JSON")
    return parsed["value"]
