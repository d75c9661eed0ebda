"""Commands that do more than work on the folder: they are run only where a person agreed to just that.

Not a fence around an attacker: a program can do whatever its user can. It keeps a list of allowed
commands, or a habit of approving them, from letting through what deserves another look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from fingerpost.catalog.words import word_set

Words = Sequence[str]

_RIGHTS: Final = word_set("sudo doas su pkexec runuser setpriv chroot unshare nsenter")
_SHELLS: Final = word_set("sh bash dash ash zsh fish ksh mksh csh tcsh pwsh busybox toybox")
_STARTERS: Final = word_set(
    "env xargs nohup setsid timeout nice ionice stdbuf time watch parallel script strace ltrace exec eval "
    "start-stop-daemon systemd-run flock unbuffer expect screen tmux at batch crontab ssh"
)
_SYSTEM: Final = word_set(
    "dd fdisk parted wipefs shred mount umount swapon swapoff reboot shutdown halt poweroff init telinit "
    "systemctl service launchctl useradd userdel usermod groupadd passwd chpasswd visudo iptables nft sysctl "
    "modprobe insmod rmmod kill killall pkill skill setfacl chattr truncate"
)
_PACKAGES: Final = word_set(
    "apt apt-get aptitude dpkg yum dnf rpm zypper pacman apk brew port snap flatpak emerge nix-env"
)
_CHANGING: Final[Mapping[str, frozenset[str]]] = {
    name: word_set(words)
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
_INLINE: Final = re.compile(r"(?P<name>python|perl|ruby|node|nodejs|deno|bun|php|lua|osascript)[\d.]*")
_INLINE_OPTIONS: Final = word_set("-c -e -E -p -r -n --eval --print eval")
_RECURSIVE: Final = word_set("chmod chown chgrp")
_WRITERS: Final = word_set("rm rmdir mv cp ln touch mkdir tee install rsync unlink chmod chown chgrp")


def elevated(words: Words, root: str) -> str | None:
    """Why the command deserves a look of its own; None: it does not."""
    name = PurePosixPath(words[0]).name.casefold()
    arguments = words[1:]
    return next((why for test in _TESTS if (why := test(name, arguments, root)) is not None), None)


def _by_name(name: str, arguments: Words, root: str) -> str | None:
    for names, why in (
        (_RIGHTS, "runs something with other rights"),
        (_STARTERS, "starts another program"),
        (_SYSTEM, "changes the system or other programs"),
        (_PACKAGES, "installs or removes software"),
    ):
        if name in names:
            return f"{name} {why}"
    return f"{name} makes a file system" if name.startswith("mkfs") else None


def _by_inline_code(name: str, arguments: Words, root: str) -> str | None:
    if name in _SHELLS and any(_has_letter(each, "c") for each in arguments):
        return f"{name} -c runs whatever it is given"
    if _INLINE.fullmatch(name) is None:
        return None
    for number, each in enumerate(arguments):
        if each in _INLINE_OPTIONS:
            return f"{name} {each} runs whatever it is given"
        if each == "-m" and name.startswith("python"):
            return _by_subcommand(arguments[number + 1 : number + 2][0:1], arguments[number + 2 :])
        if not each.startswith("-"):
            return None
    return None


def _by_subcommand(program: Words, arguments: Words) -> str | None:
    return _by_change(program[0], arguments, "") if program else None


def _by_change(name: str, arguments: Words, root: str) -> str | None:
    name = re.sub(r"[\d.]+$", "", name)
    changing = _CHANGING.get(name, frozenset[str]())
    first = next((each for each in arguments if not each.startswith("-")), "")
    return f"{name} {first} changes more than the files here" if first in changing else None


def _by_reach(name: str, arguments: Words, root: str) -> str | None:
    if name == "rm" and any(_has_letter(each, "rR") or each == "--recursive" for each in arguments):
        return "rm -r deletes whole folders"
    if name in _RECURSIVE and any(_has_letter(each, "R") or each == "--recursive" for each in arguments):
        return f"{name} -R changes whole folders"
    if name == "find" and any(each.startswith(("-exec", "-ok", "-delete", "-fprint")) for each in arguments):
        return "find starts programs or deletes with these options"
    if name in _WRITERS and any(_leads_out(each, root) for each in arguments):
        return f"{name} is given a path outside of the working directory"
    return None


def _has_letter(option: str, letters: str) -> bool:
    """`-rf` has r and f; `--force` has none."""
    return option.startswith("-") and not option.startswith("--") and any(each in option for each in letters)


def _leads_out(argument: str, root: str) -> bool:
    path = argument.partition("=")[2] if argument.startswith("-") else argument
    if path.startswith("/"):
        return not (path == root or path.startswith(f"{root}/")) or ".." in path.split("/")
    return path.startswith("~") or ".." in path.split("/")


_TESTS: Final[tuple[Callable[[str, Words, str], str | None], ...]] = (
    _by_name,
    _by_inline_code,
    _by_change,
    _by_reach,
)
