"""How well the data labels of tools are inferred: precision and recall of each on a labelled set.

The set is `tests/catalog/labelled_tools.json`: definitions of public servers with the labels a careful person
gives them. Every third server is held out: of these only the totals are printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from tests.catalog.certainty import build_definition

from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.records import DataLabel, Listing, ToolCard

_SET = Path(__file__).parents[1] / "tests" / "catalog" / "labelled_tools.json"


class LabelFigures(NamedTuple):
    """How one label was inferred for some tools."""

    right: int
    wrong: list[str]  # inferred, but not so
    missed: list[str]

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + len(self.missed))


def read_tools(*, held_out: bool) -> Iterator[tuple[ToolCard, frozenset[str]]]:
    """Yield the card of each labelled tool of this part, and its true labels."""
    for server, entry in json.loads(_SET.read_text(encoding="utf-8")).items():
        if entry["held_out"] is not held_out:
            continue
        for tool in entry["tools"]:
            if "labels" not in tool:
                continue
            catalog = Catalog(events=MemorySink())
            catalog.replace_server(
                Listing(server=server, definitions=(build_definition(tool),), package=entry["package"])
            )
            yield catalog.snapshot.cards[0], frozenset(tool["labels"].split())


def measure(*, held_out: bool) -> dict[DataLabel, LabelFigures]:
    """Compare the inferred labels with the true ones for every tool of this part."""
    figures = {label: LabelFigures(0, [], []) for label in DataLabel}
    for card, labels in read_tools(held_out=held_out):
        for label, (right, wrong, missed) in figures.items():
            match card.has(label), label.value in labels:
                case True, True:
                    figures[label] = LabelFigures(right + 1, wrong, missed)
                case True, False:
                    wrong.append(f"{card.key}: {card.get_label(label).reason}")
                case False, True:
                    missed.append(f"{card.key}: {card.description[:60]}")
                case _:
                    pass
    return figures


def run() -> None:
    """Print the figures of both parts, and what is wrong in the part for development."""
    console = Console()
    table = Table("part", "tools", "label", "has it", "precision", "recall", title="data labels")
    for held_out in (False, True):
        tools = sum(1 for _ in read_tools(held_out=held_out))
        for label, found in measure(held_out=held_out).items():
            table.add_row(
                "held out" if held_out else "development",
                str(tools),
                label.value,
                str(found.right + len(found.missed)),
                f"{found.precision:.3f}",
                f"{found.recall:.3f}",
            )
    console.print(table)
    for label, found in measure(held_out=False).items():
        for title, lines in (("wrong", found.wrong), ("missed", found.missed)):
            console.print(f"{label} {title} (development):", *lines, sep="\n  ", soft_wrap=True, markup=False)


if __name__ == "__main__":
    run()
