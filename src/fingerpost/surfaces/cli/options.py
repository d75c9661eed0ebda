"""Options that several commands share, and loading a command's implementation.

Loaded for `fingerpost COMMAND --help`: it imports click and nothing heavy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from fingerpost.errors import FingerpostError

Command = Callable[..., Any]
FILE: Final = click.Path(
    path_type=Path, dir_okay=False
)  # shared: click looks up translations for each instance
OVERRIDES_KEY = "fingerpost.overrides"  # settings given as options, in the context of the command
_COMMAND_PATTERN: Final = re.compile(r"`(fingerpost(?: [^`]*)?)`")
_COMMANDS_WITHOUT_FILES: Final = ("fingerpost import", "fingerpost completion")


def run(target: str, /, **options: Any) -> Any:
    """Import `module:function` of this package, call it with the options and return what it returns."""
    module, _, name = target.partition(":")
    return getattr(import_module(f"fingerpost.surfaces.cli.{module}"), name)(**options)


def wait_option(command: Command) -> Command:
    """Add `--wait`, for commands that connect servers."""
    return click.option(
        "--wait",
        type=click.FloatRange(min=0.1),
        default=20.0,
        show_default=True,
        metavar="SECONDS",
        help="Show what there is after this long, even if a server is still connecting.",
    )(command)


def smart_routing_options(command: Command) -> Command:
    """Add `--smart-routing` and its thresholds, which override the settings."""
    for option in (
        click.option(
            "--smart-routing-servers",
            type=click.IntRange(min=0),
            metavar="N",
            expose_value=False,
            callback=_store_override("smart_routing.max_servers"),
            help="auto chooses among servers when there are more than N.",
        ),
        click.option(
            "--smart-routing-tools",
            type=click.IntRange(min=0),
            metavar="N",
            expose_value=False,
            callback=_store_override("smart_routing.max_tools"),
            help="auto chooses among servers when there are more than N tools.",
        ),
        click.option(
            "--smart-routing",
            type=click.Choice(["auto", "on", "off"]),
            expose_value=False,
            callback=_store_override("smart_routing.mode"),
            help="Choose among servers first: always, never, or above both thresholds.",
        ),
    ):
        command = option(command)
    return command


def _store_override(setting: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        del parameter
        context.meta.setdefault(OVERRIDES_KEY, {})[setting] = value

    return keep


def profile_option(command: Command) -> Command:
    """Add `--profile`."""
    return click.option(
        "--profile", metavar="NAME", help="Under this profile (`fingerpost profiles` lists them)."
    )(command)


def effort_options(command: Command) -> Command:
    """Add `--quick` and `--thorough`."""
    for name, help_ in (
        ("thorough", "Take more time: research tools, more tools, a reviewed choice."),
        ("quick", "Be quick: fast tools, one decision."),
    ):
        command = click.option(f"--{name}", "effort", flag_value=name, default=None, help=help_)(command)
    return command


def people_only(command: Command) -> Command:
    """Raise `CallError` if a tool has started the command. For commands that decide something."""

    @wraps(command)
    def check_and_run(*args: Any, **options: Any) -> Any:
        run("terminal_input:refuse_tools")
        return command(*args, **options)

    return check_and_run


def common_options(command: Command) -> Command:
    """Add `--config`, `--servers` and `--json`."""
    command = _repeat_in_hints(command)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables."),
        click.option(
            "--servers",
            type=FILE,
            metavar="FILE",
            help="A standard mcpServers JSON file, as Claude Desktop, Cursor and VS Code use.",
        ),
        click.option(
            "--config",
            type=FILE,
            metavar="FILE",
            help="The settings file [default: fingerpost.toml here, then the user's].",
        ),
    ):
        command = option(command)
    return command


def _repeat_in_hints(command: Command) -> Command:
    """Add the files given to this command to commands in the hints of errors."""

    @wraps(command)
    def run_with_hints(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except FingerpostError as error:
            error.hint = error.hint and repeat_options(error.hint)
            raise

    return run_with_hints


def repeat_options(text: str) -> str:
    """Add the `--config` and `--servers` of the current command to each command in backticks."""
    files = "".join(f" {word}" for word in _list_file_options())
    return _COMMAND_PATTERN.sub(lambda found: f"`{_append_files(found[1], files)}`", text) if files else text


def _append_files(command: str, files: str) -> str:
    knows_none = command.startswith(_COMMANDS_WITHOUT_FILES) or command.endswith("--help")
    return command if knows_none else f"{command}{files}"


def _list_file_options() -> Iterator[str]:
    context = click.get_current_context(silent=True)
    for name in ("config", "servers"):
        given = None if context is None else context.params.get(name)
        if given is not None:
            yield f"--{name} {shlex.quote(str(given))}"
