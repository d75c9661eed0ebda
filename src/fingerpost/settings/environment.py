"""Settings from environment variables.

`FINGERPOST_<SECTION>__<NAME>` sets any single value. The variables of requirement
E1 are accepted under the names people know them by; our own name wins when both
are set. An empty variable counts as not set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, cast, get_origin

from fingerpost.frozen import frozen
from fingerpost.settings.fields import SettingField, iterate_fields
from fingerpost.settings.problems import Problem, ValueOrigin, find_nearest

PREFIX = "FINGERPOST_"
CONFIG_FILE = "FINGERPOST_CONFIG"
SERVERS_FILE = "FINGERPOST_SERVERS"
INPUT_PREFIX = "FINGERPOST_INPUT_"

# Read elsewhere, or about this loading itself; naming them here keeps them from being called unknown.
# The last marks what our servers and commands start.
OTHER_NAMES = frozenset({CONFIG_FILE, SERVERS_FILE, "FINGERPOST_DEBUG", "FINGERPOST_COMMAND"})

_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})


@frozen(kw_only=False)
class VariableAlias:
    """A variable with a name of its own, and what its words mean here."""

    name: str
    path: tuple[str, ...]
    yes: str | None = None
    no: str | None = None


def _build_aliases(prefix: str) -> tuple[VariableAlias, ...]:
    return (
        VariableAlias(f"{prefix}_SMART_ROUTING", ("smart_routing", "mode"), yes="auto", no="off"),
        VariableAlias(f"{prefix}_MAX_TOOLS", ("smart_routing", "max_tools")),
        VariableAlias(f"{prefix}_MAX_SERVERS", ("smart_routing", "max_servers")),
    )


# Strongest first. "true" means what it meant where these names come from: on above both thresholds.
ALIASES = (
    VariableAlias("ENABLE_SMART_ROUTING", ("smart_routing", "mode"), yes="auto", no="off"),
    VariableAlias("SMART_ROUTING_MAX_TOOLS", ("smart_routing", "max_tools")),
    VariableAlias("SMART_ROUTING_MAX_SERVERS", ("smart_routing", "max_servers")),
    VariableAlias("SMART_ROUTING_TEMPERATURE", ("smart_routing", "temperature")),
    VariableAlias("SMART_ROUTING_MAX_TOKENS", ("smart_routing", "max_tokens")),
    *_build_aliases("LLM_AGENT"),
    *_build_aliases("EXTERNAL_AGENT"),
)


@frozen
class GivenValue:
    """A single value somebody gave, and where."""

    path: tuple[str, ...]
    value: object = field(repr=False)
    origin: ValueOrigin


def get_variable_name(path: tuple[str, ...]) -> str:
    """`("limits", "list_pages")` → `FINGERPOST_LIMITS__LIST_PAGES`."""
    if path == ("servers_file",):
        return SERVERS_FILE
    return PREFIX + "__".join(part.upper() for part in path)


def read_environment(environ: Mapping[str, str]) -> tuple[tuple[GivenValue, ...], tuple[Problem, ...]]:
    """Every value the environment gives, and a warning for each variable of ours that means nothing."""
    by_path = {leaf.path: leaf for leaf in iterate_fields()}
    given = {value.path: value for value in _read_aliases(environ, by_path)}
    for leaf in by_path.values():
        name = get_variable_name(leaf.path)
        if text := environ.get(name):
            given[leaf.path] = _build_given(leaf.path, parse_value(text, leaf.kind), name)
    return tuple(given.values()), tuple(_find_unknown(environ, by_path))


def _read_aliases(
    environ: Mapping[str, str], by_path: Mapping[tuple[str, ...], SettingField]
) -> Iterator[GivenValue]:
    for alias in reversed(ALIASES):
        if text := environ.get(alias.name):
            yield _build_given(
                alias.path, _translate_alias(alias, text, by_path[alias.path].kind), alias.name
            )


def _translate_alias(alias: VariableAlias, text: str, kind: Any) -> object:
    word = text.strip().lower()
    if alias.yes is not None and word in _YES:
        return alias.yes
    if alias.no is not None and word in _NO:
        return alias.no
    return parse_value(text, kind)


def _build_given(path: tuple[str, ...], value: object, name: str) -> GivenValue:
    return GivenValue(path=path, value=value, origin=ValueOrigin(kind="environment", name=name))


def parse_value(text: str, kind: Any) -> object:
    """`text` as the kind of value the setting holds; as it is when it cannot be, for the model to refuse."""
    if kind is bool:
        word = text.strip().lower()
        return word in _YES if word in _YES | _NO else text
    if kind is int or kind is float:
        return _parse_number(text, kind)
    if get_origin(kind) is tuple:
        return _parse_list(text)
    return text


def _parse_number(text: str, kind: type[int] | type[float]) -> object:
    try:
        return kind(text)
    except ValueError:
        return text


def _parse_list(text: str) -> list[object]:
    """A JSON list, or words between commas."""
    if text.lstrip().startswith("["):
        try:
            return cast("list[object]", json.loads(text))
        except (ValueError, RecursionError):
            return [text]
    return [word.strip() for word in text.split(",") if word.strip()]


def _find_unknown(
    environ: Mapping[str, str], by_path: Mapping[tuple[str, ...], SettingField]
) -> Iterator[Problem]:
    known = {get_variable_name(path) for path in by_path} | OTHER_NAMES
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name.startswith(INPUT_PREFIX):
            continue
        near = find_nearest(name, known, cutoff=0.75)
        yield Problem(
            message="is not the name of a setting",
            fix=f"did you mean {near}?" if near else "unset it; `fingerpost config show` lists the settings",
            origin=ValueOrigin(kind="environment", name=name),
            warning=True,
        )
