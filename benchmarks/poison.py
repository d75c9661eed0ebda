"""How well poisoned definitions are found: recall and false positives on a corpus, and on real definitions.

The corpus is `tests/catalog/poison_corpus.jsonl`, written for this before the rules; a third is held out, of
which only totals are printed. "New wordings" were written later, before the act model was fitted. With
`--data FOLDER` the real definitions of the public sets there are scanned, too: they are only counted.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from fingerpost.catalog.injection import (
    build_look_alike_finding,
    is_look_alike,
    scan_definition,
    scan_instructions,
)
from fingerpost.narrow.sentence_judge import judge_in_this_process
from fingerpost.records import DefinitionFinding, Severity

CORPUS = Path(__file__).parents[1] / "tests" / "catalog" / "poison_corpus.jsonl"


class ScanFigures(NamedTuple):
    """What was found in one part of the corpus."""

    poisoned: int
    missed: list[str]
    harmless: int
    wrong: list[str]

    @property
    def recall(self) -> float:
        return 1 - len(self.missed) / max(1, self.poisoned)

    @property
    def false_positives(self) -> float:
        return len(self.wrong) / max(1, self.harmless)


def scan_row(row: dict[str, Any]) -> tuple[DefinitionFinding, ...]:
    """Return the findings for one row of the corpus."""
    found = scan_definition(row["server"], row["definition"], judge_in_this_process)
    if "instructions" in row:
        found += scan_instructions(row["server"], row["instructions"], judge_in_this_process)
    name = row["definition"]["name"]
    alike = [key for key in row.get("others", ()) if is_look_alike(name, key.partition("/")[2])]
    return (*found, *(build_look_alike_finding(name, key) for key in alike))


# Parts of the corpus by style: new wordings of the rules' author, and definitions by others.
LATER_STYLES: Final = {
    "fresh": "new wordings",
    "outside": "by others",
    "examiner": "by one more author",
    "examiners": "by two more authors",
    "auditors": "by two later authors",
    "pages": "long pages by one more",
    "short": "short ones by one more",
    "blunt": "blunt ones by one more",
    "balanced": "all kinds by one more",
}


def measure(*, held_out: bool, style: str = "", every: int = 1) -> ScanFigures:
    """Scan this part of the corpus: one of `LATER_STYLES`, or all other definitions. `every` 3 is a third."""
    missed: list[str] = []
    wrong: list[str] = []
    counts = Counter[bool]()
    rows = map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
    part = (
        row
        for row in rows
        if row["held_out"] is held_out and (row["style"] if row["style"] in LATER_STYLES else "") == style
    )
    for row in islice(part, None, None, every):
        counts[row["poisoned"]] += 1
        found = scan_row(row)
        key = f"{row['style']} {row['server']}/{row['definition']['name']}"
        if row["poisoned"] and not found:
            missed.append(f"{key}: {json.dumps(row, ensure_ascii=False)[60:420]}")
        if found and not row["poisoned"]:
            wrong.append(f"{key}: {[(each.reason, each.words, each.where) for each in found]}")
    return ScanFigures(counts[True], missed, counts[False], wrong)


def iterate_real(data: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield set, server and definition of every distinct real tool below this folder."""
    for file in sorted(data.glob("*/tools.jsonl")):
        seen = set[str]()
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            definition: dict[str, Any] = {
                "name": row["name"],
                "description": row["description"] or "",
                "inputSchema": row["input_schema"] or {},
            }
            text = json.dumps([row["server"], definition], sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield file.parent.name, str(row["server"]), definition


def run(data: Path | None = None) -> None:
    """Print recall, false positives, what is quarantined of real definitions, and the time a tool takes."""
    console = Console()
    table = Table("part", "poisoned", "recall", "harmless", "false positives", title="poisoned definitions")
    for style, held_out in product(("", *LATER_STYLES), (False, True)):
        found = measure(held_out=held_out, style=style)
        if not found.poisoned:
            continue
        table.add_row(
            ", ".join(filter(None, (LATER_STYLES.get(style), "held out" if held_out else "development"))),
            str(found.poisoned),
            f"{found.recall:.3f}",
            str(found.harmless),
            f"{found.false_positives:.3f}",
        )
    console.print(table)
    for style in ("", *LATER_STYLES):
        found = measure(held_out=False, style=style)
        for title, lines in (("missed", found.missed), ("wrong", found.wrong)):
            console.print(f"{title} (development):", *lines, sep="\n  ", soft_wrap=True, markup=False)
    if data is not None:
        _run_real(console, data)


def _run_real(console: Console, data: Path) -> None:
    tools, held, warned = Counter[str](), Counter[str](), Counter[str]()
    started = time.process_time()
    for group, server, definition in iterate_real(data):
        severities = {each.severity for each in scan_definition(server, definition, judge_in_this_process)}
        tools[group] += 1
        held[group] += Severity.SERIOUS in severities
        warned[group] += severities == {Severity.WARNING}
    seconds = time.process_time() - started
    table = Table("set", "definitions", "quarantined", "warned", title="real definitions")
    for group, count in tools.items():
        table.add_row(group, str(count), str(held[group]), str(warned[group]))
    total = tools.total()
    table.add_row("all", str(total), f"{held.total()} ({held.total() / total:.2%})", str(warned.total()))
    console.print(table)
    console.print(f"{1000 * seconds / total:.3f} ms of CPU per definition")


if __name__ == "__main__":
    run()
