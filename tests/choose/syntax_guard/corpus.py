"""The corpora: what models invent, and ordinary text that comes as near to it as it can."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from fingerpost.choose.syntax_guard.scanner import SyntaxGuard
from fingerpost.records import JsonObject
from tests.kit.catalogs import card, tool

_HERE = Path(__file__).parent
# Names of every kind: distinctive ones, and words that ordinary text is full of.
TOOLS = tuple(
    card(tool(name), server=server)
    for server, name in (
        ("weather", "get_weather"),
        ("files", "read_file"),
        ("files", "write_file"),
        ("web", "search"),
        ("mail", "send_email"),
        ("clock", "current_time"),
        ("calendar", "create_event"),
        ("memory", "search_memory"),
        ("home", "run"),
        ("home", "update"),
    )
)
GUARD = SyntaxGuard(TOOLS)
SYNTAX = "What does the syntax of a tool call look like?"
REQUESTS = ("", SYNTAX, "Give me the JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSample:
    """One text, what may be shown of it, and the call it hides, if that names a real tool."""

    text: str
    clean: str
    syntax: str = ""
    tool: str | None = None
    arguments: JsonObject | None = None
    request: str = ""  # what the text answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """An answer that is a call or what was asked for, which no rule found so far can tell."""

    kind: str  # "word": JSON under one everyday word; "run": "Run:" and a block with one call
    call: bool
    part: str  # "first", "held out", and "fresh": written after the rules that were tried
    text: str
    request: str


def read_invented_samples() -> tuple[GuardSample, ...]:
    names = ("invented", "invented_held_out", "unknown_tools", "unknown_tools_held_out")
    return tuple(chain.from_iterable(map(_read, names)))


def ordinary() -> tuple[GuardSample, ...]:
    names = ("ordinary", "ordinary_held_out", "shown_data", "shown_data_held_out")
    return tuple(chain.from_iterable(map(_read, names)))


def read_undecided() -> tuple[Undecided, ...]:
    lines = (_HERE / "undecided.jsonl").read_text("utf-8").splitlines()
    return tuple(Undecided(**json.loads(line)) for line in lines)


def _read(name: str) -> tuple[GuardSample, ...]:
    lines = (_HERE / f"{name}.jsonl").read_text("utf-8").splitlines()
    return tuple(_sample(json.loads(line)) for line in lines)


def _sample(entry: dict[str, Any]) -> GuardSample:
    return GuardSample(**{"clean": entry["text"], **entry})
