"""Code blocks of the documentation, found and made comparable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import dedent

from tests.kit.programs import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Blocks may stand in a list, indented.
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: where it stands, its language, its text."""

    page: str
    line: int
    language: str
    body: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block and the output shown under it."""

    command: str
    expected: tuple[str, ...]


def blocks(*languages: str) -> list[Block]:
    """Every block of these languages in the documentation."""
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start()) + 1
                body = dedent(match["body"])
                found.append(Block(str(page.relative_to(ROOT)), line, match["language"], body))
    return found


def steps(block: Block) -> list[Step]:
    """The commands (`$ …`) of a console block, each with the output shown for it."""
    made: list[Step] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            made.append(Step(line[2:], ()))
        elif made:
            made[-1] = Step(made[-1].command, (*made[-1].expected, line))
    return made


def matches(expected: tuple[str, ...], actual: str) -> bool:
    """Whether the output is as shown. `…` stands for anything: within a line, or as a line for any lines.

    White space is folded and empty lines are passed over, so that a narrower
    terminal or a longer name does not make the documentation wrong.
    """
    return _match(_fold_lines(expected), _fold_lines(actual.splitlines()))


def _fold_lines(lines: Iterable[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines if line.strip()]


def _match(shown: list[str], printed: list[str]) -> bool:
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(_match(shown[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and _line_matches(shown[0], printed[0]) and _match(shown[1:], printed[1:])


def _line_matches(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in shown.split("…")), printed) is not None
