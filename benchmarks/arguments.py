"""How many broken calls are put right, and how many wrongly.

Correct calls are broken in the ways models break them, then prepared. Right
means: accepted, with exactly the arguments of the correct call. Refused means:
an error for the model. Wrong means: accepted with other arguments, the one
thing that must not happen. `python -m benchmarks.arguments FOLDER` takes calls
from `tools.jsonl` and `queries.jsonl` in the folder or in folders within it;
without a folder it takes the few of `benchmarks/data/calls.json`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from benchmarks.renames import RENAMES
from fingerpost.call.arguments import PreparedArguments, prepare_arguments
from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.records import Json, Listing, ToolCard

OWN = Path(__file__).parent / "data" / "calls.json"
SEED = 20_240_305
Arguments = dict[str, Any]
Break = Callable[[Arguments, dict[str, Any], random.Random], Arguments | None]


@dataclass(frozen=True, slots=True)
class Gold:
    """A correct call."""

    card: ToolCard
    schema: dict[str, Any]
    arguments: Arguments


def gold_from(folder: Path) -> list[Gold]:
    """The calls of one folder that fit their tool's schema as they are."""
    tools = {tool["id"]: tool for tool in _lines(folder / "tools.jsonl")}
    found: list[Gold] = []
    cards: dict[str, ToolCard] = {}
    for query in _lines(folder / "queries.jsonl"):
        for call in cast("list[dict[str, Any]]", query.get("calls") or []):
            tool = tools.get(call["tool"])
            if tool is None or not isinstance(call["args"], dict):
                continue
            if call["tool"] not in cards:
                cards[call["tool"]] = card_of(tool)
            chosen = query.get("args_format") == "any_of"
            written = cast("Arguments", call["args"])
            arguments = _first_accepted(written) if chosen else written
            found.append(Gold(cards[call["tool"]], tool["input_schema"], arguments))
    return [gold for gold in found if _is_correct(gold)]


def _is_correct(gold: Gold) -> bool:
    """Some sources' own calls name parameters their tools do not have, or values they do not take."""
    known = gold.schema.get("properties", {})
    return (
        gold.arguments.keys() <= known.keys()
        and prepare_arguments(gold.card, gold.arguments, repair=False).ok
    )


def gold_of_ours() -> list[Gold]:
    entries = json.loads(OWN.read_text(encoding="utf-8"))
    found: list[Gold] = []
    for entry in entries:
        card = card_of(entry)
        found.extend(Gold(card, entry["input_schema"], arguments) for arguments in entry["calls"])
    return found


def card_of(tool: dict[str, Any]) -> ToolCard:
    catalog = Catalog(events=MemorySink())
    definition = {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["input_schema"],
    }
    catalog.replace_server(Listing(server="bench", definitions=(definition,)))
    (card,) = catalog.snapshot.cards
    return card


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _first_accepted(options: dict[str, Any]) -> Arguments:
    """Of the accepted values of each parameter the first; an empty text means: may be left out."""
    chosen: Arguments = {}
    for name, values in options.items():
        accepted = cast("list[Any]", values if isinstance(values, list) else [values])
        given = [value for value in accepted if value != ""]
        if given:
            chosen[name] = _unfold(given[0])
    return chosen


def _unfold(value: Any) -> Any:
    """Within an object, too, every value is a list of accepted ones."""
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    return _first_accepted(entries) if all(isinstance(entry, list) for entry in entries.values()) else entries


# The ways to break a call. Each gives None when the call offers nothing to break in that way.


def _each(arguments: Arguments, schema: dict[str, Any], change: Callable[[Any], Any]) -> Arguments | None:
    """Change the values whose type the schema tells: any other value would still be correct."""
    parts = schema.get("properties", {})
    typed = {name for name, part in parts.items() if "type" in part}
    broken = {name: change(value) if name in typed else value for name, value in arguments.items()}
    return broken if json.dumps(broken) != json.dumps(arguments) else None


def text_for_number(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    def change(value: Any) -> Any:
        return json.dumps(value) if isinstance(value, bool | int | float) else value

    broken = _each(arguments, schema, change) or dict(arguments)
    for name, value in arguments.items():
        kind = schema["properties"][name].get("items", {}).get("type")
        if isinstance(value, list) and kind in ("integer", "number", "boolean"):
            broken[name] = [change(item) for item in cast("list[Any]", value)]
    return broken if json.dumps(broken) != json.dumps(arguments) else None


def number_for_text(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    def change(value: Any) -> Any:
        for read in (int, float):
            try:
                number = read(value) if isinstance(value, str) else None
            except ValueError:
                continue
            if number is not None and json.dumps(number) == value:
                return number
        return value

    return _each(arguments, schema, change)


def other_case(arguments: Arguments, _: dict[str, Any], chance: random.Random) -> Arguments | None:
    broken = {_restyle(name, chance.randrange(4)): value for name, value in arguments.items()}
    return broken if broken.keys() != arguments.keys() and len(broken) == len(arguments) else None


def _restyle(name: str, style: int) -> str:
    parts = "".join(f" {letter}" if letter.isupper() else letter for letter in name)
    words = parts.replace("_", " ").replace("-", " ").split()
    if not words or any(len(word) == 1 for word in words[1:]):
        return name.upper() if style % 2 else name
    match style:
        case 0:
            return words[0].lower() + "".join(word.capitalize() for word in words[1:])
        case 1:
            return "_".join(word.lower() for word in words)
        case 2:
            return "-".join(word.lower() for word in words)
        case _:
            return "".join(word.capitalize() for word in words)


def synonym_keys(arguments: Arguments, schema: dict[str, Any], chance: random.Random) -> Arguments | None:
    taken = {*schema.get("properties", {}), *arguments}
    broken: Arguments = {}
    for name, value in arguments.items():
        others = [
            other for other in RENAMES.get(name.lower(), ()) if other not in taken and other not in broken
        ]
        broken[chance.choice(others) if others else name] = value
    return broken if broken.keys() != arguments.keys() and len(broken) == len(arguments) else None


def json_as_text(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    return _each(
        arguments, schema, lambda value: json.dumps(value) if isinstance(value, dict | list) else value
    )


def one_for_list(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    def change(value: Any) -> Any:
        items = cast("list[Any]", value)
        return items[0] if isinstance(value, list) and len(items) == 1 else items

    return _each(arguments, schema, change)


def list_for_one(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    def change(value: Any) -> Any:
        return cast("Any", value) if isinstance(value, dict | list) else [value]

    return _each(arguments, schema, change)


def enum_case(arguments: Arguments, schema: dict[str, Any], chance: random.Random) -> Arguments | None:
    broken = dict(arguments)
    for name, value in arguments.items():
        choices = schema.get("properties", {}).get(name, {}).get("enum")
        if choices and isinstance(value, str):
            styles = (
                value.upper(),
                value.lower(),
                value.capitalize(),
                value.replace("_", " "),
                value.replace(" ", "-"),
            )
            broken[name] = chance.choice(styles)
    changed = (
        any(
            broken[name] != value and broken[name] not in schema["properties"][name]["enum"]
            for name, value in arguments.items()
        )
        if broken != arguments
        else False
    )
    return broken if changed else None


def default_left_out(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    properties = schema.get("properties", {})
    broken = {
        name: value
        for name, value in arguments.items()
        if "default" not in properties.get(name, {}) or properties[name]["default"] != value
    }
    return broken if broken != arguments else None


def too_deep(arguments: Arguments, _: dict[str, Any], chance: random.Random) -> Arguments | None:
    return (
        {chance.choice(("arguments", "input", "params", "args", "parameters")): arguments}
        if arguments
        else None
    )


def extra_nulls(arguments: Arguments, schema: dict[str, Any], _: random.Random) -> Arguments | None:
    required = schema.get("required", [])
    parts = schema.get("properties", {})
    unused = [name for name in parts if {name} - {*arguments, *required} and "type" in parts[name]]
    return {**arguments, **dict.fromkeys(unused), "extra_notes": None}


def slip_of_the_pen(arguments: Arguments, schema: dict[str, Any], chance: random.Random) -> Arguments | None:
    long = [name for name in arguments if len(name) > 5 and name in schema.get("required", [])]
    if not long:
        return None
    name = chance.choice(long)
    place = chance.randrange(1, len(name) - 2)
    slipped = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return (
        None
        if slipped == name or slipped in arguments
        else {(slipped if key == name else key): value for key, value in arguments.items()}
    )


def several(arguments: Arguments, schema: dict[str, Any], chance: random.Random) -> Arguments | None:
    """Other case, numbers as text, lists as text, and one level too deep, all in one call."""
    broken = arguments
    for way in (json_as_text, text_for_number, other_case, too_deep):
        broken = way(broken, schema, chance) or broken
    return broken if broken != arguments else None


def keep_arguments(arguments: Arguments, _: dict[str, Any], __: random.Random) -> Arguments | None:
    return arguments


WAYS: dict[str, Break] = {
    "text for a number or boolean": text_for_number,
    "number for a text": number_for_text,
    "keys in another case": other_case,
    "synonyms for keys": synonym_keys,
    "JSON text for object or list": json_as_text,
    "one value for a list": one_for_list,
    "a list for one value": list_for_one,
    "enum in another case": enum_case,
    "defaults left out": default_left_out,
    "one level too deep": too_deep,
    "extra null keys": extra_nulls,
    "a slip of the pen in a key": slip_of_the_pen,
    "several at once": several,
    "(nothing broken)": keep_arguments,
}


def judge(gold: Gold, prepared: PreparedArguments) -> str:
    if not prepared.ok:
        return "refused"
    parts = cast("dict[str, dict[str, Any]]", gold.schema.get("properties", {}))
    defaults: Arguments = {name: part["default"] for name, part in parts.items() if "default" in part}
    meant: Arguments = {**defaults, **gold.arguments}
    made: Arguments = {**defaults, **prepared.arguments}
    return "right" if _equal(meant, made) else "wrong"


def _equal(one: Json, other: Json) -> bool:
    return json.dumps(_bare(one), sort_keys=True) == json.dumps(_bare(other), sort_keys=True)


def _bare(value: Any) -> Any:
    """Whole floats as integers: JSON does not tell them apart."""
    if isinstance(value, dict):
        return {key: _bare(entry) for key, entry in cast("Arguments", value).items()}
    if isinstance(value, list):
        return [_bare(item) for item in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, slots=True)
class Verdict:
    """One broken call and what became of it."""

    way: str
    outcome: str
    gold: Gold
    broken: Arguments
    prepared: PreparedArguments


def verdicts(golds: list[Gold]) -> Iterator[Verdict]:
    for way, break_ in WAYS.items():
        chance = random.Random(SEED)
        for gold in golds:
            broken = break_(gold.arguments, gold.schema, chance)
            if broken is not None:
                prepared = prepare_arguments(gold.card, broken)
                yield Verdict(way, judge(gold, prepared), gold, broken, prepared)


def report(source: str, golds: list[Gold], console: Console) -> None:
    counts: dict[str, Counter[str]] = {way: Counter() for way in WAYS}
    for verdict in verdicts(golds):
        counts[verdict.way][verdict.outcome] += 1
    table = Table(title=f"Broken arguments put right: {source}, {len(golds)} calls")
    for column in ("how they were broken", "calls", "right", "refused", "wrong"):
        table.add_column(column, justify="left" if column == "how they were broken" else "right")
    for way, count in counts.items():
        _row(table, way, count)
    broken = [count for way, count in counts.items() if way != "(nothing broken)"]
    _row(table, "all broken", sum(broken, Counter[str]()))
    console.print(table)


def _row(table: Table, name: str, count: Counter[str]) -> None:
    total = sum(count.values())
    shares = [f"{100 * count[each] / total:.1f} %" if total else "–" for each in ("right", "refused")]
    wrong = f"{count['wrong']} ({100 * count['wrong'] / total:.2f} %)" if total else "–"
    table.add_row(name, str(total), *shares, wrong)


def timings(golds: list[Gold], console: Console) -> None:
    """Time of one `prepare`, compiled schemas at hand, as in a running router."""
    table = Table(title="Preparing one call")
    for column in ("what", "calls", "median µs", "90th percentile µs"):
        table.add_column(column, justify="left" if column == "what" else "right")
    chance = random.Random(SEED)
    sample = chance.sample(golds, min(len(golds), 400))
    broken = [(gold, several(gold.arguments, gold.schema, chance)) for gold in sample]
    cases = {
        "correct": [(gold, gold.arguments) for gold in sample],
        "broken in several ways": [(gold, call) for gold, call in broken if call is not None],
    }
    for name, calls in cases.items():
        taken = sorted(_microseconds(gold, call) for gold, call in calls)
        table.add_row(name, str(len(taken)), f"{median(taken):.0f}", f"{taken[int(len(taken) * 0.9)]:.0f}")
    console.print(table)


def _microseconds(gold: Gold, arguments: Arguments) -> float:
    prepare_arguments(gold.card, arguments)  # compiled once per tool: not counted
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter_ns()
        prepare_arguments(gold.card, arguments)
        best = min(best, (time.perf_counter_ns() - began) / 1000)
    return best


def sources(data: Path | None) -> dict[str, list[Gold]]:
    if data is None:
        return {"our own": gold_of_ours()}
    folders = [folder for folder in (data, *sorted(data.iterdir())) if (folder / "queries.jsonl").is_file()]
    found = {folder.name: gold_from(folder) for folder in folders}
    return {name: golds for name, golds in found.items() if golds}


def run(data: Path | None = None) -> None:
    console = Console()
    everything = sources(data)
    for name, golds in everything.items():
        report(name, golds, console)
    timings([gold for golds in everything.values() for gold in golds], console)


if __name__ == "__main__":
    run(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
