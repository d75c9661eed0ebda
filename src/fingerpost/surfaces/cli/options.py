"""What commands are declared with: shared options, and the function that runs a command.

Loaded for `fingerpost COMMAND --help`: it imports click and nothing heavy.
"""

from __future__ import annotations

import gc
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from fingerpost.errors import FingerpostError

# Shared: click looks up translations for each instance.
FILE: Final = click.Path(path_type=Path, dir_okay=False)
OVERRIDES_KEY = "fingerpost.overrides"  # settings given as options, in the context of the command
_COMMAND_PATTERN: Final = re.compile(r"`(fingerpost(?: [^`]*)?)`")
_COMMANDS_WITHOUT_FILES: Final = ("fingerpost import", "fingerpost completion")

ParameterFactory = Callable[[], click.Parameter]


class CommandSpec(NamedTuple):
    """The function that runs a command, as `module:function`, and the command's parameters."""

    target: str
    params: tuple[ParameterFactory, ...]
    people_only: bool


class CommonOptions(NamedTuple):
    """The options that nearly every command takes."""

    config: Path | None = None
    servers: Path | None = None
    as_json: bool = False


def command(target: str, /, *params: ParameterFactory, people_only: bool = False) -> CommandSpec:
    """Declare a command. With `people_only` a tool cannot run it. Without a target it is only a group."""
    return CommandSpec(target, params, people_only)


def argument(name: str, **attributes: Any) -> ParameterFactory:
    """Declare an argument."""
    return partial(click.Argument, [name], **attributes)


def option(names: str, help_: str | None = None, **attributes: Any) -> ParameterFactory:
    """Declare an option. `names` are its names on the command line, and its parameter if that differs."""
    shown = {"show_default": bool(attributes.get("default")), **attributes}
    return partial(click.Option, names.split(), help=help_, **shown)


def flag(names: str, help_: str) -> ParameterFactory:
    """Declare an option without a value."""
    return option(names, help_, is_flag=True)


def file_option(names: str, help_: str | None = None, **attributes: Any) -> ParameterFactory:
    """Declare an option that takes a file."""
    return option(names, help_, type=FILE, metavar="FILE", **attributes)


def choice(values: Sequence[str]) -> click.Choice[str]:
    """Return the type of an option that takes one of these values."""
    return click.Choice(values)


def _override(names: str, help_: str, setting: str, **attributes: Any) -> ParameterFactory:
    """Declare an option that overrides a setting."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        del parameter
        context.meta.setdefault(OVERRIDES_KEY, {})[setting] = value

    return option(names, help_, expose_value=False, callback=keep, **attributes)


def _switch_off(names: str, help_: str, setting: str) -> ParameterFactory:
    """Declare an option without a value that sets a setting to false."""

    def keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        del parameter
        if value:
            context.meta.setdefault(OVERRIDES_KEY, {})[setting] = False

    return option(names, help_, expose_value=False, callback=keep, is_flag=True)


_NUMBER: Final = {"type": click.IntRange(min=0), "metavar": "N"}
JSON: Final = flag("--json as_json", "Print JSON for programs instead of tables.")
COMMON: Final = (
    file_option("--config", "The settings file [default: fingerpost.toml here, then the user's]."),
    file_option("--servers", "A standard mcpServers JSON file, as Claude Desktop, Cursor and VS Code use."),
    JSON,
)
STANDALONE: Final = _switch_off(
    "--standalone", "Connect to servers directly, also while a gateway runs.", "lifecycle.use_gateway"
)
CONNECTING: Final = (
    *COMMON,
    STANDALONE,
    option(
        "--wait",
        "Stop waiting for servers after this long.",
        type=click.FloatRange(min=0.1),
        default=20.0,
        metavar="SECONDS",
    ),
)
EFFORT: Final = (
    option("--quick effort", "Be quick: fast tools, one decision.", flag_value="quick"),
    option(
        "--thorough effort",
        "Take more time: research tools, more tools, a reviewed choice.",
        flag_value="thorough",
    ),
)
PROFILE: Final = option("--profile", "Under this profile (`fingerpost profiles` lists them).", metavar="NAME")
SMART_ROUTING: Final = (
    _override(
        "--smart-routing",
        "Choose among servers first: above both thresholds (auto), always (on) or never (off).",
        "smart_routing.mode",
        type=choice(["auto", "on", "off"]),
    ),
    _override(
        "--smart-routing-tools",
        "auto chooses among servers when there are more than N tools.",
        "smart_routing.max_tools",
        **_NUMBER,
    ),
    _override(
        "--smart-routing-servers",
        "auto chooses among servers when there are more than N.",
        "smart_routing.max_servers",
        **_NUMBER,
    ),
)


def run_command(spec: CommandSpec, **options: Any) -> Any:
    """Run a command with its options. Options that commands share are passed as one `CommonOptions`."""
    if click.get_current_context().invoked_subcommand is not None:
        return None
    try:
        if spec.people_only:
            _import_function("terminal_input:refuse_tools")()
        if options.keys() >= set(CommonOptions._fields):
            options["common"] = CommonOptions(*(options.pop(name) for name in CommonOptions._fields))
        function = _import_function(spec.target)
        if not gc.isenabled():  # see `main`
            gc.freeze()
            gc.enable()
        return function(**options)
    except FingerpostError as error:
        error.hint = error.hint and repeat_options(error.hint)
        raise


def _import_function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    return getattr(import_module(f"fingerpost.surfaces.cli.{module}"), name)


def repeat_options(text: str) -> str:
    """Add the `--config` and `--servers` of the current command to each command in backticks."""
    files = "".join(f" {word}" for word in _list_file_options())
    return _COMMAND_PATTERN.sub(lambda found: f"`{_append_files(found[1], files)}`", text) if files else text


def _append_files(words: str, files: str) -> str:
    knows_none = words.startswith(_COMMANDS_WITHOUT_FILES) or words.endswith("--help")
    own, separator, program = words.partition(" -- ")  # what follows is the command of a server
    return words if knows_none else f"{own}{files}{separator}{program}"


def _list_file_options() -> Iterator[str]:
    context = click.get_current_context(silent=True)
    for name in ("config", "servers"):
        given = None if context is None else context.params.get(name)
        if given is not None:
            yield f"--{name} {shlex.quote(str(given))}"
