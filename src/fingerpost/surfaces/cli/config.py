"""`fingerpost config` and `fingerpost profiles`: check and show settings, write example profiles."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fingerpost.choose.instructions import (
    build_directives,
    build_system_prompt,
    build_tool_instructions,
    choose_persona,
)
from fingerpost.errors import ConfigError
from fingerpost.redaction import scrub_json
from fingerpost.settings import Problem, load
from fingerpost.settings import check as find_problems
from fingerpost.settings.problems import format_path
from fingerpost.settings.profiles import read_examples
from fingerpost.settings.reference import build_rows, list_sections
from fingerpost.surfaces.cli.answer_output import make_readable
from fingerpost.surfaces.cli.common import connect_servers, read_settings, use_router
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import (
    build_table,
    clean_text,
    cut_sentence,
    format_count,
    format_effect,
    get_output,
    print_error,
    print_json,
    print_table,
    print_warning,
)
from fingerpost.surfaces.cli.streams import style_text

if TYPE_CHECKING:
    from fingerpost.policy.visibility import VisibleCatalog
    from fingerpost.router import Router
    from fingerpost.settings import Loaded, ProfileFiles, ProfileSettings


def check_settings(*, common: CommonOptions) -> int:
    """Explain everything that is wrong with the settings: file, line and fix."""
    problems = find_problems(config=common.config, servers=common.servers)
    if not any(not problem.warning for problem in problems):
        problems = (*problems, *_find_command_rule_problems(common))
    wrong = sum(not problem.warning for problem in problems)
    if common.as_json:
        print_json([_convert_problem(problem) for problem in problems])
        return 1 if wrong else 0
    for problem in problems:
        _print_problem(problem)
    warnings = format_count(len(problems) - wrong, "warning")
    if wrong:
        click.echo(f"{format_count(wrong, 'problem')}, {warnings}")
        return 1
    loaded = load(config=common.config, servers=common.servers)
    given = sum(origin.kind != "default" for origin in loaded.origins.values())
    verdict = f"no problems, {warnings}" if problems else "no problems"
    without = ", no settings file" if loaded.places and loaded.places.config is None else ""
    click.echo(
        f"{format_count(len(loaded.specs), 'server')}, {format_count(given, 'setting')}{without}, {verdict}"
    )
    return 0


def _find_command_rule_problems(common: CommonOptions) -> tuple[Problem, ...]:
    """Return warnings about allowed workspace commands."""
    # The built-in servers take seconds to import; only `config check` needs them.
    from fingerpost.builtin.workspace.command_rules import describe_rules

    loaded = load(config=common.config, servers=common.servers)
    own = loaded.settings.builtin.workspace
    path = "builtin.workspace.commands"
    origin = loaded.origins[path]
    return tuple(
        Problem(message=what, fix=fix, path=f"{path}[{number}]", origin=origin, warning=True)
        for number, what, fix in describe_rules(own.commands, own.commands_after_writes)
    )


def _print_problem(problem: Problem) -> None:
    if problem.warning:
        click.echo(style_text("warning: ", fg="yellow") + clean_text(str(problem)))
        click.echo(style_text("  fix: ", fg="green") + clean_text(problem.fix))
    else:
        print_error(clean_text(str(problem)), clean_text(problem.fix), err=False)


def _convert_problem(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.file,
        "line": problem.line,
        "path": problem.path,
        "message": problem.message,
        "fix": problem.fix,
        "origin": str(problem.origin),
        "warning": problem.warning,
    }


def show_settings(*, common: CommonOptions, section: str | None, changed: bool) -> int:
    """Print the effective settings, each with where it comes from. Secrets are masked."""
    if section is not None and section not in list_sections():
        known = ", ".join(list_sections())
        raise click.BadParameter(f"no section {section!r}; there are: {known}", param_hint="SECTION")
    loaded = load(config=common.config, servers=common.servers)
    rows = [row for row in build_rows(loaded, section) if not changed or row.origin.kind != "default"]
    if common.as_json:
        settings = [
            {"path": row.path, "value": row.value, "origin": str(row.origin), "kind": row.origin.kind}
            for row in rows
        ]
        warnings = [_convert_problem(warning) for warning in loaded.warnings]
        print_json({"settings": settings, "files": list(loaded.files), "warnings": warnings})
        return 0
    table = build_table(None, "setting", "value", "from")
    for row in rows:
        value = "" if row.value is None else json.dumps(row.value, ensure_ascii=False)
        style = "dim" if row.origin.kind == "default" else ""
        table.add_row(*(Text(clean_text(cell), style=style) for cell in (row.path, value, str(row.origin))))
    get_output().print(table)
    for warning in loaded.warnings:
        print_warning(clean_text(str(warning)))
    return 0


def list_profiles(*, common: CommonOptions) -> int:
    """List all profiles."""
    loaded = read_settings(common)
    found = sorted(loaded.settings.profiles.items())
    if common.as_json:
        print_json(
            [
                {"name": name, "written": _find_origin(loaded, name), **_convert_profile(one)}
                for name, one in found
            ]
        )
    elif not found:
        click.echo("There are no profiles. `fingerpost profiles add` lists examples to begin with.")
    else:
        print_table(
            None,
            ("profile", "for", "users", "used", "written"),
            (
                (
                    name,
                    one.description or "",
                    _format_users(one),
                    _format_when(one),
                    _find_origin(loaded, name),
                )
                for name, one in found
            ),
        )
    return 0


def _convert_profile(profile: ProfileSettings) -> dict[str, Any]:
    return profile.model_dump(mode="json", exclude_unset=True)


def _format_users(profile: ProfileSettings) -> str:
    named = [*profile.users, *(f"plan {plan}" for plan in profile.plans)]
    return ", ".join(named) or "all callers"


def _format_when(profile: ProfileSettings) -> str:
    versions = f"API {', '.join(profile.api_versions)}" if profile.api_versions else ""
    parts = (versions, "by default" if profile.default else "")
    return "; ".join(part for part in parts if part) or "by name"


def _find_origin(loaded: Loaded, name: str) -> str:
    """Return the file and first line of a profile."""
    prefix = f"{format_path(('profiles', name))}."
    origins = [origin for path, origin in loaded.origins.items() if path.startswith(prefix)]
    first = min(origins, key=lambda origin: origin.line or 0, default=None)
    return "" if first is None else str(first)


@use_router()
async def show_profile(router: Router, *, name: str, prompt: bool, common: CommonOptions, wait: float) -> int:
    """Show the tools and the prompt of the profile NAME with the configured servers."""
    profile = router.profiles.get_profile(name)  # report an unknown name first
    await connect_servers(router, wait=wait)
    view = await router.look(profile=name)
    if not common.as_json:
        _print_profile(router, name, view, prompt=prompt)
        return 0
    document = {
        "name": name,
        "profile": _convert_profile(profile),
        "tools": [card.key for card in view.visible.cards],
        "prompt": _build_prompt(router, name, view),
    }
    print_json(scrub_json(document))
    return 0


def _print_profile(router: Router, name: str, view: VisibleCatalog, *, prompt: bool) -> None:
    profile = router.profiles[name]
    click.echo(f"{style_text(clean_text(name), bold=True)}: {clean_text(profile.description or 'a profile')}")
    click.echo(f"  users  {clean_text(_format_users(profile))}")
    click.echo(f"  used   {clean_text(_format_when(profile))}")
    if profile.persona:
        click.echo(f"  role   {cut_sentence(profile.persona)}")
    sees = format_count(len(view.visible.cards), "tool")
    click.echo(f"  tools  {sees} of {len(router.tools.cards)}")
    if view.visible.cards:
        print_table(
            None,
            ("tool", "effect", "what it does"),
            (
                (card.key, format_effect(card), Text(cut_sentence(card.description)))
                for card in view.visible.cards
            ),
        )
    else:
        click.echo("No tool matches its servers, tools and effects. Are those servers configured?", err=True)
    if prompt:
        click.echo(make_readable(_build_prompt(router, name, view)))


def _build_prompt(router: Router, name: str, view: VisibleCatalog) -> str:
    """Return the system prompt of a profile."""
    profile, settings = router.profiles[name], router.settings
    offered = view.visible.cards[: profile.max_tools or settings.narrow.max_tools]
    return build_system_prompt(
        persona=choose_persona(profile, None, settings.choose.persona),
        instructions=build_tool_instructions(offered),
        guidance=profile.guidance or "",
        directives=build_directives(profile, None, settings.choose.directives),
    )


def check_profiles(*, common: CommonOptions) -> int:
    """Explain what is wrong with profiles: file, line and fix. Exit code 1 when something is."""
    found = find_problems(config=common.config, servers=common.servers)
    wrong = [problem for problem in found if not problem.warning and problem.path.startswith("profiles")]
    if common.as_json:
        print_json([{"where": str(one.origin), "problem": one.message, "fix": one.fix} for one in wrong])
        return 1 if wrong else 0
    for problem in wrong:
        _print_problem(problem)
    if not wrong:
        click.echo("No problems in the profiles.")
    return 1 if wrong else 0


def add_profiles(*, names: tuple[str, ...], common: CommonOptions) -> int:
    """Write ready profiles into the folder of profiles; without a name, list those there are."""
    ready = read_examples()
    if not names:
        for name, text in ready.items():
            click.echo(f"{name:12} {text.splitlines()[0].removeprefix('# ')}")
        return 0
    if unknown := [name for name in names if name not in ready]:
        raise click.UsageError(f"there is no example {unknown[0]!r}; there are {', '.join(ready)}")
    folder = read_settings(common).profile_files
    if folder is None:
        message = "there is no fingerpost.toml; profiles are stored beside it"
        raise ConfigError(message, hint="create one (it may be empty), or set profiles_folder")
    for name in names:
        _write_profile(folder, name, ready[name])
    return 0


def _write_profile(files: ProfileFiles, name: str, text: str) -> None:
    path, shown = files.folder / f"{name}.toml", f"{files.shown}/{name}.toml"
    if name in files.written:
        message = f"the profile {name} is written at {files.origins[name]} already"
        raise ConfigError(message, hint="change it there, or remove it and try again")
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{shown} exists already", hint="change it, or remove it and try again") from None
    except OSError as error:
        message = f"{shown} cannot be written: {error.strerror}"
        raise ConfigError(message, hint="check the folder and its permissions") from error
    click.echo(f"wrote {clean_text(shown)}")
    for line in text.splitlines():
        if line.startswith("# Needs "):
            click.echo(f"  {clean_text(line.removeprefix('# '))}")
