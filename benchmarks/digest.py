"""What the digest keeps and costs: kinds of results in several sizes, and needles to be found again.

A needle is a fact somewhere in the middle of a long result, with the request that
asks for it. `kept` says in how many digests the fact is still there; `unasked` says
the same when the request is not known, to show what the request is worth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from fingerpost.call.digest import build_digest, count_tokens
from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.records import Json, JsonObject, Listing, ToolCard

BUDGET = 1_000
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
SEARCHED = (20_000, 1_000_000)
PLACES = (0.2, 0.5, 0.8)

# A request, and the fact it asks for.
NEEDLES = (
    ("When does the city library open?", "The city library opens at 08:45."),
    ("What is the phone number of Dana Levi?", "Dana Levi can be called at 555-0147."),
    ("How much did the red bicycle cost?", "The red bicycle cost 1,290 shekels."),
    ("Why did the payment to Acme fail?", "Payment to Acme failed: card expired."),
    ("Which version fixed the memory leak?", "The memory leak was fixed in version 4.2.1."),
    ("מהן שעות הפתיחה של המוזיאון?", "המוזיאון פתוח בין עשר לשש."),
    ("מי המנהלת של בית הספר?", "מנהלת בית הספר היא רות כהן."),
)
FILLER = (
    "The river runs past the old mill and the market.",
    "Several people were asked and gave different answers.",
    "In the evening the lamps along the road are lit.",
    "Nothing of note was reported from the other districts.",
    "העיר גדלה בשנים האחרונות ונבנו בה רחובות חדשים.",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of result: how one of about `size` characters is made around a fact."""

    name: str
    make: Callable[[int, str, float], str]


def sentences(size: int, fact: str, place: float) -> list[str]:
    count = max(10, size // 50)
    lines = [FILLER[number % len(FILLER)] for number in range(count)]
    lines[int(count * place)] = fact
    return lines


def records(size: int, fact: str, place: float) -> str:
    items: list[Json] = [
        {"id": number, "text": line, "tags": ["a", "b"]}
        for number, line in enumerate(sentences(size // 2, fact, place))
    ]
    return json.dumps({"total": len(items), "items": items}, ensure_ascii=False)


def table(size: int, fact: str, place: float) -> str:
    rows = [f'{number},"{line}",{number * 7}' for number, line in enumerate(sentences(size, fact, place))]
    return "id,note,price\n" + "\n".join(rows)


def log(size: int, fact: str, place: float) -> str:
    return "\n".join(
        f"2025-01-01 10:{number % 60:02}:00 INFO {line}"
        for number, line in enumerate(sentences(size, fact, place))
    )


def page(size: int, fact: str, place: float) -> str:
    body = "".join(f"<div class='row'><p>{line}</p></div>" for line in sentences(size // 2, fact, place))
    return f"<!doctype html><html><head><title>A page</title></head><body>{body}</body></html>"


KINDS = (
    Kind("JSON records", records),
    Kind("CSV table", table),
    Kind("log", log),
    Kind("prose, one line", lambda size, fact, place: " ".join(sentences(size, fact, place))),
    Kind("text in lines", lambda size, fact, place: "\n".join(sentences(size, fact, place))),
    Kind("web page", page),
)


def tool() -> ToolCard:
    catalog = Catalog(events=MemorySink())
    definition: JsonObject = {"name": "get_things", "inputSchema": {"type": "object"}}
    catalog.replace_server(Listing(server="bench", definitions=(definition,)))
    return catalog.snapshot.cards[0]


def result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}]}


def costs(card: ToolCard) -> Table:
    shown = Table(title=f"Digests within {BUDGET:,} tokens (wall clock, one run)")
    for column in ("kind", "characters", "tokens before", "after", "budget", "ms"):
        shown.add_column(column, justify="left" if column == "kind" else "right")
    request, fact = NEEDLES[0]
    for kind in KINDS:
        for size in SIZES:
            text = kind.make(size, fact, 0.5)
            begin = time.perf_counter()
            made = build_digest(result(text), card, budget=BUDGET, request=request)
            milliseconds = (time.perf_counter() - begin) * 1e3
            assert made.tokens == count_tokens(made.text) <= BUDGET
            shown.add_row(
                kind.name,
                f"{len(text):,}",
                f"{made.original_tokens:,}",
                f"{made.tokens:,}",
                f"{BUDGET:,}",
                f"{milliseconds:.1f}",
            )
    return shown


def measure_kept_share(card: ToolCard, kind: Kind, size: int, *, asked: bool) -> float:
    """The share of needles that are still there."""
    found = [
        fact
        in build_digest(
            result(kind.make(size, fact, place)), card, budget=BUDGET, request=request if asked else ""
        ).text
        for request, fact in NEEDLES
        for place in PLACES
    ]
    return sum(found) / len(found)


def facts(card: ToolCard) -> Table:
    shown = Table(
        title=f"Share of facts kept ({len(NEEDLES)} requests, {len(PLACES)} places each, {BUDGET:,} tokens)"
    )
    for column in ("kind", "characters", "kept", "unasked"):
        shown.add_column(column, justify="left" if column == "kind" else "right")
    for kind in KINDS:
        for size in SEARCHED:
            shown.add_row(
                kind.name,
                f"{size:,}",
                f"{measure_kept_share(card, kind, size, asked=True):.0%}",
                f"{measure_kept_share(card, kind, size, asked=False):.0%}",
            )
    return shown


def run() -> None:
    console = Console()
    card = tool()
    console.print(costs(card))
    console.print(facts(card))
