"""Masks secrets in logs, events and traces.

Two methods: registered values (`register_secret`, `register_token`), and known secret formats (`sk-…`,
`ghp_…`, `Bearer …`, private keys). The register is process-wide, so that no part of the process can leak a
secret because a redactor was not passed to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from threading import Lock
from types import NoneType
from typing import cast

from fingerpost.regex import prepare_re

MASK = "[redacted]"
_SCALARS = (int, float, bool, NoneType)  # `isinstance` with Mapping is slow for these

# Shorter values ("1", "true", "dev") would mask ordinary text.
MIN_SECRET_LENGTH = 6
SHORT_TEXT_LENGTH = 120

# A key that ends in one of these words holds a secret: `apiKey`, `GITHUB_TOKEN`, `x-api-key`,
# `Authorization`.
_SECRET_KEY = prepare_re(
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key"
    r"|authori[sz]ation|cookie|credentials?|bearer|dsn|connection[-_ ]?string|signature)s?$",
    re.IGNORECASE,
)

# These indicate a secret only in a server's configuration: `MAPS_KEY`, `X-Auth`, `GITHUB_PAT`. In tool
# arguments and results a `key` is usually for lookup or sorting.
_SECRET_SETTING = prepare_re(
    r"(?i:(?:^|[-_. ])(?:key|auth|pat|pw|creds?|jwt|sas)s?[-_]?\d*$)|[a-z](?:Key|Auth)$"
)
# All other headers may contain credentials.
_HARMLESS_HEADER = prepare_re(
    r"accept(?:-.*)?|content-(?:type|language|encoding|length)|user-agent|cache-control|pragma|connection"
    r"|host|origin|referer|prefer|date|dnt|.*-version",
    re.IGNORECASE,
)
_MIN_GENERATED_LENGTH = 16

_SECRET_SHAPE = prepare_re(
    r"""
      -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | \b(?:sk|pk|rk)-(?:[A-Za-z]+-)*[A-Za-z0-9_-]{16,}                  # OpenAI, Anthropic, Stripe-like
    | \b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abposr]-[A-Za-z0-9-]{10,} | \bhf_[A-Za-z0-9]{20,}
    | \bnpm_[A-Za-z0-9]{20,} | \bpypi-[A-Za-z0-9_-]{20,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b | \bAIza[A-Za-z0-9_-]{30,}
    | \bfp_[0-9a-f]{32}_[A-Za-z0-9_-]{43}                               # our own keys
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*          # JSON Web Token
    """,
    re.VERBOSE | re.DOTALL,
)
# The words before the secret are kept: "Authorization: Bearer [redacted]", "postgres://me:[redacted]@db".
_SECRET_AFTER_WORD = prepare_re(
    r"""
      (?P<scheme>\b(?:Bearer|Basic)\s+)(?P<credential>[A-Za-z0-9._~+/=-]{8,})
    | (?P<userinfo>://[^\s:/@]{0,256}:)(?P<password>[^\s/@]{1,256})(?=@)
    | (?P<assign>\b(?:password|passwd|pwd|secret|api[-_]?key|token|access[-_]?key)["']?\s*[=:]\s*["']?)
      (?P<value>\[redacted\]|[^\s"',;&}\]]{6,})                          # a mask stays as it is
    """,
    re.VERBOSE | re.IGNORECASE,
)

# Every format contains one of these. Searching for them takes a tenth of the pattern's time.
_SECRET_SIGNS = (
    "-----BEGIN", "sk-", "pk-", "rk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-", "AKIA", "ASIA", "AIza", "fp_", "eyJ",
)  # fmt: skip
_SECRET_WORDS = ("pass", "pwd", "secret", "api", "token", "access")

_lock = Lock()
_known_secrets: set[str] = set()
_known_secrets_pattern: re.Pattern[str] | None = None

# A pattern takes time for each of its secrets, so the tokens of users are found by parts of them: every text
# with a token has one of the last parts of it at a place that is looked at.
MAX_TOKENS = 20_000  # the oldest ones have expired
_PART_LENGTH = 16
_PART_STEP = 8
_MIN_TOKEN_LENGTH = _PART_LENGTH + _PART_STEP - 1
_TOKEN = prepare_re(rf"[A-Za-z0-9._~+/=-]{{{_MIN_TOKEN_LENGTH},}}")
_tokens: dict[str, None] = {}  # oldest first
_tokens_by_part: dict[str, tuple[str, ...]] = {}


def register_secret(secret: str) -> None:
    """Mask `secret` everywhere from now on."""
    global _known_secrets_pattern  # noqa: PLW0603 - the register is process-wide by design, see the module docstring
    if len(secret) < MIN_SECRET_LENGTH:
        return
    with _lock:
        if secret in _known_secrets:
            return
        _known_secrets.add(secret)
        longest_first = sorted(_known_secrets, key=len, reverse=True)
        _known_secrets_pattern = re.compile("|".join(re.escape(value) for value in longest_first))
        _scrub_text_cached.cache_clear()


def register_token(token: str) -> None:
    """Mask a user's token everywhere from now on, until `MAX_TOKENS` newer ones were registered."""
    if _TOKEN.fullmatch(token) is None:
        register_secret(token)
        return
    with _lock:
        if token in _tokens:
            return
        _tokens[token] = None
        for part in _split_token(token):
            _tokens_by_part[part] = (*_tokens_by_part.get(part, ()), token)
        if len(_tokens) > MAX_TOKENS:
            _forget_token(next(iter(_tokens)))
        _scrub_text_cached.cache_clear()


def _split_token(token: str) -> list[str]:
    """Return the last parts of a token. The first ones are equal in many tokens: the header of a JWT."""
    first = len(token) - _MIN_TOKEN_LENGTH
    return [token[start : start + _PART_LENGTH] for start in range(first, first + _PART_STEP)]


def _forget_token(token: str) -> None:
    del _tokens[token]
    for part in _split_token(token):
        others = tuple(other for other in _tokens_by_part.get(part, ()) if other != token)
        if others:
            _tokens_by_part[part] = others
        else:
            _tokens_by_part.pop(part, None)


def _mask_tokens(match: re.Match[str]) -> str:
    text = match[0]
    places = range(0, len(text) - _PART_LENGTH + 1, _PART_STEP)
    found = {
        token for place in places for token in _tokens_by_part.get(text[place : place + _PART_LENGTH], ())
    }
    for token in sorted(found, key=len, reverse=True):
        text = text.replace(token, MASK)
    return text


def is_secret_name(key: str) -> bool:
    """Return whether a field with this name holds a secret: `apiKey`, `GITHUB_TOKEN`, `Authorization`."""
    return _matches_secret_name_cached(key) if len(key) <= SHORT_TEXT_LENGTH else _matches_secret_name(key)


def _matches_secret_name(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


# The same few names occur in every call.
_matches_secret_name_cached = lru_cache(maxsize=4096)(_matches_secret_name)


def is_secret_setting(name: str) -> bool:
    """Return whether a variable or an option of a server with this name holds a secret: `MAPS_KEY`,
    `--auth`.
    """
    return is_secret_name(name) or _SECRET_SETTING.search(name) is not None


def is_secret_header(name: str) -> bool:
    """Return whether the value of this header must be hidden. Only clearly harmless headers are shown."""
    return is_secret_setting(name) or _HARMLESS_HEADER.fullmatch(name) is None


def register_setting(name: str, value: str) -> None:
    """Register a value of a server's configuration as a secret, unless it is probably an ordinary word.

    If only the name is suspicious (`SORT_KEY=created_at`, `X-Region: us-east-1`), masking the word in all
    responses of servers would do more harm than good.
    """
    for secret in find_secrets_in_setting(name, value):
        register_secret(secret)


def find_secrets_in_setting(name: str, value: str) -> tuple[str, ...]:
    """Return the secrets in a value of a server's configuration; empty for an ordinary word."""
    words = value.split()
    if not is_secret_name(name) and not _is_generated(words, long=not is_secret_setting(name)):
        return ()
    return (value, words[-1] if words else "")  # for "Bearer abc", also the second word alone


def _is_generated(words: Sequence[str], *, long: bool) -> bool:
    """Return whether this is one word of letters and digits, with at most one word such as `Bearer` before
    it.
    """
    if len(words) not in (1, 2):
        return False
    word = words[-1]
    mixed = any(map(str.isalpha, word)) and any(map(str.isdigit, word))
    return mixed and (len(word) >= _MIN_GENERATED_LENGTH or not long)


def scrub(text: str) -> str:
    """Return `text` with all secrets masked."""
    # The same names and ids occur in many events, so short texts are cached.
    if len(text) > SHORT_TEXT_LENGTH:
        return _scrub_text(text)
    masked = _scrub_text_cached(text)
    return text if masked == text else masked


def _scrub_text(text: str) -> str:
    if _known_secrets_pattern is not None:
        text = _known_secrets_pattern.sub(MASK, text)
    if _tokens:
        text = _TOKEN.sub(_mask_tokens, text)
    # The signs are ASCII, but other letters match them if case is ignored (`ſ` for `s`).
    if not text.isascii() or any([sign in text for sign in _SECRET_SIGNS]):  # noqa: C419 - quicker than a generator
        text = _SECRET_SHAPE.sub(MASK, text)
    if _may_announce_secret(text):
        text = _SECRET_AFTER_WORD.sub(_mask_after, text)
    return text


def _may_announce_secret(text: str) -> bool:
    """Return whether the text has words that may precede a secret. If not, the slower pattern is skipped."""
    if not text.isascii():
        return True
    if ":" in text or "=" in text:
        small = text.lower()
        if ("://" in text and "@" in text) or any([word in small for word in _SECRET_WORDS]):  # noqa: C419 - as above
            return True
    else:
        small = text.lower()
    return "bearer" in small or "basic" in small


_scrub_text_cached = lru_cache(maxsize=4096)(_scrub_text)


def _mask_after(match: re.Match[str]) -> str:
    before = match["scheme"] or match["userinfo"] or match["assign"]
    return f"{before}{MASK}"


def scrub_json(value: object) -> object:
    """Return a JSON value with secrets masked, found by their format or by their key.

    The same dict or list is returned if it contains none. Other mappings and sequences are converted.
    """
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        clean = {key: _scrub_entry(key, entry) for key, entry in entries.items()}
        same = isinstance(value, dict) and all(map(is_, clean.values(), entries.values()))
        return cast("object", value) if same else clean
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        items = [scrub_json(item) for item in cast("Sequence[object]", value)]
        same = isinstance(value, list) and all(map(is_, items, cast("list[object]", value)))
        return cast("object", value) if same else items
    return value


def _scrub_entry(key: object, value: object) -> object:
    if isinstance(key, str) and isinstance(value, str) and value and is_secret_name(key):
        return value if value == MASK else MASK
    return scrub_json(value)


def find_secret_paths(value: object) -> tuple[str, ...]:
    """Return the JSON Pointers of apparent secrets in a JSON value: `/headers/authorization`."""
    return tuple(_find_differences("", value, scrub_json(value)))


def _find_differences(path: str, before: object, after: object) -> Iterator[str]:
    if before is after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        masked = cast("Mapping[object, object]", after)
        for name, entry in cast("Mapping[object, object]", before).items():
            step = str(name).replace("~", "~0").replace("/", "~1")
            yield from _find_differences(f"{path}/{step}", entry, masked[name])
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        pairs = zip(cast("Sequence[object]", before), cast("Sequence[object]", after), strict=True)
        for index, (old, new) in enumerate(pairs):
            yield from _find_differences(f"{path}/{index}", old, new)
    elif before != after:
        yield path
