"""Policy rules: which calls run, need approval, or are denied. Also checks local addresses in arguments."""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Literal, cast
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from fingerpost.call.paths import (
    PathPlacement,
    PatternFit,
    locate_paths,
    match_argument,
    match_exactly,
    match_loosely,
)
from fingerpost.call.visibility import SCOPE_RULE, add_profile_scope, build_rule_names, is_within_scopes
from fingerpost.frozen import frozen
from fingerpost.records import Call, CallContext, Effect, Json, JsonObject, Permit, Ruling, Scope, Verdict
from fingerpost.redaction import scrub
from fingerpost.settings import RuleSettings

MAX_TEXT_LENGTH: Final = 4_096  # of a value that is a URL or a host
_MAX_SCHEME_LENGTH: Final = 80
_MIN_NUMERIC_ADDRESS: Final = 2**24  # a smaller number is not an address
MAX_CODE_LENGTH: Final = 200_000
MAX_DEPTH: Final = 20
MAX_VALUES: Final = 10_000

_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21}
_URL: Final = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}:)?//[^/?#\s]", re.IGNORECASE)
_EMBEDDED_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,30}:[/\\]{2,}[^\s\"'`<>|;)]{1,300}", re.IGNORECASE)
_BARE_HOST: Final = re.compile(
    r"(?:[^/@\s]*@)?(?P<host>\[[0-9a-f:.%]+\]|[^\s:/@?#]+)(?::(?P<port>\d{1,5}))?(?:[/?#].*)?", re.IGNORECASE
)
_SLASHES: Final = re.compile(r"^(https?|wss?|ftp):/*", re.IGNORECASE)  # browsers accept any number of slashes
_HOST_WORD: Final = re.compile(
    r"ur[il]s?|href|link|endpoint|host(?:name)?|address|addr|server|target|site|domain|origin|webhook|proxy|ip"
)
_CODE_WORD: Final = re.compile(r"command|cmd|args?|argv|arguments|script|code|shell|program|expression|curl")
_REMOVED_CHARACTERS: Final = dict.fromkeys(map(ord, "\t\r\n\0\x0b\x0c\u200b\u00ad"))
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")

_LOCAL_NAMES: Final = frozenset(
    {"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback", "loopback"}
)
_METADATA_HOSTS: Final = frozenset(
    {"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal", "100.100.100.200"}
    | {"fd00:ec2::254", "168.63.129.16"}
)
# Public names that contain an address: 127.0.0.1.nip.io, 127-0-0-1.example.
_ADDRESS_IN_NAME: Final = re.compile(r"(?:^|[.-])(?:127[.-]\d{1,3}|169[.-]254)[.-]\d{1,3}[.-]\d{1,3}[.-]")
_PUBLIC_LOCAL_NAMES: Final = re.compile(r"(?:^|\.)(?:localtest\.me|lvh\.me|vcap\.me|lacolhost\.com)$")


@frozen
class Destination:
    """An address of this machine or its local network in an argument."""

    written: str
    own: bool  # Fingerpost itself listens there


class OwnAddresses:
    """The addresses where Fingerpost listens, in this or another process with the same settings."""

    def __init__(self, *, port: int, public_url: str | None) -> None:
        self._ports = {port} if port else set[int]()
        self._named: set[tuple[str, int]] = set()
        self._add(public_url)

    def add_listener(self, bound: str, reached_at: str) -> None:
        """Add an address where Fingerpost listens (`host:port`) and the public address that leads to it."""
        self._add(f"http://{bound}")
        self._add(reached_at)
        port = urlsplit(f"http://{bound}").port
        if port:
            self._ports.add(port)

    def find(self, arguments: JsonObject) -> Destination | None:
        """Return the first argument that is Fingerpost's own address, else the first local one, else None."""
        near: Destination | None = None
        for host, port, written in _find_hosts(arguments):
            if (host, port) in self._named or (port in self._ports and _is_this_machine(host)):
                return Destination(written=written, own=True)
            if near is None and _is_local(host):
                near = Destination(written=written, own=False)
        return near

    def _add(self, url: str | None) -> None:
        found = None if url is None else _read_url(url)
        if found is not None and found[1] is not None:
            self._named.add((found[0], found[1]))


def _find_hosts(arguments: JsonObject) -> Iterator[tuple[str, int | None, str]]:
    """Yield the hosts and ports in the arguments, with the texts that contain them."""
    waiting: list[tuple[str, Json, Json, int]] = [("", arguments, None, 0)]
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        name, value, beside, depth = waiting.pop()
        if isinstance(value, str):
            yield from _find_hosts_in_text(name, value, beside)
        elif depth < MAX_DEPTH and isinstance(value, Mapping):
            inner = cast("Mapping[str, Json]", value)
            port = next((inner[key] for key in inner if key.lower() == "port"), None)
            waiting.extend((key, each, port, depth + 1) for key, each in inner.items())
            waiting.extend((key, key, None, depth + 1) for key in inner if "//" in key)
        elif depth < MAX_DEPTH and isinstance(value, Sequence):
            waiting.extend((name, each, beside, depth + 1) for each in cast("Sequence[Json]", value))


def _find_hosts_in_text(name: str, text: str, port_beside: Json) -> Iterator[tuple[str, int | None, str]]:
    text = text.strip()
    if _URL.match(_normalize_url(text[:_MAX_SCHEME_LENGTH])):  # most texts are no URL, and some are long
        found = _read_url(_normalize_url(text[:MAX_TEXT_LENGTH]))
        if found is not None:
            yield (*found, _shorten(text))
    elif len(text) <= MAX_TEXT_LENGTH and _is_named(name, _HOST_WORD):
        whole = _normalize_url(text)
        bare = _BARE_HOST.fullmatch(f"[{whole}]" if whole.count(":") > 1 and "[" not in whole else whole)
        if bare is not None and not _is_small_number(bare["host"]):
            yield (
                _normalize_host(bare["host"]),
                _parse_port(bare["port"]) or _parse_port(port_beside),
                _shorten(text),
            )
    if len(text) <= MAX_CODE_LENGTH and _is_named(name, _CODE_WORD):
        for match in _EMBEDDED_URL.finditer(text):
            found = _read_url(_normalize_url(match[0]))
            if found is not None:
                yield (*found, _shorten(match[0]))


def _is_named(name: str, pattern: re.Pattern[str]) -> bool:
    """Return whether a word of the parameter's name matches: `baseUrl`, `target_host`, `cmd`."""
    return any(pattern.fullmatch(word.lower()) for word in _WORDS.findall(name))


def _is_small_number(host: str) -> bool:
    return host.isascii() and host.isdigit() and int(host[:20]) < _MIN_NUMERIC_ADDRESS


def _normalize_url(text: str) -> str:
    """Normalise a URL as browsers do: no tabs and line breaks, `/` for a backslash, no full-width letters."""
    folded = (
        unicodedata.normalize("NFKC", text.translate(_REMOVED_CHARACTERS))
        .replace("\\", "/")
        .replace("。", ".")
    )
    return _SLASHES.sub(r"\1://", folded)


def _read_url(text: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(text)
        host = _normalize_host(parts.hostname or "")
        port = parts.port
    except ValueError:
        return None
    return (host, port or _DEFAULT_PORTS.get(parts.scheme.lower())) if host else None


def _normalize_host(text: str) -> str:
    """Return the host in one form: a numeric address if it is one, else a lower-case name."""
    name = unicodedata.normalize("NFKC", unquote(text)).strip("[]").rstrip(".").lower().partition("%")[0]
    address = _parse_address(name)
    return name if address is None else str(address)


def _parse_address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(name)) if name and " " not in name else None
        except (OSError, UnicodeError):
            return None
    if isinstance(address, IPv6Address):
        return _get_embedded_ipv4(address) or address
    return address


def _get_embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address: mapped, compatible, 6to4, NAT64."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    packed = address.packed
    if packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
        return IPv4Address(packed[12:])
    if packed[:12] == bytes(12) and int(address) > 1:  # `::` and `::1` contain no IPv4 address
        return IPv4Address(packed[12:])
    return None


def _is_this_machine(host: str) -> bool:
    """Return whether the host is this machine: loopback, or another of its addresses or names."""
    address = _parse_address(host)
    if address is None:
        return _is_local_name(host) or host == socket.gethostname().lower()
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:  # only addresses of this machine can be bound; nothing is sent
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _is_local(host: str) -> bool:
    if host in _METADATA_HOSTS:
        return True
    address = _parse_address(host)
    if address is None:
        return _is_local_name(host)
    return address.is_loopback or address.is_unspecified or address.is_link_local


def _is_local_name(host: str) -> bool:
    return (
        host in _LOCAL_NAMES
        or host.endswith((".localhost", ".localdomain"))
        or _ADDRESS_IN_NAME.search(host) is not None
        or _PUBLIC_LOCAL_NAMES.search(host) is not None
    )


def _parse_port(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return int(value) if str(value).isascii() and str(value).isdigit() and len(str(value)) <= 5 else None


def _shorten(text: str) -> str:
    return text[:200]


# If a disk (a dead network drive) does not answer in this time, the location is unclear.
PATH_LOOKUP_TIMEOUT_S: Final = 5.0
MAX_CACHED_RULINGS: Final = 4096
MAX_CACHED_NAME_LENGTH: Final = 200  # operation names are arbitrary values: longer ones are not cached

_STRICTNESS: Final = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}
_VERDICT_WORDS: Final = {Verdict.ALLOW: "allows", Verdict.ASK: "asks a person about", Verdict.DENY: "forbids"}
_DEFAULT_RULINGS: Final = {
    Effect.READ: Ruling(verdict=Verdict.ALLOW, reason="it only reads", rule="default for read"),
    Effect.WRITE: Ruling(
        verdict=Verdict.ASK, reason="it changes something, and no rule allows it", rule="default for write"
    ),
    Effect.DESTROY: Ruling(
        verdict=Verdict.ASK,
        reason="it may destroy something, and no rule allows it",
        rule="default for destroy",
    ),
}


_DEFAULT_RULE_NAMES: Final = frozenset(ruling.rule for ruling in _DEFAULT_RULINGS.values())
OWN_ADDRESS_RULE: Final = "our own address"
LOCAL_ADDRESS_RULE: Final = "local addresses"

_OUT_OF_SCOPE_RULING: Final = Ruling(
    verdict=Verdict.DENY, reason="it is outside of what this caller may use", rule=SCOPE_RULE
)


class PolicyEngine:
    """An ordered list of rules, within the scopes of profiles (`bounds`)."""

    def __init__(
        self,
        rules: Sequence[RuleSettings],
        *,
        bounds: Mapping[str, Scope] | None = None,
        source: str = "fingerpost.toml",
        addresses: OwnAddresses | None = None,
        local_addresses: Literal["ask", "allow", "deny"] = "ask",
    ) -> None:
        """`addresses` are where Fingerpost listens. `local_addresses` is the verdict for other local
        addresses.
        """
        self._bounds = bounds or {}
        self._addresses = addresses or OwnAddresses(port=0, public_url=None)
        self._local_addresses = Verdict(local_addresses)
        self._rules = tuple(
            _PolicyRule(settings=rule, verdict=Verdict(rule.verdict), name=name)
            for rule, name in zip(rules, build_rule_names(rules, source), strict=True)
        )
        # Rules about arguments must be evaluated for every call.
        self._by_names = all(not rule.arguments and rule.paths is None for rule in rules)
        self._cached_rulings: dict[tuple[str | None, ...], Ruling] = {}

    async def judge(self, call: Call, context: CallContext) -> Ruling:
        """Return the ruling for the call. Its paths are located if that matters."""
        scopes = add_profile_scope(context.scopes, context.profile, self._bounds)
        if scopes and not is_within_scopes(scopes, call.server, call.tool, call.effect):
            return _OUT_OF_SCOPE_RULING
        return self._restrict_destination(call, await self._judge_rules(call, context))

    def _restrict_destination(self, call: Call, ruling: Ruling) -> Ruling:
        """Return the ruling, or a stricter one if the arguments contain an address of Fingerpost, or another
        local address that no rule allows.
        """
        found = self._addresses.find(call.arguments)
        if found is None or ruling.verdict is Verdict.DENY:
            return ruling
        written = scrub(found.written)
        if found.own:
            reason = f"{written} leads to Fingerpost itself, which tools do not call"
            return Ruling(verdict=Verdict.DENY, reason=reason, rule=OWN_ADDRESS_RULE)
        by_rule = ruling.verdict is Verdict.ALLOW and ruling.rule not in _DEFAULT_RULE_NAMES
        if by_rule or self._local_addresses is Verdict.ALLOW:
            return ruling
        reason = f"{written} is a local or link-local address"
        if ruling.verdict is Verdict.ASK:
            reason = f"{reason}, and {ruling.reason}"
        # A grant for the conversation does not cover such an address.
        return Ruling(verdict=self._local_addresses, reason=reason, rule=LOCAL_ADDRESS_RULE, exact=True)

    async def _judge_rules(self, call: Call, context: CallContext) -> Ruling:
        if self._by_names:
            return self._get_cached_ruling(call, context)
        if not self._needs_placement(call, context):
            return self.decide_by_rules(call, context, PathPlacement.NONE)
        placement = PathPlacement.UNCLEAR
        with anyio.move_on_after(PATH_LOOKUP_TIMEOUT_S):
            placement = await anyio.to_thread.run_sync(
                locate_paths, call.arguments, context.working_directory, abandon_on_cancel=True
            )
        return self.decide_by_rules(call, context, placement)

    def decide_by_rules(self, call: Call, context: CallContext, placement: PathPlacement) -> Ruling:
        """Return the ruling for the call, given where its paths are."""
        doubtful: Ruling | None = None
        for rule in self._rules:
            fit = rule.match(call, context, placement)
            if fit is PatternFit.YES:
                return _choose_stricter(doubtful, rule.build_ruling())
            if fit is PatternFit.MAYBE:
                doubtful = _choose_stricter(doubtful, rule.build_ruling(doubtful=True))
        return _choose_stricter(
            doubtful, _build_uncertain_ruling(call) if call.doubt else _DEFAULT_RULINGS[call.effect]
        )

    def _get_cached_ruling(self, call: Call, context: CallContext) -> Ruling:
        """Return the result of `decide_by_rules`, cached by tool and caller."""
        who = (context.caller, context.profile)
        names = (call.effect, call.doubt, call.server, call.tool, call.name, call.operation, *who)
        ruling = self._cached_rulings.get(names)
        if ruling is None:
            ruling = self.decide_by_rules(call, context, PathPlacement.NONE)
            if len(call.operation) > MAX_CACHED_NAME_LENGTH:
                return ruling
            if len(self._cached_rulings) >= MAX_CACHED_RULINGS:
                self._cached_rulings.clear()
            self._cached_rulings[names] = ruling
        return ruling

    def _needs_placement(self, call: Call, context: CallContext) -> bool:
        return any(
            rule.settings.paths is not None and rule.match_without_paths(call, context) is not PatternFit.NO
            for rule in self._rules
        )


def apply_doubt(ruling: Ruling, context: CallContext) -> Ruling:
    """Return the ruling, or one that asks a person if there is doubt about the call."""
    if not context.doubt or ruling.verdict is not Verdict.ALLOW:
        return ruling
    return Ruling(verdict=Verdict.ASK, reason=context.doubt, rule="confidence")


def build_permit(call: Call, ruling: Ruling) -> Permit | None:
    """Return a permit if the policy allows the call without approval, else None."""
    if ruling.verdict is not Verdict.ALLOW:
        return None
    return Permit(call_fingerprint=call.fingerprint, given_by=f"policy: {ruling.rule}")


def _build_uncertain_ruling(call: Call) -> Ruling:
    reason = f"it seems to read only, but that is not certain: {call.doubt}"
    return Ruling(verdict=Verdict.ASK, reason=reason, rule="default for a read that is not certain")


def _choose_stricter(first: Ruling | None, second: Ruling) -> Ruling:
    if first is None or _STRICTNESS[second.verdict] > _STRICTNESS[first.verdict]:
        return second
    return first


def _match_name(pattern: str, name: str, *, exactly: bool) -> PatternFit:
    if len(name) > MAX_CACHED_NAME_LENGTH:
        return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)
    return _match_name_cached(pattern, name, exactly)


@lru_cache(maxsize=4096)  # the same few names recur
def _match_name_cached(pattern: str, name: str, exactly: bool) -> PatternFit:
    return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)


@frozen
class _PolicyRule:
    settings: RuleSettings
    verdict: Verdict
    name: str

    @property
    def allows(self) -> bool:
        return self.verdict is Verdict.ALLOW

    def build_ruling(self, *, doubtful: bool = False) -> Ruling:
        reason = self.settings.reason or f"a rule {_VERDICT_WORDS[self.verdict]} such calls"
        if doubtful:
            reason += " (it is unclear whether the rule matches, so it applies)"
        return Ruling(verdict=self.verdict, reason=reason, rule=self.name)

    def match(self, call: Call, context: CallContext, placement: PathPlacement) -> PatternFit:
        others = self.match_without_paths(call, context)
        return others if others is PatternFit.NO else min(others, self._match_paths(placement))

    def match_without_paths(self, call: Call, context: CallContext) -> PatternFit:
        rule = self.settings
        if rule.effect is not None and rule.effect is not call.effect:
            return PatternFit.NO
        return min(
            self._match_any(rule.server, (call.server,)),
            self._match_any(rule.tool, (call.tool, call.name)),
            self._match_any(rule.operation, self._list_operations(call)),
            self._match_any(rule.caller, self._list_callers(context.caller)),
            self._match_any(rule.profile, self._list_callers(context.profile)),
            *(self._match_argument(call, context, name, pattern) for name, pattern in rule.arguments.items()),
        )

    def _match_any(self, pattern: str | None, names: Sequence[str]) -> PatternFit:
        if pattern is None:
            return PatternFit.YES
        return max([_match_name(pattern, name, exactly=self.allows) for name in names], default=PatternFit.NO)

    def _list_operations(self, call: Call) -> tuple[str, ...]:
        """Return the names of the operation: `files/manage.delete` matches `delete` and `manage.delete`.

        A tool without operations has none that could be allowed. Rules that ask or deny match the tool
        itself.
        """
        bare = call.operation.removeprefix(f"{call.tool}.")
        if call.operation == call.tool:
            return () if self.allows else (call.tool, call.name)
        return (call.operation, bare, f"{call.name}.{bare}")

    def _list_callers(self, name: str | None) -> tuple[str, ...]:
        """Return the names of the caller. No rule allows an anonymous caller, but `*` matches it in rules
        that ask or deny.
        """
        if name is None:
            return () if self.allows else ("",)
        return (name,)

    def _match_argument(self, call: Call, context: CallContext, name: str, pattern: str) -> PatternFit:
        return match_argument(
            call.arguments, name, pattern, allowing=self.allows, folder=context.working_directory
        )

    def _match_paths(self, placement: PathPlacement) -> PatternFit:
        wanted = self.settings.paths
        if wanted is None or placement.value == wanted:
            return PatternFit.YES
        if self.allows:
            return PatternFit.NO
        doubtful = (
            {PathPlacement.UNCLEAR} if wanted == "inside" else {PathPlacement.UNCLEAR, PathPlacement.NOWHERE}
        )
        return PatternFit.MAYBE if placement in doubtful else PatternFit.NO
