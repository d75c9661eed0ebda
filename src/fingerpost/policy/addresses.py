"""Addresses of this machine and of Fingerpost itself in the arguments of calls."""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain, islice
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.regex import prepare_re

MAX_TEXT_LENGTH: Final = 4_096  # of a value that is a URL or a host
_MAX_SCHEME_LENGTH: Final = 80
_MIN_NUMERIC_ADDRESS: Final = 2**24  # a smaller number is not an address
MAX_CODE_LENGTH: Final = 200_000
MAX_DEPTH: Final = 20
MAX_VALUES: Final = 10_000

_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21}
_URL: Final = prepare_re(r"(?:[a-z][a-z0-9+.-]{0,30}:)?//[^/?#\s]", re.IGNORECASE)
_EMBEDDED_URL: Final = prepare_re(r"[a-z][a-z0-9+.-]{0,30}:[/\\]{2,}[^\s\"'`<>|;)]{1,300}", re.IGNORECASE)
_BARE_HOST: Final = prepare_re(
    r"(?:[^/@\s]*@)?(?P<host>\[[0-9a-f:.%]+\]|[^\s:/@?#]+)(?::(?P<port>\d{1,5}))?(?:[/?#].*)?", re.IGNORECASE
)
_SLASHES: Final = prepare_re(r"^(https?|wss?|ftp):/*", re.IGNORECASE)  # browsers accept any number of slashes
_HOST_WORD: Final = prepare_re(
    r"ur[il]s?|href|link|endpoint|host(?:name)?|address|addr|server|target|site|domain|origin|webhook|proxy|ip"
)
_CODE_WORD: Final = prepare_re(r"command|cmd|args?|argv|arguments|script|code|shell|program|expression|curl")
# What programs leave out of a URL: controls, and in hosts what takes no place (UTS 46).
_REMOVED_CHARACTERS: Final = dict.fromkeys(
    chain(range(0x20), (0xAD, 0x34F, 0xFEFF), range(0x180B, 0x1810), range(0x200B, 0x200E),
          range(0x2060, 0x2065), range(0xFE00, 0xFE10), range(0x1BCA0, 0x1BCA4), range(0xE0100, 0xE01F0))
)  # fmt: skip
_WORDS: Final = prepare_re(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")

_LOCAL_NAMES: Final = frozenset(
    {"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback", "loopback"}
)
_METADATA_HOSTS: Final = frozenset(
    {"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal", "100.100.100.200"}
    | {"fd00:ec2::254", "168.63.129.16"}
)
# Public names that contain an address: 127.0.0.1.nip.io, 127-0-0-1.example.
_ADDRESS_IN_NAME: Final = prepare_re(r"(?:^|[.-])(?:127[.-]\d{1,3}|169[.-]254)[.-]\d{1,3}[.-]\d{1,3}[.-]")
_PUBLIC_LOCAL_NAMES: Final = prepare_re(r"(?:^|\.)(?:localtest\.me|lvh\.me|vcap\.me|lacolhost\.com)$")


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
    if _URL.match(_normalize_url(_get_start(text))):  # most texts are no URL, and some are long
        found = _read_url(_normalize_url(text.translate(_REMOVED_CHARACTERS)[:MAX_TEXT_LENGTH]))
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


def _get_start(text: str) -> str:
    """Return the first characters that count: a URL may be filled with line breaks."""
    if text.isprintable():
        return text[:_MAX_SCHEME_LENGTH]
    kept = (character for character in text if ord(character) not in _REMOVED_CHARACTERS)
    return "".join(islice(kept, _MAX_SCHEME_LENGTH)).strip()


@lru_cache(maxsize=1024)
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
