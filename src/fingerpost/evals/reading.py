"""Reading a set's files. A line that cannot be used is an error that names its file, line and field.

Unknown fields are passed over: sets carry more than we look at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from fingerpost.errors import ConfigError
from fingerpost.evals.records import Prediction, QueryRecord, RankingEntry, ToolRecord
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Message

R = TypeVar("R")

_EMPTY_MAPPING: Mapping[str, object] = {}


def read_tools(path: Path) -> list[ToolRecord]:
    """The tools of a set. A set may have none: then it is about need alone."""
    return _read_records(path, _parse_tool)


def read_queries(path: Path) -> list[QueryRecord]:
    """The labelled requests of a set, each id once."""
    return _check_unique(path, _read_records(path, _parse_query), lambda query: query.id)


def read_predictions(path: Path) -> dict[str, Prediction]:
    """What was predicted, by query id. A last line cut short by an interruption is passed over."""
    found = _check_unique(
        path, _read_records(path, _parse_prediction, may_end_early=True), lambda line: line.id
    )
    return {prediction.id: prediction for prediction in found}


@frozen(kw_only=False)
class _JsonLine:
    """One JSON object of a file, with where it stands."""

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
    """The text of a message: as it is, in parts as chat APIs write it, or none beside a tool call."""
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
        ranking=tuple(_parse_ranked(line, place) for place in line.get_objects("ranking")),
        ms=line.get_number("ms") if "ms" in line.values else 0.0,
        selection=cast("Mapping[str, Json]", selection) if isinstance(selection, dict) else None,
    )


def _parse_ranked(line: _JsonLine, place: Mapping[str, object]) -> RankingEntry:
    tool = place.get("tool")
    if not isinstance(tool, str):
        line.fail("every place of 'ranking' needs a 'tool'")
    return RankingEntry(tool=tool, score=line.get_number("score", place))


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
        except ValueError as error:  # what is not UTF-8 too
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
