"""All settings as Markdown, and the effective settings as rows. Secrets are always masked here."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic.fields import FieldInfo

from fingerpost.frozen import frozen
from fingerpost.redaction import MASK, is_secret_name, scrub
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.load import Loaded
from fingerpost.settings.model import (
    OAuthSettings,
    ProfileSettings,
    QuotaSettings,
    RolloutSettings,
    RuleSettings,
    Section,
    ServerSettings,
    Settings,
    ToolOverride,
)
from fingerpost.settings.problems import DEFAULT_ORIGIN, KeyPath, ValueOrigin, format_path
from fingerpost.settings.sources import (
    ALIASES,
    LISTS_OF_TABLES,
    OPEN_TABLES,
    describe_expected,
    get_section,
    get_variable_name,
    iterate_fields,
)

BEGIN = "<!-- reference: begin -->"
END = "<!-- reference: end -->"

_PLANS_TEXT = (
    "Who is on which plan, for profiles that ask for one: a name (`*` allowed) and the plan, the first \
that fits."
)

_OPEN_SECTIONS: dict[str, type[Section] | None] = {
    "[servers.<name>]": ServerSettings,
    "[servers.<name>.oauth]": OAuthSettings,
    "[profiles.<name>]": ProfileSettings,
    "[plans]": None,
    "[[policy]]": RuleSettings,
    "[[tools]]": ToolOverride,
    "[[rollout]]": RolloutSettings,
    "[[quotas]]": QuotaSettings,
}


def render_reference() -> str:
    """Return every setting with its default, variable and description."""
    parts = ["### Top level", _render_values("servers_file", "profiles_folder")]
    for name, field in Settings.model_fields.items():
        if (section := get_section(field)) is not None:
            parts += [f"### `[{name}]`", (section.__doc__ or "").strip(), _render_values(name)]
    for title, section in _OPEN_SECTIONS.items():
        parts += [f"### `{title}`", _PLANS_TEXT if section is None else _render_open_table(section)]
    parts += ["### Other names for the same variables", _render_aliases()]
    return "\n\n".join(parts) + "\n"


def _render_values(*sections: str) -> str:
    """Return a table of settings that can also be set by a variable."""
    lines = ["| setting | takes | default | meaning | variable |", "|---|---|---|---|---|"]
    lines += [
        _render_row(".".join(leaf.path[1:] or leaf.path), leaf.field, f"`{get_variable_name(leaf.path)}`")
        for leaf in iterate_fields()
        if leaf.path[0] in sections
    ]
    return "\n".join(lines)


def _render_open_table(section: type[Section]) -> str:
    """Return the description and a table of the settings of a section that the user names."""
    lines = [(section.__doc__ or "").strip(), ""]
    lines += ["| setting | takes | default | meaning |", "|---|---|---|---|"]
    lines += [_render_row(name, field) for name, field in section.model_fields.items()]
    return "\n".join(lines)


def _render_row(name: str, field: FieldInfo, *more: str) -> str:
    cells = (f"`{name}`", describe_expected(field), _format_default(field), field.description or "", *more)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _render_aliases() -> str:
    lines = ["| variable | same as |", "|---|---|"]
    for alias in ALIASES:
        words = f" (`true` means `{alias.yes}`, `false` means `{alias.no}`)" if alias.yes else ""
        lines.append(f"| `{alias.name}` | `{get_variable_name(alias.path)}`{words} |")
    return "\n".join(lines)


def _format_default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    default: object = field.get_default(call_default_factory=True)
    if default is None or default in ((), {}):
        return ""
    return f"`{json.dumps(default)}`"


def insert_reference(page: str) -> str:
    """Return a documentation page with the reference between its markers replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render_reference()}\n{END}{after}"


@frozen
class SettingRow:
    """One effective value for display."""

    path: str
    value: object
    origin: ValueOrigin


def list_sections() -> tuple[str, ...]:
    """Return the section names that `config show` accepts."""
    return tuple(Settings.model_fields)


def build_rows(loaded: Loaded, section: str | None = None) -> tuple[SettingRow, ...]:
    """Return every effective value. Of user-named tables only given values are included."""
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
    # Values that are too short for redaction in logs are still masked here.
    return MASK if clean == value and format_path(path) in loaded.secrets else clean


def _find_origin(loaded: Loaded, path: KeyPath) -> ValueOrigin:
    for length in range(len(path), 0, -1):
        if (origin := loaded.origins.get(format_path(path[:length]))) is not None:
            return origin
    return DEFAULT_ORIGIN
