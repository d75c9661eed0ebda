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
from typing import Final, Literal

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.catalog.words import parse_word_set
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
        message = f"A command has at most {MAX_COMMAND_LENGTH} characters and no zero bytes."
        raise ToolRefused(message)
    parser, position = _CommandLineParser(), 0
    while position < len(command):
        position = _parse_next(parser, command, position)
    if parser.quote:
        message = f"The command ends inside of {parser.quote}."
        raise ToolRefused(message, hint="Close the quotes.")
    parser.end_word()
    if not parser.words:
        message = "The command is empty."
        raise ToolRefused(message, hint="Name a program, and its arguments.")
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
        _check_character(parser, char)
        parser.add(char)
    return position + 1


def _parse_escape(parser: _CommandLineParser, command: str, position: int) -> int:
    following = command[position + 1 : position + 2]
    if not following:
        message = "The command ends with a backslash."
        raise ToolRefused(message, hint="Write \\\\ for a backslash of its own.")
    if parser.quote and following not in '$`"\\\n':
        parser.add("\\")
    if following != "\n":
        parser.add(following)
    return position + 2


def _check_character(parser: _CommandLineParser, char: str) -> None:
    if char in "\n\r":
        message = "The command has several lines."
        raise ToolRefused(message, hint=_NO_SHELL_HINT)
    if char in _SHELL_OPERATORS or char in _EXPANDED_CHARACTERS:
        raise _build_shell_error(char)
    if not parser.in_word and char in "#~":
        raise _build_shell_error(char)


def _build_shell_error(char: str) -> ToolRefused:
    message = f"`{char}` means something to a shell only, and commands run without one."
    return ToolRefused(message, hint=_NO_SHELL_HINT)


OptionValue = Literal["", ":", "?"]


def _parse_options(text: str) -> dict[str, OptionValue]:
    found: dict[str, OptionValue] = {}
    for word in text.split():
        if word.endswith(":"):
            found[word[:-1]] = ":"
        elif word.endswith("?"):
            found[word[:-1]] = "?"
        else:
            found[word] = ""
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


def _define(options: str = "", **more: object) -> KnownProgram:
    return KnownProgram(options=_parse_options(options), **more)  # pyright: ignore[reportArgumentType] - fields by name


_DIFF_OPTIONS: Final = """
    -p -u --patch --no-patch -s -U: --unified: --raw --patch-with-raw --minimal --patience --histogram
    --diff-algorithm: --stat? --compact-summary --numstat --shortstat --dirstat? --summary --name-only
    --name-status -z --color? --no-color --word-diff? --word-diff-regex: --color-words? --color-moved?
    --no-renames -M? --find-renames? -C? --find-copies? --find-copies-harder -R --exit-code --quiet
    -a --text -b -w -W --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-space-at-eol
    --inter-hunk-context: --function-context --full-index --abbrev? --binary --diff-filter: -S: -G:
    --pickaxe-all --pickaxe-regex --check --no-ext-diff --no-textconv --no-prefix --relative? -l:
    --submodule? --src-prefix: --dst-prefix: --merge-base --cached --staged
"""
_LOG_OPTIONS: Final = """
    -n: --max-count: --skip: --since: --after: --until: --before: --author: --committer: --grep: -i -E -F -P
    --all-match --invert-grep --all --branches? --tags? --remotes? --glob: --exclude: --merges --no-merges
    --first-parent --oneline --format: --pretty? --graph --decorate? --no-decorate --follow --reverse
    --date: --relative-date --abbrev-commit --no-abbrev-commit --topo-order --date-order --author-date-order
    --left-right --left-only --right-only --cherry-pick --cherry --cherry-mark --boundary --full-history
    --simplify-by-decoration --simplify-merges --ancestry-path? --name-only -L: -m -c --cc --source
    --no-notes --parents --children --count --walk-reflogs -g --no-walk --root --use-mailmap --no-mailmap
"""
_GIT_SUBCOMMANDS: Final[Mapping[str, KnownProgram]] = {
    "status": _define(
        "-s --short -b --branch --porcelain? --long -u? --untracked-files? --ignored? -z --show-stash "
        "--column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames"
    ),
    "log": _define(_LOG_OPTIONS + _DIFF_OPTIONS, count=True),
    "show": _define(_LOG_OPTIONS + _DIFF_OPTIONS, count=True),
    "diff": _define(_DIFF_OPTIONS),
    "diff-tree": _define(
        f"{_DIFF_OPTIONS} -r -t --root --no-commit-id --format: --pretty? --stdin -m -c --cc"
    ),
    "rev-list": _define(f"{_LOG_OPTIONS} --objects --disk-usage", count=True),
    "shortlog": _define(f"{_LOG_OPTIONS} -s -n -e -c --summary --numbered --email --group:", count=True),
    "blame": _define(
        "-b --root -e --show-email -f -n -s -t -l -w -L: -p --porcelain --line-porcelain --incremental "
        "--since: --date: -M? -C? --color-lines --color-by-age --abbrev: --first-parent"
    ),
    "branch": _define(
        "-a --all -r --remotes -l --list -v -vv --verbose --show-current --contains: --no-contains: "
        "--merged? --no-merged? --sort: --format: --color? --no-color --column? --points-at: -i "
        "--ignore-case --abbrev? --no-abbrev",
        listing=parse_word_set("-l --list"),
    ),
    "tag": _define(
        "-l --list -n? --sort: --format: --contains: --no-contains: --merged? --points-at: -i --column?",
        listing=parse_word_set("-l --list"),
    ),
    "remote": _define("-v --verbose", operands=0),
    "ls-files": _define(
        "-c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored --stage "
        "--unmerged "
        "--killed --exclude-standard --directory --no-empty-directory --full-name --error-unmatch --eol "
        "--abbrev? --deduplicate"
    ),
    "ls-tree": _define("-d -r -t -l -z --long --name-only --name-status --full-name --full-tree --abbrev?"),
    "rev-parse": _define(
        "--verify -q --quiet --short? --abbrev-ref? --symbolic --symbolic-full-name --all --branches --tags "
        "--show-toplevel --show-prefix --show-cdup --git-dir --absolute-git-dir --git-common-dir "
        "--is-inside-work-tree --is-bare-repository --is-inside-git-dir"
    ),
    "describe": _define("--all --tags --contains --abbrev: --long --always --dirty? --match: --exclude:"),
    "merge-base": _define("-a --all --octopus --independent --is-ancestor --fork-point"),
    "name-rev": _define("--tags --refs: --all --name-only --always"),
    "show-ref": _define("--head --heads --tags -d --dereference -s --hash? --verify -q --quiet --abbrev?"),
    "for-each-ref": _define("--count: --sort: --format: --points-at: --merged? --contains: --ignore-case"),
    "cat-file": _define("-p -t -s -e"),
    "count-objects": _define("-v -H --verbose --human-readable", operands=0),
    "grep": _define(
        "-n -i -w -v -l -L -c -h -H -E -F -G -P -e: -A: -B: -C: -q -z -W -p -a -I --line-number "
        "--ignore-case "
        "--word-regexp --invert-match --files-with-matches --files-without-match --name-only --count "
        "--heading "
        "--break --cached --untracked --max-depth: --and --or --not --all-match --color? "
        "--show-function --function-context --full-name --column --only-matching -o",
        pattern_first=True,
    ),
}

_GREP_OPTIONS: Final = """
    -r -R -n -i -w -x -v -l -L -c -h -H -o -q -s -a -I -E -F -G -P -e: -A: -B: -C: -m: -z -b --include:
    --exclude: --exclude-dir: --recursive --line-number --ignore-case --word-regexp --line-regexp
    --invert-match --files-with-matches --files-without-match --count --only-matching --quiet --no-messages
    --text --extended-regexp --fixed-strings --perl-regexp --regexp: --after-context: --before-context:
    --context: --max-count: --color? --colour? --no-filename --with-filename --binary-files:
"""
_PYTEST_OPTIONS: Final = """
    -q -v -vv -x -s -l --quiet --verbose --exitfirst -k: -m: -r: -n: --maxfail: --lf --last-failed --ff
    --failed-first --nf --sw --stepwise --tb: --co --collect-only --no-header --no-summary --durations:
    --showlocals --strict-markers --strict-config --disable-warnings --color: --capture: --fixtures --markers
"""
_CHECKSUM_PROGRAM: Final = _define(
    "-b -c -t -w --check --quiet --status --strict --warn --tag --text --binary -z"
)
_HEAD_PROGRAM: Final = _define("-c: -n: -q -v -z --lines: --bytes: --quiet --verbose", count=True)

PROGRAMS: Final[Mapping[str, KnownProgram]] = {
    "git": KnownProgram(subcommands=_GIT_SUBCOMMANDS),
    "ls": _define(
        "-a -A -l -h -R -r -t -S -1 -d -F -i -n -o -g -s -p -x -C -c -u -U -X -v -L -H -Q -b -q -G -B -k -m "
        "--all --almost-all --human-readable --recursive --reverse --sort: --time: --time-style: --color? "
        "--directory --full-time --group-directories-first --inode --classify? --size"
    ),
    "cat": _define("-A -b -e -E -n -s -t -T -u -v --number --number-nonblank --show-all --squeeze-blank"),
    "head": _HEAD_PROGRAM,
    "tail": _define(
        "-c: -n: -q -v -z -f -F -s: --lines: --bytes: --quiet --verbose --follow? --retry", count=True
    ),
    "wc": _define("-c -m -l -L -w --bytes --chars --lines --words --max-line-length"),
    "grep": _define(_GREP_OPTIONS, pattern_first=True, count=True),
    "egrep": _define(_GREP_OPTIONS, pattern_first=True, count=True),
    "fgrep": _define(_GREP_OPTIONS, pattern_first=True, count=True),
    "rg": _define(
        f"{_GREP_OPTIONS} -g: -t: -T: -S -U -u -. -N -p -0 --glob: --iglob: --type: --type-not: --smart-case "
        "--multiline --hidden --no-ignore --files --json --stats --sort: --heading --no-heading --max-depth: "
        "--max-columns: --trim --vimgrep --pcre2 --no-config --column --type-list -d:",
        pattern_first=True,
    ),
    "find": _define(
        "-H -L -P -O1 -O2 -O3 -name: -iname: -path: -ipath: -wholename: -regex: -iregex: -regextype: -type: "
        "-xtype: -size: -mtime: -mmin: -ctime: -cmin: -atime: -amin: -newer: -newermt: -empty -executable "
        "-readable -writable -perm: -user: -group: -uid: -gid: -links: -inum: -maxdepth: -mindepth: -depth "
        "-mount -xdev -prune -print -print0 -printf: -ls -quit -not -and -or -a -o -true -false -follow "
        "-daystart -noleaf -nouser -nogroup",
        long_options=True,
    ),
    "sort": _define(
        "-b -d -f -g -h -i -M -n -R -r -V -c -C -k: -m -s -t: -u -z --key: --field-separator: --reverse "
        "--unique --numeric-sort --human-numeric-sort --version-sort --ignore-case --stable --check? --merge "
        "--general-numeric-sort --month-sort --dictionary-order --ignore-leading-blanks"
    ),
    "uniq": _define(
        "-c -d -D -f: -i -s: -u -z -w: --count --repeated --unique --ignore-case --skip-fields: "
        "--skip-chars:",
        operands=1,
    ),
    "cut": _define("-b: -c: -d: -f: -n -s -z --bytes: --characters: --delimiter: --fields: --complement"),
    "tr": _define("-c -C -d -s -t --complement --delete --squeeze-repeats", pattern_first=True),
    "nl": _define("-b: -d: -f: -h: -i: -l: -n: -s: -v: -w: -p"),
    "od": _define("-A: -j: -N: -t: -v -w? -a -b -c -d -f -i -l -o -s -x"),
    "hexdump": _define("-b -c -C -d -n: -o -s: -v -x"),
    "strings": _define("-a -f -n: -t: -e: --all --bytes: --radix:", count=True),
    "cmp": _define("-b -i: -l -n: -s --print-bytes --verbose --quiet --silent"),
    "comm": _define("-1 -2 -3 --check-order --nocheck-order --total -z"),
    "diff": _define(
        "-q -s -c -u -e -n -y -t -T -l -r -N -i -E -Z -b -w -B -a -d -U: -C: -W: -x: -F: -L: --brief "
        "--unified? "
        "--context? --recursive --new-file --ignore-case --ignore-all-space --ignore-space-change --label: "
        "--ignore-blank-lines --text --minimal --color? --side-by-side --width: --exclude: --normal "
        "--strip-trailing-cr --suppress-common-lines"
    ),
    "du": _define("-a -b -c -d: -h -k -m -s -x -S -L -P --max-depth: --all --total --human-readable "
                   "--summarize --apparent-size --exclude: --time? --bytes"),
    "df": _define("-a -B: -h -H -i -k -l -P -T -t: -x: --human-readable --inodes --local --total --type:"),
    "stat": _define("-L -f -t -c: --dereference --file-system --format: --printf: --terse -x"),
    "file": _define("-b -i -k -L -N -h -0 --brief --mime --mime-type --mime-encoding --dereference"),
    "tree": _define("-a -d -f -i -l -x -L: -P: -I: -p -s -h -u -g -D -F -q -N -Q -r -t -c -U -v -J -X -n -C "
                     "--noreport --gitignore --prune --du --si --dirsfirst --charset: --filelimit:"),
    "jq": _define("-c -r -j -a -S -C -M -s -n -e -R --tab --indent: --compact-output --raw-output --slurp "
                   "--null-input --sort-keys --exit-status --raw-input --join-output",
                   pattern_first=True),
    "pwd": _define("-L -P", operands=0),
    "whoami": _define(operands=0),
    "id": _define("-u -g -G -n -r"),
    "uname": _define("-a -s -n -r -v -m -p -i -o", operands=0),
    "date": _define("-u -R -I? --utc --rfc-3339: --iso-8601? -d: --date:", operands_begin="+"),
    "basename": _define("-a -s: -z", paths=False),
    "dirname": _define("-z", paths=False),
    "realpath": _define("-e -m -L -P -q -s -z --relative-to: --relative-base:"),
    "readlink": _define("-f -e -m -n -q -s -v -z"),
    "which": _define("-a", paths=False),
    "echo": _define("-n -e -E", paths=False),
    "printf": _define(paths=False),
    "seq": _define("-f: -s: -w", count=True, paths=False),
    "true": _define(),
    "false": _define(),
    "sleep": _define(),
    "md5sum": _CHECKSUM_PROGRAM,
    "sha1sum": _CHECKSUM_PROGRAM,
    "sha256sum": _CHECKSUM_PROGRAM,
    "sha512sum": _CHECKSUM_PROGRAM,
    "cksum": _define(),
    # These change files of the folder or run them. The listed options keep them inside the folder.
    "touch": _define("-a -c -m -h -d: -t: --no-create --date:", writes=True),
    "mkdir": _define("-p -v --parents --verbose", writes=True),
    "rmdir": _define("-p -v --parents --verbose", writes=True),
    "cp": _define("-a -f -i -n -p -r -R -u -v -T --recursive --no-clobber --update --verbose", writes=True),
    "mv": _define("-f -i -n -u -v -T --no-clobber --update --verbose", writes=True),
    "rm": _define("-f -i -v --force --verbose", writes=True),
    "pytest": _define(_PYTEST_OPTIONS, executes=True, writes=True),
    "make": _define(
        "-j? -k -n -s -B -w --jobs? --keep-going --dry-run --silent --always-make",
        assignments=False,
        executes=True,
        writes=True,
    ),
}  # fmt: skip


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
        return self._read_letters(word, rest)

    def _read_letters(self, word: str, rest: list[str]) -> set[str] | None:
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
        """Return None if the command matches. Otherwise return a short reason, empty if the rule is about
        another command.
        """
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
    raise ToolRefused(
        message, hint=f"{because}builtin.workspace.commands allows: {', '.join(patterns)[:500]}."
    )


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
_INTERPRETER_PATTERN: Final = re.compile(
    r"(?P<name>python|perl|ruby|node|nodejs|deno|bun|php|lua|osascript)[\d.]*"
)
_INLINE_OPTIONS: Final = parse_word_set("-c -e -E -p -r -n --eval --print eval")
_PERMISSION_PROGRAMS: Final = parse_word_set("chmod chown chgrp")
_WRITING_PROGRAMS: Final = parse_word_set(
    "rm rmdir mv cp ln touch mkdir tee install rsync unlink chmod chown chgrp"
)


def explain_elevated(words: CommandWords, root: str) -> str | None:
    """Return why the command needs approval each time, or None if it does not."""
    name = PurePosixPath(words[0]).name.casefold()
    arguments = words[1:]
    return next((why for test in _ELEVATION_CHECKS if (why := test(name, arguments, root)) is not None), None)


def _explain_program_name(name: str, arguments: CommandWords, root: str) -> str | None:
    for names, why in (
        (_PRIVILEGE_PROGRAMS, "runs something with other rights"),
        (_LAUNCHERS, "starts another program"),
        (_SYSTEM_PROGRAMS, "changes the system or other programs"),
        (_PACKAGE_MANAGERS, "installs or removes software"),
    ):
        if name in names:
            return f"{name} {why}"
    return f"{name} makes a file system" if name.startswith("mkfs") else None


def _explain_inline_code(name: str, arguments: CommandWords, root: str) -> str | None:
    if name in _SHELLS and any(_has_option_letter(each, "c") for each in arguments):
        return f"{name} -c runs whatever it is given"
    if _INTERPRETER_PATTERN.fullmatch(name) is None:
        return None
    for number, each in enumerate(arguments):
        if each in _INLINE_OPTIONS:
            return f"{name} {each} runs whatever it is given"
        if each == "-m" and name.startswith("python"):
            return _explain_python_module(arguments[number + 1 : number + 2][0:1], arguments[number + 2 :])
        if not each.startswith("-"):
            return None
    return None


def _explain_python_module(program: CommandWords, arguments: CommandWords) -> str | None:
    return _explain_changing_subcommand(program[0], arguments, "") if program else None


def _explain_changing_subcommand(name: str, arguments: CommandWords, root: str) -> str | None:
    name = re.sub(r"[\d.]+$", "", name)
    changing = _CHANGING_SUBCOMMANDS.get(name, frozenset[str]())
    first = next((each for each in arguments if not each.startswith("-")), "")
    return f"{name} {first} changes more than the files here" if first in changing else None


def _explain_risky_arguments(name: str, arguments: CommandWords, root: str) -> str | None:
    if name == "rm" and any(_has_option_letter(each, "rR") or each == "--recursive" for each in arguments):
        return "rm -r deletes whole folders"
    if name in _PERMISSION_PROGRAMS and any(
        _has_option_letter(each, "R") or each == "--recursive" for each in arguments
    ):
        return f"{name} -R changes whole folders"
    if name == "find" and any(each.startswith(("-exec", "-ok", "-delete", "-fprint")) for each in arguments):
        return "find starts programs or deletes with these options"
    if name in _WRITING_PROGRAMS and any(_is_outside_argument(each, root) for each in arguments):
        return f"{name} is given a path outside of the working directory"
    return None


def _has_option_letter(option: str, letters: str) -> bool:
    """Return whether a short option contains one of the letters: `-rf` has r and f; `--force` has none."""
    return option.startswith("-") and not option.startswith("--") and any(each in option for each in letters)


def _is_outside_argument(argument: str, root: str) -> bool:
    path = argument.partition("=")[2] if argument.startswith("-") else argument
    if path.startswith("/"):
        return not (path == root or path.startswith(f"{root}/")) or ".." in path.split("/")
    return path.startswith("~") or ".." in path.split("/")


_ELEVATION_CHECKS: Final[tuple[Callable[[str, CommandWords, str], str | None], ...]] = (
    _explain_program_name,
    _explain_inline_code,
    _explain_changing_subcommand,
    _explain_risky_arguments,
)
