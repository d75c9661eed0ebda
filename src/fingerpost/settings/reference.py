"""The reference of all settings as Markdown, made from the model so that it cannot drift from it."""

from __future__ import annotations

import json

from pydantic.fields import FieldInfo

from fingerpost.settings.environment import ALIASES, get_variable_name
from fingerpost.settings.fields import describe_expected, get_section, iterate_fields
from fingerpost.settings.model import (
    OAuthSettings,
    ProfileSettings,
    RolloutSettings,
    RuleSettings,
    Section,
    ServerSettings,
    Settings,
    ToolOverride,
)

BEGIN = "<!-- reference: begin -->"
END = "<!-- reference: end -->"

_PLANS_TEXT = (
    "Who is on which plan, for profiles that ask for one: a name (`*` allowed) and the plan, the first \
that fits."
)


def render_reference() -> str:
    """Every setting with its default, its variable and its meaning."""
    parts = ["### Top level", _render_values("servers_file", "profiles_folder")]
    for name, field in Settings.model_fields.items():
        if (section := get_section(field)) is not None:
            parts += [f"### `[{name}]`", _render_intro(section), _render_values(name)]
    parts += ["### `[servers.<name>]`", _render_intro(ServerSettings), _render_open_table(ServerSettings)]
    parts += ["### `[servers.<name>.oauth]`", _render_intro(OAuthSettings), _render_open_table(OAuthSettings)]
    parts += ["### `[profiles.<name>]`", _render_intro(ProfileSettings), _render_open_table(ProfileSettings)]
    parts += ["### `[plans]`", _PLANS_TEXT]
    parts += ["### `[[policy]]`", _render_intro(RuleSettings), _render_open_table(RuleSettings)]
    parts += ["### `[[tools]]`", _render_intro(ToolOverride), _render_open_table(ToolOverride)]
    parts += ["### `[[rollout]]`", _render_intro(RolloutSettings), _render_open_table(RolloutSettings)]
    parts += ["### Other names for the same variables", _render_aliases()]
    return "\n\n".join(parts) + "\n"


def _render_intro(section: type[Section]) -> str:
    return (section.__doc__ or "").strip()


def _render_values(*sections: str) -> str:
    """A table of settings that a variable can set, too."""
    lines = ["| setting | takes | default | meaning | variable |", "|---|---|---|---|---|"]
    lines += [
        _render_row(".".join(leaf.path[1:] or leaf.path), leaf.field, f"`{get_variable_name(leaf.path)}`")
        for leaf in iterate_fields()
        if leaf.path[0] in sections
    ]
    return "\n".join(lines)


def _render_open_table(section: type[Section]) -> str:
    """A table of settings whose place the person names."""
    lines = ["| setting | takes | default | meaning |", "|---|---|---|---|"]
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
    """A page of documentation with the reference between its markers renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render_reference()}\n{END}{after}"
