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
    is_secret_header,
    is_secret_name,
    is_secret_setting,
    register_secret,
    register_setting,
    scrub,
)
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.problems import KeyPath
from fingerpost.settings.variables import TakenVariable

_PLAIN_WORD = re.compile(r"[A-Za-z]{1,15}")
_ORDINARY_NAME = re.compile(
    r"(?:.*_)?(?:HOME|.*PATH|.*DIR|ROOT|HOST|REGION)|USER|LOGNAME|PWD|SHELL|LANG|TERM|USERPROFILE|APPDATA"
)


def remember_variables(key: str, taken: Iterable[TakenVariable]) -> bool:
    """Values that variables put into the entry `key`; whether there was a secret among them."""
    secrets = [value.value for value in taken if _is_secret(key, value)]
    for secret in secrets:
        register_secret(secret)
    return bool(secrets)


def _is_secret(key: str, taken: TakenVariable) -> bool:
    if is_secret_name(key) or is_secret_name(taken.name):
        return True
    ordinary = _ORDINARY_NAME.fullmatch(taken.name) or _PLAIN_WORD.fullmatch(taken.value)
    return ordinary is None


def remember_literals(entry: Mapping[str, object]) -> None:
    """Values that are written out in a server entry and say by their name that they are secret."""
    for name, _, value in _iterate_named_secrets(entry):
        register_setting(name, value)
    if isinstance(url := entry.get("url"), str):
        remember_url(url)


def find_literal_secrets(entry: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Secrets written out in an entry, with the place of each; a reference to a variable is none."""
    for _, path, value in _iterate_named_secrets(entry):
        yield path, value


def _iterate_named_secrets(entry: Mapping[str, object]) -> Iterator[tuple[str, KeyPath, str]]:
    """The name by which it is one, its place, and the secret itself."""
    for section, is_secret in _SECRET_NAME_CHECKS.items():
        for key, value in (as_table(entry.get(section)) or {}).items():
            if is_secret(key) and _is_literal(value):
                yield key, (section, key), str(value)
    args = as_list(entry.get("args"))
    for number, word in enumerate(args):
        name, equals, value = str(word).partition("=")
        if not name.startswith("-") or not is_secret_setting(name):
            continue
        if equals and _is_literal(value):
            yield name, ("args", number), value
        elif not equals and _is_literal(following := next(iter(args[number + 1 :]), "")):
            yield name, ("args", number + 1), str(following)


_SECRET_NAME_CHECKS: dict[str, Callable[[str], bool]] = {
    "env": is_secret_setting,
    "headers": is_secret_header,
    "oauth": is_secret_name,
}


def find_written_secrets(entry: Mapping[str, object]) -> tuple[KeyPath, ...]:
    """Where an entry holds a secret written out: said by a name, or seen by its shape (`Bearer …`)."""
    named = [path for path, _ in find_literal_secrets(entry)]
    shaped = [path for path, text in _iterate_texts(entry) if _is_literal(text) and scrub(text) != text]
    return tuple(dict.fromkeys((*named, *shaped)))


def _iterate_texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    for key, inner in (as_table(value) or {}).items():
        yield from _iterate_texts(inner, (*path, key))
    for index, inner in enumerate(as_list(value)):
        yield from _iterate_texts(inner, (*path, index))


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
        if is_secret_name(key) or key.lower() == "key":
            found.append(value)
    for secret in found:
        if "${" not in secret:
            register_secret(secret)
            register_secret(unquote(secret))
