"""Evaluation sets: records, file formats, catalogs of their tools, sets of an operator's own requests."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from fingerpost.catalog import Catalog, Snapshot, build_tool_key, escape_invisible_except
from fingerpost.errors import ConfigError
from fingerpost.events import MemorySink
from fingerpost.frozen import frozen
from fingerpost.records import Choice, DroppedTool, Json, JsonObject, Listing, Message, Narrowing, ToolCard
from fingerpost.settings import Settings


@frozen
class ToolRecord:
    """One line of `tools.jsonl`. The id belongs to the set and is returned unchanged."""

    id: str
    server: str
    name: str
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict[str, Json])


@frozen
class QueryRecord:
    """One line of `queries.jsonl`: a request and its labels."""

    id: str
    query: str
    relevant: tuple[str, ...] = ()
    needs_tool: bool | None = None  # None: no label
    groups: tuple[frozenset[str], ...] = ()  # one per needed tool; any member satisfies it
    candidates: tuple[str, ...] | None = None
    scope: str | None = (
        None  # "candidates": labels are valid for the candidates only; "world": independent of any catalog
    )
    history: tuple[Message, ...] = ()
    lang: str | None = None

    @property
    def wanted_groups(self) -> tuple[frozenset[str], ...]:
        """The groups to find: the given ones, or one for each relevant tool."""
        return self.groups or tuple(frozenset({tool}) for tool in dict.fromkeys(self.relevant))

    @property
    def has_recall_labels(self) -> bool:
        return self.needs_tool is not False and bool(self.wanted_groups)


@frozen
class RankingEntry:
    """One entry of a ranking."""

    tool: str
    score: float


@frozen
class Prediction:
    """The router's prediction for one query."""

    id: str
    verdict: str
    need: float
    fit: float
    ranking: tuple[RankingEntry, ...] = ()
    ms: float = 0.0
    selection: Mapping[str, Json] | None = None  # the tool, arguments and confidence chosen by a model

    def as_json(self) -> dict[str, Json]:
        """Return the line for the predictions file."""
        line: dict[str, Json] = {
            "id": self.id,
            "need": {"verdict": self.verdict, "score": round(self.need, 4)},
            "fit": round(self.fit, 4),
            "ranking": [{"tool": entry.tool, "score": round(entry.score, 5)} for entry in self.ranking],
            "ms": round(self.ms, 3),
        }
        if self.selection is not None:
            line["selection"] = dict(self.selection)
        return line


def build_prediction(
    id_: str, found: Narrowing, ranking: Iterable[tuple[str, float]], *, top: int, ms: float = 0.0
) -> Prediction:
    """Return the prediction of a narrowing with the first `top` tools of this ranking."""
    return Prediction(
        id=id_,
        verdict=found.need.verdict.value,
        need=found.need.score,
        fit=found.shortlist.fit,
        ranking=tuple(RankingEntry(tool=tool, score=score) for tool, score in islice(ranking, top)),
        ms=ms,
    )


R = TypeVar("R")

_EMPTY_MAPPING: Mapping[str, object] = {}


def read_tools(path: Path) -> list[ToolRecord]:
    """Read the tools of a set. A set without tools evaluates only the need for a tool."""
    return _read_records(path, _parse_tool)


def read_queries(path: Path) -> list[QueryRecord]:
    """Read the labelled requests of a set. Ids must be unique."""
    return _check_unique(path, _read_records(path, _parse_query), lambda query: query.id)


def read_predictions(path: Path) -> dict[str, Prediction]:
    """Read the predictions by query id. An incomplete last line is ignored."""
    found = _check_unique(
        path, _read_records(path, _parse_prediction, may_end_early=True), lambda line: line.id
    )
    return {prediction.id: prediction for prediction in found}


@frozen(kw_only=False)
class _JsonLine:
    """One JSON object of a file, with its position."""

    path: Path
    number: int
    values: Mapping[str, object]

    def fail(self, problem: str) -> NoReturn:
        message = f"{self.path}, line {self.number}: {problem}"
        raise ConfigError(message, hint="See `fingerpost eval --help` for the format of a line.")

    def get_text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if name in self.values and value is None and default is not None:
            return default
        if not isinstance(value, str):
            self.fail(f"{name!r} must be text" if name in self.values else f"{name!r} is missing")
        return value

    def get_number(self, name: str, within: Mapping[str, object] | None = None) -> float:
        value = (self.values if within is None else within).get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(f"{name!r} must be a number")
        return float(value)

    def get_texts(self, name: str, value: object = None) -> tuple[str, ...]:
        found = self.values.get(name, ()) if value is None else value
        if found is None:
            return ()
        if not isinstance(found, Sequence) or isinstance(found, str):
            self.fail(f"{name!r} must be a list")
        items = cast("Sequence[object]", found)
        if not all(isinstance(item, str) for item in items):
            self.fail(f"{name!r} must hold texts only")
        return tuple(cast("Sequence[str]", items))

    def get_objects(self, name: str) -> list[Mapping[str, object]]:
        found: object = self.values.get(name) or []
        if not isinstance(found, list) or not all(
            isinstance(item, dict) for item in cast("list[object]", found)
        ):
            self.fail(f"{name!r} must be a list of objects")
        return cast("list[Mapping[str, object]]", found)


def _parse_tool(line: _JsonLine) -> ToolRecord:
    schema = line.values.get("input_schema", line.values.get("inputSchema"))
    if schema is not None and not isinstance(schema, dict):
        line.fail("'input_schema' must be an object")
    return ToolRecord(
        id=line.get_text("id"),
        server=line.get_text("server", "tools") or "tools",
        name=line.get_text("name"),
        description=line.get_text("description", ""),
        input_schema=cast("JsonObject", schema or {"type": "object"}),
    )


def _parse_query(line: _JsonLine) -> QueryRecord:
    needs = line.values.get("needs_tool")
    if needs is not None and not isinstance(needs, bool):
        line.fail("'needs_tool' must be true or false")
    groups: object = line.values.get("relevant_groups") or []
    if not isinstance(groups, list):
        line.fail("'relevant_groups' must be a list of lists")
    has_candidates = line.values.get("candidates") is not None
    return QueryRecord(
        id=line.get_text("id"),
        query=line.get_text("query"),
        relevant=line.get_texts("relevant"),
        needs_tool=needs,
        groups=tuple(
            frozenset(line.get_texts("relevant_groups", group))
            for group in cast("list[object]", groups)
            if group
        ),
        candidates=line.get_texts("candidates") if has_candidates else None,
        scope=line.get_text("scope", "") or None,
        history=tuple(_parse_message(line, entry) for entry in line.get_objects("history")),
        lang=line.get_text("lang", "") or None,
    )


def _parse_message(line: _JsonLine, entry: Mapping[str, object]) -> Message:
    role, content = entry.get("role"), entry.get("content", entry.get("text", _EMPTY_MAPPING))
    text = _get_message_text(content)
    if not isinstance(role, str) or text is None:
        line.fail("every entry of 'history' needs a 'role' and a 'content', both texts")
    return Message(role=role, text=text)


def _get_message_text(content: object) -> str | None:
    """Return the text of a message: a string, or parts as in chat APIs. It is empty for a message with only a
    tool call, and None for an invalid content.
    """
    if content is None:
        return ""
    if isinstance(content, list):
        parts = cast("list[object]", content)
        texts = [cast("Mapping[str, object]", part).get("text") for part in parts if isinstance(part, dict)]
        return " ".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else None


def _parse_prediction(line: _JsonLine) -> Prediction:
    need = line.values.get("need")
    judged = cast("Mapping[str, object]", need) if isinstance(need, dict) else _EMPTY_MAPPING
    verdict = judged.get("verdict")
    if not isinstance(verdict, str):
        line.fail("'need' must be an object with a 'verdict' and a 'score'")
    selection = line.values.get("selection")
    return Prediction(
        id=line.get_text("id"),
        verdict=verdict,
        need=line.get_number("score", judged),
        fit=line.get_number("fit"),
        ranking=tuple(_parse_ranked(line, entry) for entry in line.get_objects("ranking")),
        ms=line.get_number("ms") if "ms" in line.values else 0.0,
        selection=cast("Mapping[str, Json]", selection) if isinstance(selection, dict) else None,
    )


def _parse_ranked(line: _JsonLine, entry: Mapping[str, object]) -> RankingEntry:
    tool = entry.get("tool")
    if not isinstance(tool, str):
        line.fail("every place of 'ranking' needs a 'tool'")
    return RankingEntry(tool=tool, score=line.get_number("score", entry))


def _read_records(path: Path, parse: Callable[[_JsonLine], R], *, may_end_early: bool = False) -> list[R]:
    return [parse(line) for line in _iterate_lines(path, may_end_early=may_end_early)]


def _iterate_lines(path: Path, *, may_end_early: bool) -> Iterator[_JsonLine]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(message, hint="Name a file with one JSON object per line.") from error
    rows = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        line = _JsonLine(path, number, _EMPTY_MAPPING)
        try:
            value: object = json.loads(row)
        except ValueError as error:  # also for invalid UTF-8
            if may_end_early and number == len(rows):
                return
            line.fail(f"is not JSON ({error})")
        except RecursionError:
            line.fail("is nested too deeply")
        if not isinstance(value, dict):
            line.fail("is not an object")
        yield _JsonLine(path, number, cast("Mapping[str, object]", value))


def _check_unique(path: Path, found: list[R], key: Callable[[R], str]) -> list[R]:
    seen: set[str] = set()
    for item in found:
        if key(item) in seen:
            message = f"{path}: the id {key(item)!r} stands on several lines"
            raise ConfigError(message, hint="Give every query an id of its own.")
        seen.add(key(item))
    return found


@frozen
class EvalCatalog:
    """All tools of a set as a catalog."""

    snapshot: Snapshot
    ids: Mapping[str, str]  # a card's key → the set's id
    keys: Mapping[str, tuple[str, ...]]  # the set's id → the cards' keys
    left_out: tuple[str, ...] = ()  # tools that could not become cards, with the reason

    def get_keys(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the keys of the cards with these ids. Unknown ids are ignored."""
        return frozenset(key for one in ids for key in self.keys.get(one, ()))

    @classmethod
    def from_tools(cls, tools: Sequence[ToolRecord], settings: Settings) -> EvalCatalog:
        """Build a catalog of these tools under these settings. Raises `ConfigError` if no tool is usable."""
        ids: dict[str, str] = {}
        # No model is offered these tools, so what is suspicious about them is no reason to leave one out.
        flags = settings.flags.model_copy(update={"scan_definitions": False})
        cards: list[ToolCard] = []
        left_out: list[str] = []
        for number, layer in enumerate(_split_layers(tools), start=1):
            catalog = Catalog(events=MemorySink(limit=0), overrides=settings.tools, flags=flags)
            for listing in _build_listings(layer.values()):
                catalog.replace_server(listing)
            for card in catalog.snapshot.cards:
                made = card if number == 1 else replace(card, key=_make_free_key(f"{card.key}~{number}", ids))
                cards.append(made)
                ids[made.key] = layer.pop(card.key).id
            left_out += _explain_left_out(layer.values(), catalog.dropped)
        if tools and not cards:
            message = f"none of the {len(tools)} tools could be taken; the first: {left_out[0]}"
            raise ConfigError(message, hint="Give every tool a name, a description and an input_schema.")
        keys: dict[str, tuple[str, ...]] = {}
        for key, own in ids.items():
            keys[own] = (*keys.get(own, ()), key)
        return cls(
            snapshot=Snapshot(version=1, cards=tuple(cards)), ids=ids, keys=keys, left_out=tuple(left_out)
        )


def _make_free_key(key: str, taken: Mapping[str, str]) -> str:
    """Make the key unique, because a tool may already be named `name~2`."""
    while key in taken:
        key += "~"
    return key


def _split_layers(tools: Iterable[ToolRecord]) -> list[dict[str, ToolRecord]]:
    """Split the tools into layers with unique keys. The first layer has the first tool of each key."""
    layers: list[dict[str, ToolRecord]] = []
    seen: Counter[str] = Counter()
    for tool in tools:
        key = build_tool_key(tool.server, tool.name)
        if seen[key] == len(layers):
            layers.append({})
        layers[seen[key]][key] = tool
        seen[key] += 1
    return layers


def _explain_left_out(tools: Iterable[ToolRecord], dropped: Iterable[DroppedTool]) -> Iterator[str]:
    reasons = {(drop.server, drop.name): drop.reason for drop in dropped}
    for tool in tools:
        shown = escape_invisible_except(tool.name[:80]) if tool.name.strip() else "(no name)"
        yield f"{tool.id}: {reasons.get((tool.server, shown), 'was refused')}"


def _build_listings(tools: Iterable[ToolRecord]) -> Iterator[Listing]:
    by_server: dict[str, list[JsonObject]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        )
    for server, definitions in by_server.items():
        yield Listing(server=server, definitions=tuple(definitions))


@frozen
class OperatorSet:
    """The lines of both files, and the number of choices whose tool no longer exists."""

    tools: tuple[JsonObject, ...]
    queries: tuple[JsonObject, ...]
    gone: int = 0

    @classmethod
    def from_choices(cls, cards: Sequence[ToolCard], choices: Iterable[Choice]) -> OperatorSet:
        """Build a set from these tools and choices. The choices are sorted newest first."""
        known = {card.key for card in cards}
        gone = 0
        chosen: dict[tuple[str, str | None], list[str]] = {}
        for choice in choices:
            if not choice.worked or not choice.request.strip():
                continue
            if choice.tool not in known:
                gone += 1
                continue
            tools = chosen.setdefault((choice.request, choice.conversation), [])
            if choice.tool not in tools:
                tools.insert(0, choice.tool)
        queries: dict[str, JsonObject] = {}
        for (request, _), tools in chosen.items():
            line = {
                "id": build_request_id(request, tools),
                "query": request,
                "relevant": list(tools),
                "needs_tool": True,
            }
            queries.setdefault(str(line["id"]), line)
        return cls(
            tools=tuple(_build_tool_line(card) for card in cards), queries=tuple(queries.values()), gone=gone
        )


def _build_tool_line(card: ToolCard) -> JsonObject:
    return {
        "id": card.key,
        "server": card.server,
        "name": card.name,
        "description": card.description,
        "input_schema": card.definition.get("inputSchema") or {"type": "object"},
    }


def build_request_id(request: str, tools: Sequence[str]) -> str:
    """Return an id that depends only on the request and the tools."""
    digest = hashlib.sha256("\0".join((request, *sorted(tools))).encode(errors="surrogatepass"))
    return f"own-{digest.hexdigest()[:16]}"
