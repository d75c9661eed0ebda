"""Command lines without a shell: their words, known safe programs, allowed commands, and commands that need a
person's grant.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, cast

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.catalog.words import parse_word_set
from fingerpost.data_files import read_data_table
from fingerpost.frozen import frozen

MAX_COMMAND_LENGTH: Final = 8192
_SHELL_OPERATORS: Final = frozenset("|&;<>()")
_EXPANDED_CHARACTERS: Final = frozenset("*?[$`")  # outside of quotes
_EXPANDED_IN_QUOTES: Final = frozenset("$`")
_ASSIGNMENT_PATTERN: Final = re.compile(r"[A-Za-z_]\w*=")
_NO_SHELL_HINT: Final = (
    "Give one program with its arguments, quoted where they have special signs; `folder` says where it runs. "
    "run_elevated with `sh -c '…'` uses a shell, and asks a person."
)


@dataclass(slots=True)
class _CommandLineParser:
    words: list[str] = field(default_factory=list[str])
    word: list[str] = field(default_factory=list[str])
    in_word: bool = False  # an empty word in quotes is a word too
    quote: str = ""

    def end_word(self) -> None:
        if self.in_word:
            self.words.append("".join(self.word))
        self.word, self.in_word = [], False

    def add(self, char: str) -> None:
        self.word.append(char)
        self.in_word = True


def split_command(command: str) -> tuple[str, ...]:
    """Split a command line into words, with quotes resolved as in a POSIX shell. Raises `ToolRefused`."""
    if len(command) > MAX_COMMAND_LENGTH or "\0" in command:
        raise ToolRefused(f"A command has at most {MAX_COMMAND_LENGTH} characters and no zero bytes.")
    parser, position = _CommandLineParser(), 0
    while position < len(command):
        position = _parse_next(parser, command, position)
    if parser.quote:
        raise ToolRefused(f"The command ends inside of {parser.quote}.", hint="Close the quotes.")
    parser.end_word()
    if not parser.words:
        raise ToolRefused("The command is empty.", hint="Name a program, and its arguments.")
    if _ASSIGNMENT_PATTERN.match(parser.words[0]):
        message = f"{parser.words[0][:60]} sets a variable, which needs a shell, and none is used."
        raise ToolRefused(message, hint=_NO_SHELL_HINT)
    return tuple(parser.words)


def _parse_next(parser: _CommandLineParser, command: str, position: int) -> int:
    char = command[position]
    if char == "\\" and parser.quote != "'":
        return _parse_escape(parser, command, position)
    if parser.quote:
        if char == parser.quote:
            parser.quote = ""
        else:
            if parser.quote == '"' and char in _EXPANDED_IN_QUOTES:
                raise _build_shell_error(char)
            parser.add(char)
    elif char in "'\"":
        parser.quote, parser.in_word = char, True
    elif char in " \t":
        parser.end_word()
    else:
        if char in "\n\r":
            raise ToolRefused("The command has several lines.", hint=_NO_SHELL_HINT)
        if char in _SHELL_OPERATORS or char in _EXPANDED_CHARACTERS:
            raise _build_shell_error(char)
        if not parser.in_word and char in "#~":
            raise _build_shell_error(char)
        parser.add(char)
    return position + 1


def _parse_escape(parser: _CommandLineParser, command: str, position: int) -> int:
    following = command[position + 1 : position + 2]
    if not following:
        raise ToolRefused("The command ends with a backslash.", hint="Write \\\\ for a backslash of its own.")
    if parser.quote and following not in '$`"\\\n':
        parser.add("\\")
    if following != "\n":
        parser.add(following)
    return position + 2


def _build_shell_error(char: str) -> ToolRefused:
    message = f"`{char}` means something to a shell only, and commands run without one."
    return ToolRefused(message, hint=_NO_SHELL_HINT)


OptionValue = Literal["", ":", "?"]


def _parse_options(text: str) -> dict[str, OptionValue]:
    found: dict[str, OptionValue] = {}
    for word in text.split():
        name = word.rstrip(":?")
        found[name] = cast("OptionValue", word[len(name) :])
    return found


@frozen
class KnownProgram:
    """A known program or subcommand."""

    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    operands: int = 10_000  # maximum number
    pattern_first: bool = False  # the first operand is a search pattern, not a file
    long_options: bool = False  # `-name` is one option, not four
    count: bool = False  # `-5` is a number
    paths: bool = True  # the operands are files
    operands_begin: str = ""  # required prefix of each operand
    assignments: bool = True  # `NAME=value` is an ordinary operand
    # Operands are allowed only with one of these options, which list names.
    listing: frozenset[str] = frozenset()
    subcommands: Mapping[str, KnownProgram] = field(default_factory=dict[str, "KnownProgram"])
    executes: bool = False  # runs files of the working directory
    writes: bool = False  # changes files of the working directory


def _build_program(fields: dict[str, Any], option_groups: Mapping[str, str]) -> KnownProgram:
    included = (option_groups[name] for name in fields.pop("includes", ()))
    options = _parse_options(" ".join([fields.pop("options", ""), *included]))
    listing, below = frozenset[str](fields.pop("listing", ())), fields.pop("subcommands", {})
    subcommands = {name: _build_program(each, option_groups) for name, each in below.items()}
    return KnownProgram(options=options, listing=listing, subcommands=subcommands, **fields)


PROGRAM_DATA: Final = read_data_table(__package__ or "", "programs.toml")
PROGRAMS: Final = {
    name: _build_program(fields, PROGRAM_DATA["option_groups"])
    for name, fields in PROGRAM_DATA["programs"].items()
}


def is_outside(argument: str, root: str) -> bool:
    """Return whether a word names something outside the folder, judged by its spelling."""
    if argument.startswith("/"):
        return not (argument == root or argument.startswith(f"{root}/")) or ".." in argument.split("/")
    return argument.startswith("~") or ".." in argument.split("/")


def find_unsafe(words: Sequence[str], root: str, *, named: frozenset[str] = frozenset()) -> str | None:
    """Return what is not known to be safe in the words of a known program, or None.

    `named` are words that the operator's rule contains literally.
    """
    program, name, rest = PROGRAMS[words[0]], words[0], list(words[1:])
    if program.subcommands:
        if not rest or rest[0] not in program.subcommands:
            which = rest[0] if rest else "no subcommand"
            return f"{name} with {which[:60]} is not among what is known as safe"
        name, program, rest = f"{name} {rest[0]}", program.subcommands[rest[0]], rest[1:]
    check = _CommandCheck(program, name, root, named)
    return check.explain_unsafe(rest)


@frozen(kw_only=False)
class _CommandCheck:
    program: KnownProgram
    name: str
    root: str
    named: frozenset[str]

    def explain_unsafe(self, rest: list[str]) -> str | None:
        operands: list[str] = []
        given: set[str] = set()
        while rest:
            word = rest.pop(0)
            if word == "--":
                operands += rest
                break
            if word in self.named:
                continue
            if not word.startswith("-") or word == "-":
                operands.append(word)
                continue
            if self.program.count and re.fullmatch(r"-\d+", word):
                continue
            known = self._read_option(word, rest)
            if known is None:
                return f"{word[:60]} is not among the options of {self.name} that are known as safe"
            given |= known
        return self._explain_unsafe_operands(operands, given)

    def _read_option(self, word: str, rest: list[str]) -> set[str] | None:
        """Return the options in one word. A value in the next word is taken from `rest`."""
        if word.startswith("--") or self.program.long_options:
            name, equals, _ = word.partition("=")
            takes = self.program.options.get(name)
            if takes is None or (equals and not takes):
                return None
            if takes == ":" and not equals and rest:
                rest.pop(0)
            return {name}
        given: set[str] = set()
        if self.program.options.get(word) == "":  # `-vv`
            return {word}
        for place, letter in enumerate(word[1:], start=1):
            takes = self.program.options.get(f"-{letter}")
            if takes is None:
                return None
            given.add(f"-{letter}")
            if takes:
                if takes == ":" and place == len(word) - 1 and rest:
                    rest.pop(0)
                return given
        return given

    def _explain_unsafe_operands(self, operands: list[str], given: set[str]) -> str | None:
        program = self.program
        if program.listing and operands and not given & program.listing:
            return f"{self.name} with a name changes something unless it is told to list"
        if len(operands) > program.operands:
            return f"{self.name} takes at most {program.operands} names here"
        has_pattern = not given & {"-e", "--regexp", "--files"}
        paths = operands[1:] if program.pattern_first and has_pattern else operands
        for operand in paths:
            if not program.assignments and "=" in operand:
                return f"{operand[:60]} sets a variable of {self.name}"
            if not operand.startswith(program.operands_begin):
                return f"{operand[:60]} is not what {self.name} only reads"
            if program.paths and is_outside(operand, self.root):
                return f"{operand[:60]} leads out of the working directory"
        return None


ANY_ARGUMENTS: Final = "**"


@frozen(kw_only=False)
class CommandRule:
    """One rule: the words to compare, and whether more may follow."""

    text: str
    words: tuple[str, ...]
    more: bool = False  # more safe words may follow
    anything: bool = False

    def explain_mismatch(self, words: Sequence[str], root: str) -> str | None:
        """Return None for a match, else a short reason: empty if the rule is about another command."""
        if len(words) < len(self.words) or not all(map(_matches_word, words, self.words)):
            return ""
        # `*` does not match a folder in the program's path.
        if words[0].count("/") != self.words[0].count("/"):
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
        """Return whether it names a subcommand that is not known here, such as `git commit -m *`."""
        program = PROGRAMS.get(self.words[0])
        if program is None or not program.subcommands or len(self.words) < 2:
            return False
        return self.words[1] not in program.subcommands and not self.words[1].startswith(("-", "*"))

    @classmethod
    def parse(cls, text: str) -> CommandRule:
        """Parse a rule. Text that cannot be split into words matches only itself."""
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.split()
        if not words:
            return cls(text, (text,))
        if words[-1] == ANY_ARGUMENTS:
            return cls(text, tuple(words[:-1]) or ("*",), anything=True)
        if len(words) == 1:
            return cls(text, (words[0],), more=True)
        last = words[-1]
        if last == "*":
            return cls(text, tuple(words[:-1]), more=True)
        if last.endswith("*") and words[0] in PROGRAMS:  # `git log*` matches `git log`, not `git logx`
            return cls(text, (*words[:-1], last.rstrip("*")), more=True)
        return cls(text, tuple(words), more=last.endswith("*"))


def _matches_word(word: str, pattern: str) -> bool:
    """Return whether the word matches. `*` does not match the start of an option."""
    return fnmatchcase(word, pattern) and word.startswith("-") == pattern.startswith("-")


def check_allowed(words: Sequence[str], patterns: Sequence[str], root: str) -> None:
    """Raise `ToolRefused` if there are patterns and none matches the command.

    The program is compared as written: `pytest` is not `./pytest`.
    """
    reasons: list[str] = []
    for pattern in patterns:
        why = CommandRule.parse(pattern).explain_mismatch(words, root)
        if why is None:
            return
        reasons.append(why)
    if not patterns:
        return
    message = f"`{shlex.join(words)[:200]}` is not among the commands that may run."
    reason = next(filter(None, reasons), None)
    because = "" if reason is None else f"{reason[:1].upper()}{reason[1:]}. "
    allowed = f"builtin.workspace.commands allows: {', '.join(patterns)[:500]}."
    raise ToolRefused(message, hint=f"{because}{allowed}")


def is_allowed(words: Sequence[str], patterns: Sequence[str], root: str) -> bool:
    """Return whether one of these patterns matches."""
    return any(CommandRule.parse(pattern).explain_mismatch(words, root) is None for pattern in patterns)


def may_run_files(words: Sequence[str], root: Path, folder: Path) -> bool:
    """Return whether the command may run files of the working directory. Unknown programs may."""
    found = find_program(words[0], folder)
    if found is None:
        return False
    if found.is_relative_to(root) or found.resolve().is_relative_to(root.resolve()):
        return True
    if (program := PROGRAMS.get(words[0])) is None:
        return True
    return program.executes or find_unsafe(words, str(root)) is not None


def may_change_files(words: Sequence[str]) -> bool:
    """Return whether the command may change files. Unknown programs may."""
    program = PROGRAMS.get(words[0])
    return program is None or program.writes


def find_program(name: str, folder: Path) -> Path | None:
    """Return the file that would be run for this name from the folder, or None."""
    if "/" in name:
        found = folder / name
        return found if found.is_file() and os.access(found, os.X_OK) else None
    search_paths = (str(folder / entry) for entry in os.environ.get("PATH", os.defpath).split(os.pathsep))
    found = shutil.which(name, path=os.pathsep.join(search_paths))
    return None if found is None else Path(found)


def build_program_not_found_error(name: str) -> ToolRefused:
    message = f"There is no program {name}."
    hint = "Check its name; it must be installed, or lie in the folder."
    return ToolRefused(message, hint=hint, error_type="ProgramNotFound")


def describe_rules(
    patterns: Sequence[str], after_writes: Sequence[str] = ()
) -> Iterator[tuple[int, str, str]]:
    """Yield notes for the operator about the rules: rule number, problem, and fix."""
    for number, pattern in enumerate(patterns):
        rule = CommandRule.parse(pattern)
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
            yield number, what, "`commands_after_writes` lists commands that still run without approval"


CommandWords = Sequence[str]

_ELEVATED: Final = {name: parse_word_set(words) for name, words in PROGRAM_DATA["elevated"].items()}
_CHANGING_SUBCOMMANDS: Final = {
    name: parse_word_set(words) for name, words in PROGRAM_DATA["changing_subcommands"].items()
}
_INTERPRETER: Final = re.compile(r"(?:python|perl|ruby|node|nodejs|deno|bun|php|lua|osascript)[\d.]*")
_INLINE_OPTIONS: Final = parse_word_set("-c -e -E -p -r -n --eval --print eval")


def explain_elevated(words: CommandWords, root: str) -> str | None:
    """Return why the command needs approval each time, or None if it does not."""
    name = PurePosixPath(words[0]).name.casefold()
    arguments = words[1:]
    return next((why for test in _ELEVATION_CHECKS if (why := test(name, arguments, root)) is not None), None)


def _explain_program_name(name: str, arguments: CommandWords, root: str) -> str | None:
    for names, why in (
        ("privilege", "runs something with other rights"),
        ("launchers", "starts another program"),
        ("system", "changes the system or other programs"),
        ("package_managers", "installs or removes software"),
    ):
        if name in _ELEVATED[names]:
            return f"{name} {why}"
    return f"{name} makes a file system" if name.startswith("mkfs") else None


def _explain_inline_code(name: str, arguments: CommandWords, root: str) -> str | None:
    if name in _ELEVATED["shells"] and any(_has_option_letter(each, "c") for each in arguments):
        return f"{name} -c runs whatever it is given"
    if _INTERPRETER.fullmatch(name) is None:
        return None
    for number, each in enumerate(arguments):
        if each in _INLINE_OPTIONS:
            return f"{name} {each} runs whatever it is given"
        if each == "-m" and name.startswith("python"):
            module = "".join(arguments[number + 1 : number + 2])
            return _explain_changing_subcommand(module, arguments[number + 2 :], "")
        if not each.startswith("-"):
            return None
    return None


def _explain_changing_subcommand(name: str, arguments: CommandWords, root: str) -> str | None:
    name = re.sub(r"[\d.]+$", "", name)
    changing = _CHANGING_SUBCOMMANDS.get(name, frozenset[str]())
    first = next((each for each in arguments if not each.startswith("-")), "")
    return f"{name} {first} changes more than the files here" if first in changing else None


def _explain_risky_arguments(name: str, arguments: CommandWords, root: str) -> str | None:
    recursive = "--recursive" in arguments or any(_has_option_letter(each, "R") for each in arguments)
    if name == "rm" and (recursive or any(_has_option_letter(each, "r") for each in arguments)):
        return "rm -r deletes whole folders"
    if recursive and name in _ELEVATED["permission"]:
        return f"{name} -R changes whole folders"
    if name == "find" and any(each.startswith(("-exec", "-ok", "-delete", "-fprint")) for each in arguments):
        return "find starts programs or deletes with these options"
    paths = (each.partition("=")[2] if each.startswith("-") else each for each in arguments)
    if name in _ELEVATED["writing"] and any(is_outside(path, root) for path in paths):
        return f"{name} is given a path outside of the working directory"
    return None


def _has_option_letter(option: str, letters: str) -> bool:
    """Return whether a short option contains one of the letters: `-rf` has r and f; `--force` has none."""
    return option.startswith("-") and not option.startswith("--") and any(each in option for each in letters)


_ELEVATION_CHECKS: Final[tuple[Callable[[str, CommandWords, str], str | None], ...]] = (
    _explain_program_name,
    _explain_inline_code,
    _explain_changing_subcommand,
    _explain_risky_arguments,
)
