"""Options of a request: from the body's field `fingerpost`, else from headers, else from the model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import Effort
from fingerpost.router.options import MODES
from fingerpost.surfaces.http.access import VERSION_HEADER
from fingerpost.surfaces.openai.errors import CompletionError

OPTIONS_FIELD: Final = "fingerpost"
HEADER_PREFIX: Final = "x-fingerpost-"
MAX_TURNS: Final = 100
MAX_ROUTED_TOOLS: Final = 1000
MAX_LENGTHS: Final = {
    "persona": 20_000,
    "directives": 20_000,
    "conversation": 200,
    "resume": 100,
    "server": 200,
    "api_version": 100,
}
_CHOICES: Final[Mapping[str, Sequence[str]]] = {"mode": MODES, "effort": tuple(Effort)}
_RANGES: Final = {"seconds": (0.1, 3600), "max_tools": (1, MAX_ROUTED_TOOLS), "max_turns": (1, MAX_TURNS)}
_BOOLEANS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@frozen
class RequestOptions:
    """The options that were given; None where an option was not."""

    mode: str | None = None
    profile: str | None = None
    api_version: str | None = None  # selects the profile if none is named
    persona: str | None = None
    directives: str | None = None
    conversation: str | None = None
    server: str | None = None
    effort: str | None = None
    max_tools: int | None = None
    max_turns: int | None = None
    seconds: float | None = None
    dry_run: bool | None = None
    resume: str | None = None


OPTION_NAMES: Final = tuple(RequestOptions.__dataclass_fields__)


def split_model(name: str) -> tuple[str, str | None]:
    """Split `name:mode`. Names may contain colons, so only a known mode is a suffix."""
    base, colon, last = name.rpartition(":")
    return (base, last) if colon and base and last in MODES else (name, None)


def parse_request_options(
    body: object, headers: Mapping[str, str], *, suffix: str | None, profiles: Sequence[str]
) -> RequestOptions:
    """Parse all options. Raises `CompletionError` for an unknown one."""
    given: dict[str, Any] = {} if suffix is None else {"mode": suffix}
    where = dict.fromkeys(given, "model")
    if (version := headers.get(VERSION_HEADER)) is not None:
        given["api_version"], where["api_version"] = version, VERSION_HEADER
    for name in OPTION_NAMES:
        header = f"{HEADER_PREFIX}{name.replace('_', '-')}"
        if (value := headers.get(header)) is not None:
            given[name], where[name] = _parse_header(name, value, header), header
    for name, value in _get_option_fields(body).items():
        if value is not None:
            given[name], where[name] = value, f"{OPTIONS_FIELD}.{name}"
    checked = {name: _check_option(name, value, where[name], profiles) for name, value in given.items()}
    return RequestOptions(**checked)


def _get_option_fields(body: object) -> Mapping[str, Any]:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise CompletionError(400, f"`{OPTIONS_FIELD}` is an object.", OPTIONS_FIELD)
    fields = cast("Mapping[str, Any]", body)
    if unknown := [name for name in fields if name not in OPTION_NAMES]:
        raise CompletionError(
            400, f"`{OPTIONS_FIELD}` knows {', '.join(OPTION_NAMES)}.", f"{OPTIONS_FIELD}.{unknown[0][:60]}"
        )
    return fields


def _parse_header(name: str, value: str, header: str) -> Any:
    """Parse a header value: numbers, booleans, and text that may be UTF-8."""
    try:
        if name in ("max_tools", "max_turns"):
            return int(value)
        if name == "seconds":
            return float(value)
        if name == "dry_run":
            return _BOOLEANS[value.lower()]
    except (ValueError, KeyError):
        raise CompletionError(400, f"{value[:60]!r} is no value for this header.", header) from None
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _check_option(name: str, value: Any, where: str, profiles: Sequence[str]) -> Any:
    problem = None
    if name in _CHOICES:
        known = _CHOICES[name]
        if value not in known:
            problem = f"There is no {name} {value!r:.60}; there are {', '.join(known)}."
    elif name == "profile":
        if value not in profiles:
            there = f"There are {', '.join(sorted(profiles))}." if profiles else "None is configured."
            problem = f"There is no profile {value!r:.60} here. {there}"
    elif name == "dry_run":
        problem = None if isinstance(value, bool) else "This is true or false."
    elif name in MAX_LENGTHS:
        if not isinstance(value, str) or not value.strip() or len(value) > MAX_LENGTHS[name]:
            problem = f"This is a text of 1 to {MAX_LENGTHS[name]} characters."
    else:
        return _check_number(value, *_RANGES[name], where, whole=name != "seconds")
    if problem is not None:
        raise CompletionError(400, problem, where)
    return value


def _check_number(value: object, minimum: float, maximum: float, where: str, *, whole: bool = False) -> float:
    right = isinstance(value, int) or (isinstance(value, float) and not whole)
    if isinstance(value, bool) or not right or not minimum <= cast("float", value) <= maximum:
        kind = "whole number" if whole else "number"
        raise CompletionError(400, f"This is a {kind} from {minimum:g} to {maximum:g}.", where)
    return cast("float", value)
