"""`fingerpost config`: is the configuration right, and where does each value come from?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from fingerpost.builtin.workspace.commands.rules import describe_rules
from fingerpost.settings import Problem, load
from fingerpost.settings import check as find_problems
from fingerpost.settings.show import rows, sections
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.screen import errors_to, output, plain, print_json, table

if TYPE_CHECKING:
    from fingerpost.settings import Loaded


def check_settings(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Explain everything that is wrong with the settings: file, line and fix."""
    problems = find_problems(config=config, servers=servers)
    if not any(not problem.warning for problem in problems):
        problems = (*problems, *_command_rules(config, servers))
    wrong = sum(not problem.warning for problem in problems)
    if as_json:
        print_json([_as_json(problem) for problem in problems])
    else:
        for problem in problems:
            _say(problem)
        click.echo(_summary(problems, wrong, config, servers))
    return 1 if wrong else 0


def _command_rules(config: Path | None, servers: Path | None) -> tuple[Problem, ...]:
    """What an operator should know of the commands that they allowed."""
    loaded = load(config=config, servers=servers)
    own = loaded.settings.builtin.workspace
    path = "builtin.workspace.commands"
    origin = loaded.origins[path]
    return tuple(
        Problem(message=what, fix=fix, path=f"{path}[{number}]", origin=origin, warning=True)
        for number, what, fix in describe_rules(own.commands, own.commands_after_writes)
    )


def _say(problem: Problem) -> None:
    mark = styled("warning: ", fg="yellow") if problem.warning else styled("error: ", fg="red")
    click.echo(f"{mark}{plain(str(problem))}")
    click.echo(styled("  fix: ", fg="green") + plain(problem.fix))


def _summary(problems: tuple[Problem, ...], wrong: int, config: Path | None, servers: Path | None) -> str:
    warnings = _count(len(problems) - wrong, "warning")
    if wrong:
        return f"{_count(wrong, 'problem')}, {warnings}"

    loaded = load(config=config, servers=servers)
    given = sum(origin.kind != "default" for origin in loaded.origins.values())
    verdict = "no problems" if not problems else f"no problems, {warnings}"
    return f"{_count(len(loaded.specs), 'server')}, {_count(given, 'setting')}, {verdict}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _as_json(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.file,
        "line": problem.line,
        "path": problem.path,
        "message": problem.message,
        "fix": problem.fix,
        "origin": str(problem.origin),
        "warning": problem.warning,
    }


def show_settings(
    *, config: Path | None, servers: Path | None, as_json: bool, section: str | None, changed: bool
) -> int:
    """Print the effective settings, each with where it comes from. Secrets are masked."""
    if section is not None and section not in sections():
        known = ", ".join(sections())
        message = f"no section {section!r}; there are: {known}"
        raise click.BadParameter(message, param_hint="SECTION")
    loaded = load(config=config, servers=servers)
    if as_json:
        _show_json(loaded, section, changed=changed)
    else:
        _show_table(loaded, section, changed=changed)
    return 0


def _show_json(loaded: Loaded, section: str | None, *, changed: bool) -> None:
    print_json(
        {
            "settings": [
                {"path": row.path, "value": row.value, "origin": str(row.origin), "kind": row.origin.kind}
                for row in rows(loaded, section)
                if not changed or row.origin.kind != "default"
            ],
            "files": list(loaded.files),
            "warnings": [_as_json(warning) for warning in loaded.warnings],
        }
    )


def _show_table(loaded: Loaded, section: str | None, *, changed: bool) -> None:
    made = table(None, "setting", "value", "from")
    for row in rows(loaded, section):
        is_default = row.origin.kind == "default"
        if changed and is_default:
            continue
        value = "" if row.value is None else json.dumps(row.value, ensure_ascii=False)
        style = "dim" if is_default else ""
        made.add_row(*(Text(plain(cell), style=style) for cell in (row.path, value, str(row.origin))))
    output().print(made)
    for warning in loaded.warnings:
        errors_to().print(Text(f"warning: {plain(str(warning))}", style="yellow"))
