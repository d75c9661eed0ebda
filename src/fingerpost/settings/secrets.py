"""Which values of the settings are secret: they are remembered the moment they are read.

A value that came out of a variable counts as secret, because that is what people
use variables for. Plain words (`warning`, `production`) and variables that name places
or are in every shell are left out: masking them would make logs unreadable and protect nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from fingerpost.redaction import (
    holds_secret_header,
    names_secret,
    names_secret_setting,
    remember,
    remember_setting,
    scrub,
)
from fingerpost.settings.document import items, table
from fingerpost.settings.problems import KeyPath
from fingerpost.settings.variables import Taken

_PLAIN_WORD = re.compile(r"[A-Za-z]{1,15}")
_ORDINARY_NAME = re.compile(
    r"(?:.*_)?(?:HOME|.*PATH|.*DIR|ROOT|HOST|REGION)|USER|LOGNAME|PWD|SHELL|LANG|TERM|USERPROFILE|APPDATA"
)


def remember_taken(key: str, taken: Iterable[Taken]) -> bool:
    """Values that variables put into the entry `key`; whether there was a secret among them."""
    secrets = [value.value for value in taken if _is_secret(key, value)]
    for secret in secrets:
        remember(secret)
    return bool(secrets)


def _is_secret(key: str, taken: Taken) -> bool:
    if names_secret(key) or names_secret(taken.name):
        return True
    ordinary = _ORDINARY_NAME.fullmatch(taken.name) or _PLAIN_WORD.fullmatch(taken.value)
    return ordinary is None


def remember_literals(entry: Mapping[str, object]) -> None:
    """Values that are written out in a server entry and say by their name that they are secret."""
    for name, _, value in _named_secrets(entry):
        remember_setting(name, value)
    if isinstance(url := entry.get("url"), str):
        remember_url(url)


def literal_secrets(entry: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Secrets written out in an entry, with the place of each; a reference to a variable is none."""
    for _, path, value in _named_secrets(entry):
        yield path, value


def _named_secrets(entry: Mapping[str, object]) -> Iterator[tuple[str, KeyPath, str]]:
    """The name by which it is one, its place, and the secret itself."""
    for section, is_secret in _NAMED.items():
        for key, value in (table(entry.get(section)) or {}).items():
            if is_secret(key) and _is_literal(value):
                yield key, (section, key), str(value)
    args = items(entry.get("args"))
    for number, word in enumerate(args):
        name, equals, value = str(word).partition("=")
        if not name.startswith("-") or not names_secret_setting(name):
            continue
        if equals and _is_literal(value):
            yield name, ("args", number), value
        elif not equals and _is_literal(following := next(iter(args[number + 1 :]), "")):
            yield name, ("args", number + 1), str(following)


_NAMED: dict[str, Callable[[str], bool]] = {
    "env": names_secret_setting,
    "headers": holds_secret_header,
    "oauth": names_secret,
}


def written_secrets(entry: Mapping[str, object]) -> tuple[KeyPath, ...]:
    """Where an entry holds a secret written out: said by a name, or seen by its shape (`Bearer …`)."""
    named = [path for path, _ in literal_secrets(entry)]
    shaped = [path for path, text in _texts(entry) if _is_literal(text) and scrub(text) != text]
    return tuple(dict.fromkeys((*named, *shaped)))


def _texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    for key, inner in (table(value) or {}).items():
        yield from _texts(inner, (*path, key))
    for index, inner in enumerate(items(value)):
        yield from _texts(inner, (*path, index))


def _is_literal(value: object) -> bool:
    return isinstance(value, str) and value != "" and "${" not in value


def remember_url(url: str) -> None:
    """The password of a URL, and the parameters that are named like secrets."""
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return
    found = [password]
    for pair in parts.query.split("&"):
        key, _, value = pair.partition("=")
        if names_secret(key) or key.lower() == "key":
            found.append(value)
    for secret in found:
        if "${" not in secret:
            remember(secret)
            remember(unquote(secret))
