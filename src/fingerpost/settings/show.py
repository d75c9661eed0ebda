"""The effective settings as rows to show: path, value, where from. Secrets are masked here, always."""

from __future__ import annotations

from collections.abc import Iterator

from fingerpost.frozen import frozen
from fingerpost.redaction import MASK, is_secret_name, scrub
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.fields import LISTS_OF_TABLES, OPEN_TABLES
from fingerpost.settings.load import Loaded
from fingerpost.settings.model import Settings
from fingerpost.settings.problems import DEFAULT_ORIGIN, KeyPath, ValueOrigin, format_path


@frozen
class SettingRow:
    """One effective value, fit for any screen."""

    path: str
    value: object
    origin: ValueOrigin


def list_sections() -> tuple[str, ...]:
    """The names `config show` can be asked for."""
    return tuple(Settings.model_fields)


def build_rows(loaded: Loaded, section: str | None = None) -> tuple[SettingRow, ...]:
    """Every effective value. Of the open tables only what was given: the rest is in the reference."""
    everything = loaded.settings.model_dump(mode="json", exclude=set(OPEN_TABLES))
    written = loaded.settings.model_dump(mode="json", include=set(OPEN_TABLES), exclude_unset=True)
    return tuple(
        SettingRow(
            path=format_path(path), value=_mask_value(loaded, path, value), origin=_find_origin(loaded, path)
        )
        for path, value in _iterate_leaves({**everything, **written})
        if section is None or path[0] == section
    )


def _iterate_leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if entries := as_table(value):
        for key, entry in entries.items():
            yield from _iterate_leaves(entry, (*path, key))
    elif len(path) == 1 and path[0] in LISTS_OF_TABLES:
        for index, override in enumerate(as_list(value)):
            yield from _iterate_leaves(override, (*path, index))
    elif as_table(value) is None:
        yield path, value


def _mask_value(loaded: Loaded, path: KeyPath, value: object) -> object:
    if listed := as_list(value):
        return [_mask_value(loaded, (*path, index), item) for index, item in enumerate(listed)]
    if not isinstance(value, str) or not value:
        return value
    if any(is_secret_name(part) for part in path[-1:] if isinstance(part, str)):
        return MASK
    clean = scrub(value)
    # Values too short to be searched for in every log line are still masked where we know them.
    return MASK if clean == value and format_path(path) in loaded.secrets else clean


def _find_origin(loaded: Loaded, path: KeyPath) -> ValueOrigin:
    for length in range(len(path), 0, -1):
        if (origin := loaded.origins.get(format_path(path[:length]))) is not None:
            return origin
    return DEFAULT_ORIGIN
