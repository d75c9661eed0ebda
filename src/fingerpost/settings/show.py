"""The effective settings as rows to show: path, value, where from. Secrets are masked here, always."""

from __future__ import annotations

from collections.abc import Iterator

from fingerpost.frozen import frozen
from fingerpost.redaction import MASK, names_secret, scrub
from fingerpost.settings.document import items, table
from fingerpost.settings.fields import LISTS_OF_TABLES, OPEN_TABLES
from fingerpost.settings.load import Loaded
from fingerpost.settings.model import Settings
from fingerpost.settings.problems import DEFAULT, KeyPath, Origin, dotted


@frozen
class Row:
    """One effective value, fit for any screen."""

    path: str
    value: object
    origin: Origin


def sections() -> tuple[str, ...]:
    """The names `config show` can be asked for."""
    return tuple(Settings.model_fields)


def rows(loaded: Loaded, section: str | None = None) -> tuple[Row, ...]:
    """Every effective value. Of the open tables only what was given: the rest is in the reference."""
    everything = loaded.settings.model_dump(mode="json", exclude=set(OPEN_TABLES))
    written = loaded.settings.model_dump(mode="json", include=set(OPEN_TABLES), exclude_unset=True)
    return tuple(
        Row(path=dotted(path), value=_masked(loaded, path, value), origin=_origin(loaded, path))
        for path, value in _leaves({**everything, **written})
        if section is None or path[0] == section
    )


def _leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if entries := table(value):
        for key, entry in entries.items():
            yield from _leaves(entry, (*path, key))
    elif len(path) == 1 and path[0] in LISTS_OF_TABLES:
        for index, override in enumerate(items(value)):
            yield from _leaves(override, (*path, index))
    elif table(value) is None:
        yield path, value


def _masked(loaded: Loaded, path: KeyPath, value: object) -> object:
    if listed := items(value):
        return [_masked(loaded, (*path, index), item) for index, item in enumerate(listed)]
    if not isinstance(value, str) or not value:
        return value
    if any(names_secret(part) for part in path[-1:] if isinstance(part, str)):
        return MASK
    clean = scrub(value)
    # Values too short to be searched for in every log line are still masked where we know them.
    return MASK if clean == value and dotted(path) in loaded.secrets else clean


def _origin(loaded: Loaded, path: KeyPath) -> Origin:
    for length in range(len(path), 0, -1):
        if (origin := loaded.origins.get(dotted(path[:length]))) is not None:
            return origin
    return DEFAULT
