"""What is known of common programs: which options neither write nor start anything.

Only what is named here counts as safe. Options are written as in a manual: `-n:` takes a value (attached, or
the next word), `--color?` may have one attached with `=`, anything else has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, Literal

from fingerpost.catalog.words import parse_word_set
from fingerpost.frozen import frozen

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
    """One program, or one of its subcommands."""

    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    operands: int = 10_000  # how many it may have
    pattern_first: bool = False  # its first operand is text to look for, not a file
    long_options: bool = False  # `-name` is one option, not four
    count: bool = False  # `-5` is a number
    paths: bool = True  # its operands are files
    operands_begin: str = ""  # what each of them begins with
    assignments: bool = True  # `NAME=value` is an operand like others
    listing: frozenset[str] = frozenset()  # operands are names to list only beside one of these
    subcommands: Mapping[str, KnownProgram] = field(default_factory=dict[str, "KnownProgram"])
    executes: bool = False  # runs files of the working directory
    writes: bool = False  # changes files of the working directory


def _define(options: str = "", **more: object) -> KnownProgram:
    return KnownProgram(options=_parse_options(options), **more)  # pyright: ignore[reportArgumentType] - fields by name


_DIFF: Final = """
    -p -u --patch --no-patch -s -U: --unified: --raw --patch-with-raw --minimal --patience --histogram
    --diff-algorithm: --stat? --compact-summary --numstat --shortstat --dirstat? --summary --name-only
    --name-status -z --color? --no-color --word-diff? --word-diff-regex: --color-words? --color-moved?
    --no-renames -M? --find-renames? -C? --find-copies? --find-copies-harder -R --exit-code --quiet
    -a --text -b -w -W --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-space-at-eol
    --inter-hunk-context: --function-context --full-index --abbrev? --binary --diff-filter: -S: -G:
    --pickaxe-all --pickaxe-regex --check --no-ext-diff --no-textconv --no-prefix --relative? -l:
    --submodule? --src-prefix: --dst-prefix: --merge-base --cached --staged
"""
_LOG: Final = """
    -n: --max-count: --skip: --since: --after: --until: --before: --author: --committer: --grep: -i -E -F -P
    --all-match --invert-grep --all --branches? --tags? --remotes? --glob: --exclude: --merges --no-merges
    --first-parent --oneline --format: --pretty? --graph --decorate? --no-decorate --follow --reverse
    --date: --relative-date --abbrev-commit --no-abbrev-commit --topo-order --date-order --author-date-order
    --left-right --left-only --right-only --cherry-pick --cherry --cherry-mark --boundary --full-history
    --simplify-by-decoration --simplify-merges --ancestry-path? --name-only -L: -m -c --cc --source
    --no-notes --parents --children --count --walk-reflogs -g --no-walk --root --use-mailmap --no-mailmap
"""
_GIT: Final[Mapping[str, KnownProgram]] = {
    "status": _define(
        "-s --short -b --branch --porcelain? --long -u? --untracked-files? --ignored? -z --show-stash "
        "--column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames"
    ),
    "log": _define(_LOG + _DIFF, count=True),
    "show": _define(_LOG + _DIFF, count=True),
    "diff": _define(_DIFF),
    "diff-tree": _define(f"{_DIFF} -r -t --root --no-commit-id --format: --pretty? --stdin -m -c --cc"),
    "rev-list": _define(f"{_LOG} --objects --disk-usage", count=True),
    "shortlog": _define(f"{_LOG} -s -n -e -c --summary --numbered --email --group:", count=True),
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

_GREP: Final = """
    -r -R -n -i -w -x -v -l -L -c -h -H -o -q -s -a -I -E -F -G -P -e: -A: -B: -C: -m: -z -b --include:
    --exclude: --exclude-dir: --recursive --line-number --ignore-case --word-regexp --line-regexp
    --invert-match --files-with-matches --files-without-match --count --only-matching --quiet --no-messages
    --text --extended-regexp --fixed-strings --perl-regexp --regexp: --after-context: --before-context:
    --context: --max-count: --color? --colour? --no-filename --with-filename --binary-files:
"""
_PYTEST: Final = """
    -q -v -vv -x -s -l --quiet --verbose --exitfirst -k: -m: -r: -n: --maxfail: --lf --last-failed --ff
    --failed-first --nf --sw --stepwise --tb: --co --collect-only --no-header --no-summary --durations:
    --showlocals --strict-markers --strict-config --disable-warnings --color: --capture: --fixtures --markers
"""
_SUMS: Final = _define("-b -c -t -w --check --quiet --status --strict --warn --tag --text --binary -z")
_COUNTING: Final = _define("-c: -n: -q -v -z --lines: --bytes: --quiet --verbose", count=True)

PROGRAMS: Final[Mapping[str, KnownProgram]] = {
    "git": KnownProgram(subcommands=_GIT),
    "ls": _define(
        "-a -A -l -h -R -r -t -S -1 -d -F -i -n -o -g -s -p -x -C -c -u -U -X -v -L -H -Q -b -q -G -B -k -m "
        "--all --almost-all --human-readable --recursive --reverse --sort: --time: --time-style: --color? "
        "--directory --full-time --group-directories-first --inode --classify? --size"
    ),
    "cat": _define("-A -b -e -E -n -s -t -T -u -v --number --number-nonblank --show-all --squeeze-blank"),
    "head": _COUNTING,
    "tail": _define(
        "-c: -n: -q -v -z -f -F -s: --lines: --bytes: --quiet --verbose --follow? --retry", count=True
    ),
    "wc": _define("-c -m -l -L -w --bytes --chars --lines --words --max-line-length"),
    "grep": _define(_GREP, pattern_first=True, count=True),
    "egrep": _define(_GREP, pattern_first=True, count=True),
    "fgrep": _define(_GREP, pattern_first=True, count=True),
    "rg": _define(
        f"{_GREP} -g: -t: -T: -S -U -u -. -N -p -0 --glob: --iglob: --type: --type-not: --smart-case "
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
    "md5sum": _SUMS,
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "cksum": _define(),
    # These change files, or run those of the folder; what is listed keeps them to the folder.
    "touch": _define("-a -c -m -h -d: -t: --no-create --date:", writes=True),
    "mkdir": _define("-p -v --parents --verbose", writes=True),
    "rmdir": _define("-p -v --parents --verbose", writes=True),
    "cp": _define("-a -f -i -n -p -r -R -u -v -T --recursive --no-clobber --update --verbose", writes=True),
    "mv": _define("-f -i -n -u -v -T --no-clobber --update --verbose", writes=True),
    "rm": _define("-f -i -v --force --verbose", writes=True),
    "pytest": _define(_PYTEST, executes=True, writes=True),
    "make": _define(
        "-j? -k -n -s -B -w --jobs? --keep-going --dry-run --silent --always-make",
        assignments=False,
        executes=True,
        writes=True,
    ),
}  # fmt: skip


def is_outside(argument: str, root: str) -> bool:
    """Whether a word names something outside of the folder, as far as its spelling tells."""
    if argument.startswith("/"):
        return not (argument == root or argument.startswith(f"{root}/")) or ".." in argument.split("/")
    return argument.startswith("~") or ".." in argument.split("/")


def find_unsafe(words: Sequence[str], root: str, *, named: frozenset[str] = frozenset()) -> str | None:
    """What of a known program's words is not known to be safe; None: nothing.

    `named`: words that the operator's rule has as they stand.
    """
    program, name, rest = PROGRAMS[words[0]], words[0], list(words[1:])
    if program.subcommands:
        if not rest or rest[0] not in program.subcommands:
            which = rest[0] if rest else "no subcommand"
            return f"{name} with {which[:60]} is not among what is known as safe"
        name, program, rest = f"{name} {rest[0]}", program.subcommands[rest[0]], rest[1:]
    reading = _CommandCheck(program, name, root, named)
    return reading.check(rest)


@frozen(kw_only=False)
class _CommandCheck:
    program: KnownProgram
    name: str
    root: str
    named: frozenset[str]

    def check(self, rest: list[str]) -> str | None:
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
        return self._check_operands(operands, given)

    def _read_option(self, word: str, rest: list[str]) -> set[str] | None:
        """The options of one word, its value taken from `rest` where that is the next word."""
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

    def _check_operands(self, operands: list[str], given: set[str]) -> str | None:
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
