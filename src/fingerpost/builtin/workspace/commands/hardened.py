"""Known programs as they are really started: without what the working directory configures them to run."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.commands.programs import PROGRAMS, find_unsafe

PreparedCommand = tuple[tuple[str, ...], Mapping[str, str]]  # the words, and variables beside the usual ones

# Every setting that names a program which a reading subcommand could start.
_GIT_SETTINGS: Final = (
    "safe.bareRepository=explicit", "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat",
    "core.editor=false", "core.askPass=false", "core.sshCommand=false", "core.gitProxy=", "diff.external=",
    "diff.trustExitCode=false", "credential.helper=", "gpg.program=false", "gpg.openpgp.program=false",
    "gpg.x509.program=false", "gpg.ssh.program=false", "log.showSignature=false", "submodule.recurse=false",
    "status.submoduleSummary=false", "protocol.allow=never", "maintenance.auto=false", "gc.auto=0",
)  # fmt: skip
# Those with a name of the repository's own in them: .gitattributes, which a model may write, chooses them.
_GIT_NAMED_SETTINGS: Final = re.compile(
    r"(?P<filter>filter\..+\.(clean|smudge|process))|(?P<required>filter\..+\.required)"
    r"|(?P<other>diff\..+\.(command|textconv)|credential\..+\.helper|remote\..+\.(vcs|uploadpack|proxy))",
    re.IGNORECASE | re.DOTALL,
)
_GIT_VARIABLES: Final[Mapping[str, str]] = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_ALLOW_PROTOCOL": "none",  # objects that are missing are not fetched
    "GIT_NO_LAZY_FETCH": "1",
}
_NO_PROGRAM_VALUES: Final = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_GIT_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("--ignore-submodules=dirty",),
    "log": _NO_PROGRAM_VALUES,
    "show": _NO_PROGRAM_VALUES,
    "diff": _NO_PROGRAM_VALUES,
    "diff-tree": _NO_PROGRAM_VALUES,
    "blame": ("--no-textconv",),
    "grep": ("--no-textconv",),
}
_LIST_TIMEOUT_S: Final = 20.0


def prepare_command(words: Sequence[str], root: Path, folder: Path) -> PreparedCommand:
    """The command as it is started. One that is not known as safe stays as it is. Blocks."""
    if words[0] not in PROGRAMS or find_unsafe(words, str(root)) is not None:
        return tuple(words), {}
    if words[0] == "rg":
        return ("rg", "--no-config", *words[1:]), {}
    return _prepare_git(words, folder) if words[0] == "git" else (tuple(words), {})


def _prepare_git(words: Sequence[str], folder: Path) -> PreparedCommand:
    _refuse_bare_repository(folder)
    settings = [*_GIT_SETTINGS]
    for name in _list_git_settings(folder):
        found = _GIT_NAMED_SETTINGS.fullmatch(name)
        if found is not None:
            settings.append(f"{name}={'false' if found['required'] else ''}")
    options = [part for setting in settings for part in ("-c", setting)]
    subcommand, *rest = words[1:]
    added = _GIT_OPTIONS.get(subcommand, ())
    return ("git", "--no-pager", *options, subcommand, *added, *rest), _GIT_VARIABLES


def _list_git_settings(folder: Path) -> list[str]:
    """The names of all settings of the repository, of which none has an effect here."""
    environment = {
        name: os.environ[name] for name in ("HOME", "PATH", "XDG_CONFIG_HOME") if name in os.environ
    }
    listed = [
        "git",
        "--no-pager",
        "-c",
        "safe.bareRepository=explicit",
        "config",
        "-z",
        "--name-only",
        "--list",
    ]
    try:
        done = subprocess.run(
            listed,
            cwd=folder,
            env={**environment, **_GIT_VARIABLES},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return []  # there is no git: starting the command says so
    except subprocess.TimeoutExpired:
        message = "git did not list its settings in time."
        raise ToolRefused(message, hint="Try again.") from None
    return [name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if "=" not in name]


def _refuse_bare_repository(folder: Path) -> None:
    """A folder that git would take for a repository though it has no .git: older versions use it unasked."""
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return
        if all((place / name).exists() for name in ("HEAD", "objects", "refs")):
            message = f"{place} looks like a bare repository, whose settings could run programs."
            raise ToolRefused(message, hint="git is used only in folders with a .git of their own.")
