"""Validates plain values against the model and reports problems. Also checks URLs and rollouts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import find_json_problem
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.model import (
    GatewaySettings,
    IssuerSettings,
    OwnServerName,
    ProfileSettings,
    RolloutSettings,
    Section,
    ServerSettings,
    Settings,
)
from fingerpost.settings.problems import (
    KeyPath,
    Problem,
    ValueOrigin,
    find_nearest,
    format_path,
    format_value,
)
from fingerpost.settings.sources import (
    describe_expected,
    get_choices,
    get_section,
    get_variable_name,
    iterate_fields,
    strip_none,
)

S = TypeVar("S", bound=Section)

# Sections that have their own file or entry, for error messages.
_SECTION_SUFFIXES: Final[Mapping[type[Section], str]] = {
    ServerSettings: " of a server",
    ProfileSettings: " of a profile",
}

_TRANSPORT_HINT: Final = 'a url takes "http" or "sse", a command "stdio"; there are no other transports'

_RULE_HINT: Final = (
    'write each rule as a table of its own: a line [[policy]], below it verdict = "ask" and tool = "git/*"'
)
# Names that other programs use for a setting, and the setting.
_OTHER_NAMES: Final[Mapping[str, str]] = dict.fromkeys(("action", "decision", "permission"), "verdict")


@frozen(kw_only=False)
class ValidationContext:
    """Maps a path of the validated values to its origin and full name."""

    origin: Callable[[KeyPath], ValueOrigin]
    prefix: KeyPath = ()

    def build_problem(self, path: KeyPath, message: str, fix: str) -> Problem:
        return Problem(
            message=message, fix=fix, path=format_path((*self.prefix, *path)), origin=self.origin(path)
        )


def validate(
    model: type[S], values: Mapping[str, object], context: ValidationContext
) -> tuple[S | None, tuple[Problem, ...]]:
    """Return `values` as `model`, or None and the problems."""
    problems = tuple(
        context.build_problem(
            path, f"{reason}, which is not allowed in settings", "write text in quotes, or a plain number"
        )
        for path, reason in _find_unusable(values)
    )
    if problems:
        return None, problems
    if (sections := _validate_sections(model, values)) is not None:
        return sections, ()
    try:
        return _validate_json(model, values), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, tuple(_explain_error(model, values, detail, context) for detail in details)


def _validate_json(model: type[S], values: object) -> S:
    return model.model_validate_json(json.dumps(values), strict=True)


def _validate_sections(model: type[S], values: Mapping[str, object]) -> S | None:
    """Return the settings if `values` has only valid sections and names of files, else None.

    Each section has a validator of its own: one of everything takes 18 times as long to build.
    """
    if model is not Settings:
        return None
    found = dict[str, object]()
    for name, written in values.items():
        field = model.model_fields.get(name)
        section = None if field is None else get_section(field)
        if field is not None and strip_none(field.annotation) is str and isinstance(written, str):
            found[name] = written
        elif section is None:
            return None
        else:
            try:
                found[name] = _validate_json(section, written)
            except ValidationError:
                return None
    return model.model_construct(set(found), **found)


def _find_unusable(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield values that no setting can hold, such as dates, lone surrogates and infinities."""
    todo: list[tuple[object, KeyPath]] = [(value, path)]
    while todo:
        node, node_path = todo.pop()
        if (entries := as_table(node)) is not None:
            todo += [(entry, (*node_path, key)) for key, entry in entries.items()]
        elif listed := as_list(node):
            todo += [(item, (*node_path, index)) for index, item in enumerate(listed)]
        elif (reason := find_json_problem(node)) is not None:
            yield node_path, reason


def _explain_error(
    model: type[Section], values: Mapping[str, object], detail: ErrorDetails, context: ValidationContext
) -> Problem:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        message, fix = _explain_unknown_name(model, path)
        return context.build_problem(path, message, fix)
    field = get_field(model, path)
    full = (*context.prefix, *path)
    if detail["type"] == "missing" or field is None:
        example = _format_example(full, field, context.origin(path))
        return context.build_problem(path, "is missing", f"add {example}")
    is_field = field is not get_field(model, path[:-1])  # not an item of one
    value = _get_value(values, path)
    if full[:-1] == ("builtin", "enabled") and not is_field:
        return context.build_problem(path, *_explain_unknown_builtin(value))
    wanted = describe_expected(field) if is_field else "text"
    message = f"must be {wanted}, not {format_value(value, full)}"
    if (model, path) == (ServerSettings, ("transport",)):
        return context.build_problem(path, message, _TRANSPORT_HINT)
    if (model, path) == (Settings, ("policy",)):
        return context.build_problem(path, message, _RULE_HINT)
    example = _format_example(full, field, context.origin(path), given=value)
    return context.build_problem(path, message, f"write {example}")


def _explain_unknown_builtin(value: object) -> tuple[str, str]:
    near = find_nearest(str(value), get_args(OwnServerName))
    fix = f"did you mean {near}?" if near else f"there are: {', '.join(get_args(OwnServerName))}"
    return f"there is no built-in server {str(value)!r}", fix


def _explain_unknown_name(model: type[Section], path: KeyPath) -> tuple[str, str]:
    name = str(path[-1])
    inside = path[:-1]
    section = model
    if inside:
        field = get_field(model, inside)
        section = None if field is None else get_section(field) or _get_item_section(field)
    known = section.model_fields if section else {}
    place = f" of [{format_path(inside)}]" if inside else _SECTION_SUFFIXES.get(model, "")
    message = f"is not a setting{place}"
    for leaf in iterate_fields() if model is Settings else ():
        if leaf.path[-1] == name:
            return message, f"it belongs in [{format_path(leaf.path[:-1])}]"
    meant = _OTHER_NAMES.get(name)
    if near := meant if meant in known else find_nearest(name, known):
        return message, f"did you mean {near}?"
    return message, f"remove it; known here: {', '.join(known)}"


def get_field(model: type[Section], path: KeyPath) -> FieldInfo | None:
    """Return the field of the model that the path leads to, or into."""
    field: FieldInfo | None = None
    section: type[Section] | None = model
    named = False  # whether the next part is a name chosen by the user
    for part in path:
        if section is None or isinstance(part, int) or named:
            named = False
            continue
        field = section.model_fields.get(part)
        if field is None:
            return None
        section = get_section(field) or _get_item_section(field)
        named = section is not None and get_origin(strip_none(field.annotation)) is dict
    return field


def _get_item_section(field: FieldInfo) -> type[Section] | None:
    """Return `X` of a field of type `tuple[X, ...]` or `dict[str, X]`."""
    kind = strip_none(field.annotation)
    index = {tuple: 0, dict: 1}.get(get_origin(kind))
    first: Any = None if index is None else get_args(kind)[index]
    return first if isinstance(first, type) and issubclass(first, Section) else None


def _get_value(values: object, path: KeyPath) -> object:
    for part in path:
        entries = as_table(values)
        if entries is not None:
            values = entries.get(str(part))
        elif isinstance(part, int):
            values = as_list(values)[part]
    return values


def _format_example(
    path: KeyPath, field: FieldInfo | None, origin: ValueOrigin, *, given: object = None
) -> str:
    """Return the setting as it could be written at its origin; for a boolean, with the intended value."""
    names = tuple(part for part in path if isinstance(part, str))
    value = _format_sample(field)
    if field is not None and strip_none(field.annotation) is bool:
        value = _BOOLEAN_WORDS.get(str(given).strip().lower(), value)
    if origin.kind == "environment":
        known = [leaf for leaf in iterate_fields() if leaf.path == names]
        name = get_variable_name(names) if known else origin.name
        return f"{name}={value.strip(chr(34))}"
    name = names[-1] if names else ""
    if name == "verdict":
        value = '"ask", "deny" or "allow"'  # the first choice alone would allow everything
    in_json = origin.file is not None and not origin.file.endswith(".toml")
    return (
        f'"{name}": {value.replace("NAME =", json.dumps("NAME") + ":")}' if in_json else f"{name} = {value}"
    )


def _format_sample(field: FieldInfo | None) -> str:
    if field is None:
        return '"…"'
    default: object = field.default
    if isinstance(default, bool | int | float | str):
        return json.dumps(default)
    kind = strip_none(field.annotation)
    if get_origin(kind) is tuple:
        return '["…"]'
    if get_origin(kind) is dict:
        return '{ NAME = "…" }'
    if choices := get_args(kind) or get_choices(kind):
        return json.dumps(choices[0])
    return _SAMPLES.get(kind, '"…"')


_BOOLEAN_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("true", "yes", "on", "1", "enabled", "y"), "true"),
    **dict.fromkeys(("false", "no", "off", "0", "disabled", "n", "none"), "false"),
}
_SAMPLES: dict[Any, str] = {bool: "true", int: "10", float: "1.5"}


CHANGED_ARM: Final = "changed"
USUAL_ARM: Final = "usual"
# Settings that are read for each request. All others are read once, at startup.
ROLLOUT_SETTINGS: Final = (
    *(
        f"flags.{name}"
        for name in (
            "need_gate", "intent_signals", "split_needs", "producers", "learned_use", "review", "widen",
            "chains", "syntax_guard", "summarise", "result_summaries",
        )
    ),
    "tool_routing.selection_temperature",
    "tool_routing.review_temperature",
    "tool_routing.confidence_threshold",
    "choose.decline_below",
    "choose.max_seconds",
    "choose.max_tokens",
    "choose.answer_tokens",
    "choose.answer_temperature",
    "choose.persona",
    "narrow.max_tools",
    "narrow.candidates",
)  # fmt: skip


def assign_arms(rollouts: tuple[RolloutSettings, ...], unit: str) -> dict[str, str]:
    """Return the arm of each rollout for a conversation (or a request without one). It is always the same."""
    return {
        one.name: CHANGED_ARM if _compute_position(one.name, unit) < one.share else USUAL_ARM
        for one in rollouts
    }


def apply_arms(settings: Settings, arms: Mapping[str, str]) -> Settings:
    """Return the settings that apply in these arms."""
    for one in settings.rollout:
        if arms.get(one.name) == CHANGED_ARM:
            section, _, name = one.setting.partition(".")
            changed = getattr(settings, section).model_copy(update={name: one.value})
            settings = settings.model_copy(update={section: changed})
    return settings


def find_rollout_problems(rollouts: tuple[RolloutSettings, ...]) -> Iterator[tuple[int, str, str, str]]:
    """Yield invalid rollouts: index, field, problem and fix."""
    seen: set[str] = set()
    for index, one in enumerate(rollouts):
        if one.name in seen:
            yield index, "name", f"there are two rollouts named {one.name!r}", "rename one of them"
        seen.add(one.name)
        if one.setting not in ROLLOUT_SETTINGS:
            message = f"{one.setting!r} cannot be rolled out"
            yield index, "setting", message, f"choose from {', '.join(ROLLOUT_SETTINGS)}"
        elif (reason := _find_misfit(one)) is not None:
            yield index, "value", f"does not fit {one.setting}: {reason}", "see docs/reference/settings.md"


def _find_misfit(one: RolloutSettings) -> str | None:
    section, _, name = one.setting.partition(".")
    given: Section = getattr(Settings(), section)
    try:
        type(given).model_validate({name: one.value}, strict=True)
    except ValidationError as wrong:
        return str(wrong.errors()[0]["msg"])
    return None


def _compute_position(name: str, unit: str) -> float:
    """Return the position of a conversation between 0 and 1 for this rollout, derived from its name."""
    hasher = hashlib.blake2b(f"{name}\n{unit}".encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(hasher.digest(), "big") / 2**64


DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine only."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def get_host(url: str) -> str:
    """Return the host of a URL, or an empty string."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def get_base_url(url: str) -> str | None:
    """Return `https://host:port` of an http or https URL, None for anything else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}" if known else None


def is_trustworthy(url: str) -> bool:
    """Return whether content from this URL cannot be changed in transit."""
    base = get_base_url(url)
    return base is not None and (base.startswith("https:") or is_loopback(get_host(url)))


# Host names under which clouds serve the machine's credentials to its programs.
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
# Metadata addresses outside the link-local ranges: AWS over IPv6, Alibaba, Oracle.
_METADATA_ADDRESSES: Final = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_NAT64: Final = ip_network("64:ff9b::/96")
LINK_LOCAL_MESSAGE: Final = "is a link-local or metadata address, where clouds keep credentials"
LINK_LOCAL_FIX: Final = "set allow_link_local = true for this server if that is what you want"


def is_link_local(host: str) -> bool:
    """Return whether a host name or address is link-local (169.254.0.0/16, fe80::/10) or a cloud's metadata
    service.

    The name is not resolved here.
    """
    name = host.strip("[]").rstrip(".").lower()
    if name in _METADATA_NAMES:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_link_local or address in _METADATA_ADDRESSES


# Asymmetric signatures only. Never `none`, and never HS…, where verification needs the secret and a public
# key mistaken for it would let anyone sign.
SIGNATURE_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
STORE_HINT: Final = "Use sqlite:///path/to/file.db or postgresql://user@host/database."
_STORE_URL = re.compile(r"(?P<backend>\w+)(?:\+\w+)?://(?P<rest>.*)", re.DOTALL)


@frozen(kw_only=False)
class SettingFlaw:
    """A problem with one value, and its fix."""

    path: KeyPath
    message: str
    fix: str


def find_flaws(settings: Settings) -> Iterator[SettingFlaw]:
    """Yield all unusable values."""
    yield from find_gateway_flaws(settings.gateway)
    if settings.gateway.sign_in is not None:
        yield from find_sign_in_flaws(settings.gateway.sign_in)
    if settings.console.oidc is not None:
        yield from find_sign_in_flaws(settings.console.oidc, ("console", "oidc"))
    if settings.store.url is not None and (reason := find_store_url_fault(settings.store.url)) is not None:
        yield SettingFlaw(("store", "url"), reason, STORE_HINT)
    for index, field, message, fix in find_rollout_problems(settings.rollout):
        yield SettingFlaw(("rollout", index, field), message, fix)


def raise_first_flaw(found: Iterable[SettingFlaw]) -> None:
    """Raise `ConfigError` for the first flaw. Used for settings that were created without a file."""
    for flaw in found:
        raise ConfigError(f"{format_path(flaw.path)}: {flaw.message}", hint=flaw.fix)


def find_gateway_flaws(gateway: GatewaySettings) -> Iterator[SettingFlaw]:
    """Yield settings of the gateway that would refuse every caller."""
    if gateway.public_url is not None and get_base_url(gateway.public_url) is None:
        message = f"{gateway.public_url} is not an address"
        yield SettingFlaw(
            ("gateway", "public_url"), message, "write the full address, such as https://tools.example.com"
        )


def find_sign_in_flaws(
    sign_in: IssuerSettings, path: tuple[str, str] = ("gateway", "sign_in")
) -> Iterator[SettingFlaw]:
    """Yield sign-in settings that would accept too many callers, or none."""
    wrong = [name for name in sign_in.algorithms if name not in SIGNATURE_ALGORITHMS]
    if wrong or not sign_in.algorithms:
        message = f"{', '.join(wrong) or 'none'} cannot be used"
        yield SettingFlaw((*path, "algorithms"), message, f"choose from {', '.join(SIGNATURE_ALGORITHMS)}")
    for name, url in (("issuer", sign_in.issuer), ("jwks_url", sign_in.jwks_url)):
        if url is not None and not is_trustworthy(url):
            fix = "use https; otherwise an attacker could replace the signing keys"
            yield SettingFlaw((*path, name), f"{url} is not an https address", fix)


def find_store_url_fault(url: str) -> str | None:
    """Return why the store's URL is invalid, or None, without the URL: it may hold a password."""
    read = _STORE_URL.fullmatch(url)
    if read is None:
        return "the store's URL cannot be read"
    backend = read["backend"]
    if backend not in ("sqlite", "postgresql", "postgres"):
        return f"the store cannot be kept in {backend!r}"
    if backend == "sqlite" and read["rest"].partition("?")[0].lstrip("/") in ("", ":memory:"):
        return "the store needs a file: a database in memory would lose what it stored"
    return None
