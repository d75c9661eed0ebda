"""The labelled tools of `labelled_tools.json`, and how often their effects are judged wrongly.

`python -m tests.catalog.certainty` prints the figures of docs/concepts/catalog.md. The servers that are
held out were chosen before the rules were written: every third by name; of our own inventions
every third tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fingerpost.records import Effect, Json, Listing, ToolCard
from tests.kit.catalogs import catalog

_SET = Path(__file__).with_name("labelled_tools.json")
_INVENTED = ("hard-names", "hard-reads")
_KINDS = {"array", "boolean", "integer", "number", "object", "string"}


class LabelledTool(NamedTuple):
    """One definition with the effect a careful person gives it."""

    server: str
    definition: dict[str, Json]
    reads: bool
    held_out: bool
    invented: bool
    package: str | None


class CertaintyFigures(NamedTuple):
    """What was judged of some tools."""

    reads: int
    asking: list[str]  # reads that are not certain
    acts: int
    unasked: list[str]  # what acts, and is taken for a certain read

    @property
    def share(self) -> float:
        """The share of the reads that ask."""
        return len(self.asking) / self.reads if self.reads else 0.0


def read_labelled_tools() -> Iterator[LabelledTool]:
    for server, entry in json.loads(_SET.read_text(encoding="utf-8")).items():
        invented = server in _INVENTED
        for number, tool in enumerate(entry["tools"]):
            held_out = number % 3 == 2 if invented else entry["held_out"]
            reads = tool["effect"] == "read"
            yield LabelledTool(server, build_definition(tool), reads, held_out, invented, entry["package"])


def measure(*, held_out: bool, invented: bool, known: bool = True) -> CertaintyFigures:
    """How this part of the set is judged; `known`: with what is shipped about servers, by their package."""
    reads = acts = 0
    asking: list[str] = []
    unasked: list[str] = []
    for tool in read_labelled_tools():
        if (tool.held_out, tool.invented) != (held_out, invented):
            continue
        origin = Listing(
            server=tool.server, definitions=(tool.definition,), package=tool.package if known else None
        )
        (judged,) = catalog(origin).snapshot.cards
        reads, acts = reads + tool.reads, acts + (not tool.reads)
        runs = judged.effect.value is Effect.READ and judged.certain
        if tool.reads and not runs:
            asking.append(_line(judged))
        if runs and not tool.reads:
            unasked.append(_line(judged))
    return CertaintyFigures(reads, asking, acts, unasked)


def _line(judged: ToolCard) -> str:
    return f"{judged.key}: {judged.effect.value}, {judged.effect.reason}; {judged.doubt}"


def build_definition(tool: dict[str, Json]) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    for parameter in str(tool["parameters"]).split():
        name, _, choices = parameter.partition("=")
        name, _, kind = name.partition(":")
        schema: dict[str, Json] = {"type": kind if kind in _KINDS else "string"}
        properties[name] = {**schema, "enum": [*choices.split("|")]} if choices else schema
    made: dict[str, Json] = {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": {"type": "object", "properties": properties},
    }
    if "readOnlyHint" in tool:
        made["annotations"] = {"readOnlyHint": tool["readOnlyHint"]}
    return made


def main() -> None:
    """Print the figures, and the tools behind them."""
    for invented in (False, True):
        for held_out in (False, True):
            found = measure(held_out=held_out, invented=invented)
            words = measure(held_out=held_out, invented=invented, known=False)
            part = f"{'invented' if invented else 'real'}, {'held out' if held_out else 'development'}"
            print(  # noqa: T201
                f"{part}: {len(found.unasked)} of {found.acts} that act run unasked; "
                f"{len(found.asking)} of {found.reads} reads ask ({found.share:.1%}); "
                f"by their words alone {len(words.unasked)} and {len(words.asking)}"
            )
            if not held_out:
                print(*found.unasked, "--", *found.asking, sep="\n    ")  # noqa: T201


if __name__ == "__main__":
    main()
