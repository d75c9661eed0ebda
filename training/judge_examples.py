"""Writes the sentences that the judge of sentences is fitted to (`training/fit_judge.py`).

    python -m training.judge_examples --data FOLDER --out examples.jsonl.gz

One line for each definition: its author, whether it is poisoned, and its sentences as the judge reads them,
each with the score of the act model and a label: 1 (steers the model), 0 (does not), -1 (not known: one of
the sentences of this definition does).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.poison import CORPUS, LATER_STYLES, iterate_real

from fingerpost.catalog.act_model import load_act_model
from fingerpost.catalog.injection import read_definition
from training.fit_acts import (
    DATA,
    LICENSED,
    build_tool,
    is_span,
    iterate_lines,
    iterate_templates,
    iterate_tools,
    iterate_written,
)

WRITTEN_FIRST: Final = {"poisoned.txt": 703, "harmless.txt": 839}  # lines by the first author
Json = dict[str, Any]


class Example(NamedTuple):
    """A definition by an author, with the texts in it that steer the model if they are known."""

    author: str
    poisoned: bool
    server: str
    definition: Json
    spans: tuple[str, ...] = ()


def iterate_corpus() -> Iterator[Example]:
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        style = row["style"] if row["style"] in LATER_STYLES else "own"
        author = f"{style}{'-held-out' if row['held_out'] else ''}"
        definition = row["definition"] | (
            {"instructions": row["instructions"]} if "instructions" in row else {}
        )
        yield Example(author, row["poisoned"], row["server"], definition, tuple(row.get("spans", ())))


def iterate_placed(carriers: list[tuple[str, Json]], rng: random.Random) -> Iterator[Example]:
    """Yield our sentences and templates, each put into a real tool as one more sentence."""
    for poisoned, file in ((True, "poisoned.txt"), (False, "harmless.txt")):
        for number, text in enumerate(iterate_lines(file)):
            author = "written" if number < WRITTEN_FIRST[file] else "written-by-others"
            yield _place(author, poisoned, text, carriers, rng)
    for poisoned, file, mark in (
        (True, "poisoned-templates.txt", ""),
        (True, "poisoned-parameter-templates.txt", "P: "),
        (False, "harmless-templates.txt", ""),
    ):
        for text in iterate_templates(file, 6, rng):
            yield _place("made", poisoned, mark + text, carriers, rng)


def _place(
    author: str,
    poisoned: bool,
    text: str,
    carriers: list[tuple[str, Json]],
    rng: random.Random,
) -> Example:
    server, tool = rng.choice(carriers)
    opening = (tool["description"].strip().split(". ")[0][:200] or tool["name"]).rstrip(".") + "."
    if text.startswith("P: "):
        text = text[3:]
        made = build_tool(opening, text, rng.choice(("note", "value", "extra", "ctx", "meta", "reason")))[1]
    elif rng.random() < 0.12:
        made = build_tool(opening, text, rng.choice(("note", "value", "extra", "input")))[1]
    else:
        made = build_tool(f"{opening} {text}")[1]
    return Example(author, poisoned, server, made | {"name": tool["name"]}, (text,) if poisoned else ())


def write_example(example: Example) -> Json:
    sentences = list(read_definition(example.server, example.definition))
    scores = load_act_model().score([one.read for one in sentences]) if sentences else []
    rows: list[Any] = []
    for one, score in zip(sentences, scores, strict=True):
        label = -1 if example.poisoned else 0
        if example.spans:
            label = int(is_span(one.text, example.spans))
        rows.append((one.write_for_judge(), label, round(score, 2)))
    return {"author": example.author, "poisoned": example.poisoned, "sentences": rows}


def iterate_examples(data: Path) -> Iterator[Example]:
    rng = random.Random(1)
    ours = list(iterate_tools(sorted(DATA.glob("tools-*.jsonl"))))
    licensed = list(iterate_tools(data / name / "tools.jsonl" for name in LICENSED))
    yield from iterate_corpus()
    for one in iterate_written():
        yield Example(*one)
    yield from iterate_placed([*ours, *licensed], rng)
    seen = set[str]()
    for name, tools in (("ours", ours), ("licensed", licensed)):
        for server, tool in tools:
            text = json.dumps(tool, sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield Example(name, poisoned=False, server=server, definition=tool)
    for name, server, tool in iterate_real(data):
        if name not in LICENSED:
            yield Example(f"real-{name}", poisoned=False, server=server, definition=tool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with gzip.open(options.out, "wt", encoding="utf-8") as file:
        for example in iterate_examples(options.data):
            file.write(json.dumps(write_example(example), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
