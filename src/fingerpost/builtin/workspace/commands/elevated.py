"""Commands that do more than work on the folder: they are run only where a person agreed to just that.

Not a fence around an attacker: a program can do whatever its user can. It keeps a list of allowed
commands, or a habit of approving them, from letting through what deserves another look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from fingerpost.catalog.words import parse_word_set

CommandWords = Sequence[str]

_PRIVILEGE_PROGRAMS: Final = parse_word_set("sudo doas su pkexec runuser setpriv chroot unshare nsenter")
_SHELLS: Final = parse_word_set("sh bash dash ash zsh fish ksh mksh csh tcsh pwsh busybox toybox")
_LAUNCHERS: Final = parse_word_set(
    "env xargs nohup setsid timeout nice ionice stdbuf time watch parallel script strace ltrace exec eval "
    "start-stop-daemon systemd-run flock unbuffer expect screen tmux at batch crontab ssh"
)
_SYSTEM_PROGRAMS: Final = parse_word_set(
    "dd fdisk parted wipefs shred mount umount swapon swapoff reboot shutdown halt poweroff init telinit "
    "systemctl service launchctl useradd userdel usermod groupadd passwd chpasswd visudo iptables nft sysctl "
    "modprobe insmod rmmod kill killall pkill skill setfacl chattr truncate"
)
_PACKAGE_MANAGERS: Final = parse_word_set(
    "apt apt-get aptitude dpkg yum dnf rpm zypper pacman apk brew port snap flatpak emerge nix-env"
)
_CHANGING_SUBCOMMANDS: Final[Mapping[str, frozenset[str]]] = {
    name: parse_word_set(words)
    for name, words in (
        ("pip", "install uninstall download wheel config"),
        ("pipx", "install uninstall inject upgrade run"),
        ("uv", "add remove sync tool publish pip"),
        ("poetry", "add remove install update publish"),
        ("conda", "install remove update create"),
        ("npm", "install i ci add uninstall remove update publish exec link"),
        ("pnpm", "install i add remove update publish dlx exec link"),
        ("yarn", "install add remove upgrade publish dlx link"),
        ("gem", "install uninstall update push"),
        ("cargo", "install uninstall publish"),
        ("go", "install get"),
        ("git", "push reset clean config filter-branch gc update-ref reflog"),
        ("docker", "run exec rm rmi kill stop build push system volume"),
        ("podman", "run exec rm rmi kill stop build push system volume"),
    )
}
_INTERPRETERS: Final = re.compile(r"(?P<name>python|perl|ruby|node|nodejs|deno|bun|php|lua|osascript)[\d.]*")
_INLINE_OPTIONS: Final = parse_word_set("-c -e -E -p -r -n --eval --print eval")
_RECURSIVE_OPTIONS: Final = parse_word_set("chmod chown chgrp")
_WRITING_PROGRAMS: Final = parse_word_set(
    "rm rmdir mv cp ln touch mkdir tee install rsync unlink chmod chown chgrp"
)


def explain_elevated(words: CommandWords, root: str) -> str | None:
    """Why the command deserves a look of its own; None: it does not."""
    name = PurePosixPath(words[0]).name.casefold()
    arguments = words[1:]
    return next((why for test in _ELEVATION_CHECKS if (why := test(name, arguments, root)) is not None), None)


def _check_program_name(name: str, arguments: CommandWords, root: str) -> str | None:
    for names, why in (
        (_PRIVILEGE_PROGRAMS, "runs something with other rights"),
        (_LAUNCHERS, "starts another program"),
        (_SYSTEM_PROGRAMS, "changes the system or other programs"),
        (_PACKAGE_MANAGERS, "installs or removes software"),
    ):
        if name in names:
            return f"{name} {why}"
    return f"{name} makes a file system" if name.startswith("mkfs") else None


def _check_inline_code(name: str, arguments: CommandWords, root: str) -> str | None:
    if name in _SHELLS and any(_has_option_letter(each, "c") for each in arguments):
        return f"{name} -c runs whatever it is given"
    if _INTERPRETERS.fullmatch(name) is None:
        return None
    for number, each in enumerate(arguments):
        if each in _INLINE_OPTIONS:
            return f"{name} {each} runs whatever it is given"
        if each == "-m" and name.startswith("python"):
            return _check_subcommand(arguments[number + 1 : number + 2][0:1], arguments[number + 2 :])
        if not each.startswith("-"):
            return None
    return None


def _check_subcommand(program: CommandWords, arguments: CommandWords) -> str | None:
    return _check_recursive_change(program[0], arguments, "") if program else None


def _check_recursive_change(name: str, arguments: CommandWords, root: str) -> str | None:
    name = re.sub(r"[\d.]+$", "", name)
    changing = _CHANGING_SUBCOMMANDS.get(name, frozenset[str]())
    first = next((each for each in arguments if not each.startswith("-")), "")
    return f"{name} {first} changes more than the files here" if first in changing else None


def _check_outside_paths(name: str, arguments: CommandWords, root: str) -> str | None:
    if name == "rm" and any(_has_option_letter(each, "rR") or each == "--recursive" for each in arguments):
        return "rm -r deletes whole folders"
    if name in _RECURSIVE_OPTIONS and any(
        _has_option_letter(each, "R") or each == "--recursive" for each in arguments
    ):
        return f"{name} -R changes whole folders"
    if name == "find" and any(each.startswith(("-exec", "-ok", "-delete", "-fprint")) for each in arguments):
        return "find starts programs or deletes with these options"
    if name in _WRITING_PROGRAMS and any(_is_outside_argument(each, root) for each in arguments):
        return f"{name} is given a path outside of the working directory"
    return None


def _has_option_letter(option: str, letters: str) -> bool:
    """`-rf` has r and f; `--force` has none."""
    return option.startswith("-") and not option.startswith("--") and any(each in option for each in letters)


def _is_outside_argument(argument: str, root: str) -> bool:
    path = argument.partition("=")[2] if argument.startswith("-") else argument
    if path.startswith("/"):
        return not (path == root or path.startswith(f"{root}/")) or ".." in path.split("/")
    return path.startswith("~") or ".." in path.split("/")


_ELEVATION_CHECKS: Final[tuple[Callable[[str, CommandWords, str], str | None], ...]] = (
    _check_program_name,
    _check_inline_code,
    _check_recursive_change,
    _check_outside_paths,
)
