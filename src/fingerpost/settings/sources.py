"""Sources of settings: files, environment variables and arguments, and the fields they can set."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

from platformdirs import user_config_path, user_data_path
from pydantic.fields import FieldInfo

from fingerpost.frozen import frozen
from fingerpost.settings.model import Section, Settings
from fingerpost.settings.problems import Problem, ValueOrigin, find_nearest

# Tables with names chosen by the user. They are written in files, not in single variables.
LISTS_OF_TABLES = ("policy", "tools", "rollout", "quotas")
OPEN_TABLES = frozenset({"plans", "profiles", "servers", *LISTS_OF_TABLES})


@frozen(kw_only=False)
class SettingField:
    """One setting with a single value."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def kind(self) -> Any:
        """The type without `| None`."""
        return strip_none(self.field.annotation)


def iterate_fields(section: type[Section] = Settings, prefix: tuple[str, ...] = ()) -> Iterator[SettingField]:
    """Yield every setting with a single value, in the order of the model."""
    for name, info in section.model_fields.items():
        path = (*prefix, name)
        inner = get_section(info)
        if inner is not None:
            yield from iterate_fields(inner, path)
        elif path[0] not in OPEN_TABLES:
            yield SettingField(path, info)


def get_section(field: FieldInfo) -> type[Section] | None:
    """Return the section class of a field, or None."""
    kind = strip_none(field.annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def strip_none(annotation: Any) -> Any:
    """Return `X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def describe_expected(field: FieldInfo) -> str:
    """Return what a field accepts as text: `a number from 0 to 2`."""
    kind = strip_none(field.annotation)
    if choices := get_args(kind) if get_origin(kind) is Literal else get_choices(kind):
        return "one of " + ", ".join(f'"{value}"' for value in choices)
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Section)):
        return "a table"
    if get_origin(kind) is tuple:
        return "a list"
    return _TYPE_WORDS.get(kind, "another kind of value") + _format_bounds(field)


def get_choices(kind: Any) -> tuple[object, ...]:
    """Return the values of an enumeration, or an empty tuple for other types."""
    return tuple(member.value for member in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _format_bounds(field: FieldInfo) -> str:
    """Return the limits of a field as text: ` from 0 to 2`."""
    limits: dict[str, Any] = {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "gt", "le", "min_length")
        if hasattr(limit, name)
    }
    if "min_length" in limits:
        return " that is not empty"
    least = f"{limits['ge']:,}" if "ge" in limits else None
    most = f"{limits['le']:,}" if "le" in limits else None
    if "gt" in limits:
        return f" above {limits['gt']:,}" + (f" and at most {most}" if most else "")
    if least and most:
        return f" from {least} to {most}"
    return f" of at least {least}" if least else ""


_TYPE_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


PREFIX = "FINGERPOST_"
CONFIG_FILE_VARIABLE = "FINGERPOST_CONFIG"
SERVERS_FILE_VARIABLE = "FINGERPOST_SERVERS"
INPUT_PREFIX = "FINGERPOST_INPUT_"

# Variables that are read elsewhere. They are listed here so that they are not reported as unknown.
# The last one marks the processes started by our servers and commands.
OTHER_NAMES = frozenset(
    {CONFIG_FILE_VARIABLE, SERVERS_FILE_VARIABLE, "FINGERPOST_DEBUG", "FINGERPOST_COMMAND"}
)

_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})


@frozen(kw_only=False)
class VariableAlias:
    """A variable with a different name, and the meaning of its values."""

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


# Highest priority first. "true" means `auto`, as in the program that these names come from.
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
    """A single value and its origin."""

    path: tuple[str, ...]
    value: object = field(repr=False)
    origin: ValueOrigin


def get_variable_name(path: tuple[str, ...]) -> str:
    """Return the variable of a path: `("limits", "list_pages")` → `FINGERPOST_LIMITS__LIST_PAGES`."""
    if path == ("servers_file",):
        return SERVERS_FILE_VARIABLE
    return PREFIX + "__".join(part.upper() for part in path)


def read_environment(environ: Mapping[str, str]) -> tuple[tuple[GivenValue, ...], tuple[Problem, ...]]:
    """Return every value from the environment, and a warning for each unknown variable with our prefix."""
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
            value = _translate_alias(alias, text, by_path[alias.path].kind)
            yield _build_given(alias.path, value, alias.name)


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
    """Convert `text` to the type of the setting, or return it unchanged: the model refuses it."""
    if kind is bool:
        word = text.strip().lower()
        return word in _YES if word in _YES | _NO else text
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            return text
    if get_origin(kind) is tuple:
        return _parse_list(text)
    return text


def _parse_list(text: str) -> list[object]:
    """Parse a JSON list, or comma-separated words."""
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


FILE_NAME = "fingerpost.toml"
SERVERS_FILE_NAME = "servers.json"  # of the user, in the same folder as the user's fingerpost.toml


@frozen
class Sources:
    """The arguments of loading and the environment."""

    config: Path | None
    servers: Path | None
    overrides: Mapping[str, object] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    cwd: Path

    @property
    def home(self) -> Path:
        home = self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return Path(home) if home else Path.home()

    def resolve(self, path: str | Path, base: Path | None = None) -> Path:
        text = str(path)
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return (base or self.cwd) / text

    def shorten(self, path: Path) -> str:
        """Return a path as the user would write it: relative if it is below the current folder."""
        return str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)


def find_config(sources: Sources) -> Path | None:
    """Return the TOML file: the named one, that of the current folder, the user's, or None."""
    if sources.config is not None or sources.environ.get(CONFIG_FILE_VARIABLE):
        return list_config_files(sources)[0]
    return next((path for path in list_config_files(sources) if is_file(path)), None)


def list_config_files(sources: Sources) -> tuple[Path, ...]:
    """Return where the TOML file is looked for, in this order. The first one that exists is used."""
    named = sources.config or sources.environ.get(CONFIG_FILE_VARIABLE)
    if named:
        return (sources.resolve(named),)
    return sources.cwd / FILE_NAME, get_user_folder(sources) / FILE_NAME


def get_user_folder(sources: Sources) -> Path:
    """Return the folder of the user's own settings. It may not exist."""
    base = sources.environ.get("XDG_CONFIG_HOME")
    return Path(base) / "fingerpost" if base else user_config_path("fingerpost", appauthor=False)


def get_data_directory() -> Path:
    """Return the user's data directory for Fingerpost. It may not exist."""
    return user_data_path("fingerpost", appauthor=False)


def get_default_store_file() -> Path:
    """Return the file of the store that commands use if the settings name none."""
    return get_data_directory() / "fingerpost.db"


def is_file(path: Path) -> bool:
    """Return whether this is an existing, accessible file."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_arguments(sources: Sources) -> tuple[tuple[GivenValue, ...], tuple[Problem, ...]]:
    """Return every value given as an argument. Tables of servers and tools can only be written in files."""
    given: list[GivenValue] = []
    problems: list[Problem] = []
    for name, value in sources.overrides.items():
        path = tuple(name.split("."))
        origin = ValueOrigin(kind="argument", name=name)
        if path[0] in OPEN_TABLES:
            message = "cannot be given as an argument"
            problems.append(Problem(message=message, fix="write it in a file", path=name, origin=origin))
        elif value is not None:  # None is an unused option
            given.append(GivenValue(path=path, value=value, origin=origin))
    if sources.servers is not None:
        origin = ValueOrigin(kind="argument", name="--servers")
        given.append(GivenValue(path=("servers_file",), value=str(sources.servers), origin=origin))
    return tuple(given), tuple(problems)
