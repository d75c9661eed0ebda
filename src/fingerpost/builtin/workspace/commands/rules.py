"""Which commands may run unasked: the operator's rules, compared word by word.

A rule is a command line with `*` in its words. `*` at its end, and a rule of one word, stand for further
words: for a known program what is known as safe, for any other operands, never options. `**` as the last
word stands for anything at all.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.commands.programs import PROGRAMS, find_unsafe
from fingerpost.frozen import frozen

ANY_COMMAND: Final = "**"


@frozen(kw_only=False)
class CommandRule:
    """One rule: words to compare, and whether more may follow."""

    text: str
    words: tuple[str, ...]
    more: bool = False  # safe words
    anything: bool = False

    def explain_mismatch(self, words: Sequence[str], root: str) -> str | None:
        """Why the command does not fit, in a few words, or empty where it is about something else."""
        if len(words) < len(self.words) or not all(map(_matches_word, words, self.words)):
            return ""
        if words[0].count("/") != self.words[0].count("/"):  # `*` names no folder of a program
            return ""
        rest = words[len(self.words) :]
        if self.anything:
            return None
        if rest and not self.more:
            return ""
        if words[0] in PROGRAMS and not self.names_unknown_subcommand():
            named = frozenset(word for word in self.words[1:] if "*" not in word)
            return find_unsafe(words, root, named=named)
        option = next((word for word in rest if word.startswith("-") and word != "-"), None)
        return None if option is None else f"{option[:60]} is an option that the rule does not name"

    def names_unknown_subcommand(self) -> bool:
        """Whether it names a subcommand that is not known here, such as `git commit -m *`."""
        program = PROGRAMS.get(self.words[0])
        if program is None or not program.subcommands or len(self.words) < 2:
            return False
        return self.words[1] not in program.subcommands and not self.words[1].startswith(("-", "*"))


def _matches_word(word: str, pattern: str) -> bool:
    """`*` does not stand for the beginning of an option."""
    return fnmatchcase(word, pattern) and word.startswith("-") == pattern.startswith("-")


def parse_rule(text: str) -> CommandRule:
    """The rule. One that cannot be split into words fits nothing but itself."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if not words:
        return CommandRule(text, (text,))
    if words[-1] == ANY_COMMAND:
        return CommandRule(text, tuple(words[:-1]) or ("*",), anything=True)
    if len(words) == 1:
        return CommandRule(text, (words[0],), more=True)
    last = words[-1]
    if last == "*":
        return CommandRule(text, tuple(words[:-1]), more=True)
    if last.endswith("*") and words[0] in PROGRAMS:  # `git log*`: git log, not git logx
        return CommandRule(text, (*words[:-1], last.rstrip("*")), more=True)
    return CommandRule(text, tuple(words), more=last.endswith("*"))


def check_allowed(words: Sequence[str], patterns: Sequence[str], root: str) -> None:
    """Raises `ToolRefused` when there is a list and the command is not on it.

    The program counts as it was written: `pytest` is not `./pytest`.
    """
    reasons: list[str] = []
    for pattern in patterns:
        why = parse_rule(pattern).explain_mismatch(words, root)
        if why is None:
            return
        reasons.append(why)
    if not patterns:
        return
    message = f"`{shlex.join(words)[:200]}` is not among the commands that may run."
    reason = next(filter(None, reasons), None)
    because = "" if reason is None else f"{reason[:1].upper()}{reason[1:]}. "
    raise ToolRefused(
        message, hint=f"{because}builtin.workspace.commands allows: {', '.join(patterns)[:500]}."
    )


def is_allowed(words: Sequence[str], patterns: Sequence[str], root: str) -> bool:
    """Whether a rule of these fits."""
    return any(parse_rule(pattern).explain_mismatch(words, root) is None for pattern in patterns)


def may_run_files(words: Sequence[str], root: Path, folder: Path) -> bool:
    """Whether the command may run files of the working directory. What is not known may."""
    found = find_program(words[0], folder)
    if found is None:
        return False
    if found.is_relative_to(root) or found.resolve().is_relative_to(root.resolve()):
        return True
    if (program := PROGRAMS.get(words[0])) is None:
        return True
    return program.executes or find_unsafe(words, str(root)) is not None


def may_change_files(words: Sequence[str]) -> bool:
    """Whether the command may change files, as far as its program is known."""
    program = PROGRAMS.get(words[0])
    return program is None or program.writes


def find_program(name: str, folder: Path) -> Path | None:
    """The file that a name stands for, as it would be found from the folder."""
    if "/" in name:
        found = folder / name
        return found if found.is_file() and os.access(found, os.X_OK) else None
    places = (str(folder / place) for place in os.environ.get("PATH", os.defpath).split(os.pathsep))
    found = shutil.which(name, path=os.pathsep.join(places))
    return None if found is None else Path(found)


def build_program_not_found(name: str) -> ToolRefused:
    message = f"There is no program {name}."
    hint = "Check its name; it must be installed, or lie in the folder."
    return ToolRefused(message, hint=hint, error_type="ProgramNotFound")


def describe_rules(
    patterns: Sequence[str], after_writes: Sequence[str] = ()
) -> Iterator[tuple[int, str, str]]:
    """What an operator should know of their rules: number, what it is, what to do."""
    for number, pattern in enumerate(patterns):
        rule = parse_rule(pattern)
        name, line = rule.words[0], shlex.join(rule.words)
        program = PROGRAMS.get(name)
        unknown = program is None or rule.names_unknown_subcommand()
        if rule.anything or "*" in name:
            what = f"{pattern!r} allows {'any arguments' if rule.anything else 'many programs'}"
            yield number, what, "name the program, its subcommand and the options that are needed"
        elif unknown and rule.more:
            what = f"{pattern!r} allows no options but those it names: {line} is not among what is known here"
            yield number, what, f"write options out, as in `{line} --option *`, or `{line} **` for anything"
        if pattern not in after_writes and (unknown or (program is not None and program.executes)):
            what = f"{line} may run files of the folder: it asks once a caller has written there"
            yield number, what, "`commands_after_writes` names those that run unasked even then"
