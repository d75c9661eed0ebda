"""The reference of all settings as Markdown, made from the model so that it cannot drift from it."""

from __future__ import annotations

import json

from pydantic.fields import FieldInfo

from fingerpost.settings.environment import ALIASES, variable_of
from fingerpost.settings.fields import expected, leaves, section_of
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

_PLANS = "Who is on which plan, for profiles that ask for one: a name (`*` allowed) and the plan, the first \
that fits."


def reference_markdown() -> str:
    """Every setting with its default, its variable and its meaning."""
    parts = ["### Top level", _single_values("servers_file", "profiles_folder")]
    for name, field in Settings.model_fields.items():
        if (section := section_of(field)) is not None:
            parts += [f"### `[{name}]`", _intro(section), _single_values(name)]
    parts += ["### `[servers.<name>]`", _intro(ServerSettings), _open_table(ServerSettings)]
    parts += ["### `[servers.<name>.oauth]`", _intro(OAuthSettings), _open_table(OAuthSettings)]
    parts += ["### `[profiles.<name>]`", _intro(ProfileSettings), _open_table(ProfileSettings)]
    parts += ["### `[plans]`", _PLANS]
    parts += ["### `[[policy]]`", _intro(RuleSettings), _open_table(RuleSettings)]
    parts += ["### `[[tools]]`", _intro(ToolOverride), _open_table(ToolOverride)]
    parts += ["### `[[rollout]]`", _intro(RolloutSettings), _open_table(RolloutSettings)]
    parts += ["### Other names for the same variables", _aliases()]
    return "\n\n".join(parts) + "\n"


def _intro(section: type[Section]) -> str:
    return (section.__doc__ or "").strip()


def _single_values(*sections: str) -> str:
    """A table of settings that a variable can set, too."""
    lines = ["| setting | takes | default | meaning | variable |", "|---|---|---|---|---|"]
    lines += [
        _row(".".join(leaf.path[1:] or leaf.path), leaf.field, f"`{variable_of(leaf.path)}`")
        for leaf in leaves()
        if leaf.path[0] in sections
    ]
    return "\n".join(lines)


def _open_table(section: type[Section]) -> str:
    """A table of settings whose place the person names."""
    lines = ["| setting | takes | default | meaning |", "|---|---|---|---|"]
    lines += [_row(name, field) for name, field in section.model_fields.items()]
    return "\n".join(lines)


def _row(name: str, field: FieldInfo, *more: str) -> str:
    cells = (f"`{name}`", expected(field), _default(field), field.description or "", *more)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _aliases() -> str:
    lines = ["| variable | same as |", "|---|---|"]
    for alias in ALIASES:
        words = f" (`true` means `{alias.yes}`, `false` means `{alias.no}`)" if alias.yes else ""
        lines.append(f"| `{alias.name}` | `{variable_of(alias.path)}`{words} |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    default: object = field.get_default(call_default_factory=True)
    if default is None or default in ((), {}):
        return ""
    return f"`{json.dumps(default)}`"


def with_reference(page: str) -> str:
    """A page of documentation with the reference between its markers renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference_markdown()}\n{END}{after}"
