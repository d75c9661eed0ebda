"""Routing sets as training sees them: tools as separate fields, requests with what they need.

A set is a folder with `tools.jsonl` and `queries.jsonl`, or a pair of our own files
`tools-NAME.jsonl` and `requests-NAME.jsonl`. Sets belong to families: sets that share a source.
Figures are only honest on a family the model was not trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fingerpost.narrow.gloss.gloss import gloss_words, join_gloss
from fingerpost.narrow.scorer import ToolText, build_tool_text
from fingerpost.records import Effect, Intelligence, Known, Source, ToolCard

FAMILIES = {
    "bfcl": "A",
    "bfcl_multi_turn": "A",
    "when2call_judge300": "A",
    "toolbench_solvable": "B",
    "toollens": "B",
    "toolbench_g3_catalogue": "B",
    "ultratool_en": "C",
    "ultratool_zh": "C",
    "mcp_bench": "D",
    "mcptoolbenchpp": "D",
    "docker_mcp_registry_part": "D",
    "nestful": "E",
    "toolalpaca_eval": "E",
}
# Apache-2.0 or MIT, and no text of third parties. The others are only ever judged on.
LICENSED = (
    "bfcl",
    "bfcl_multi_turn",
    "when2call_judge300",
    "nestful",
    "toolalpaca_eval",
    "docker_mcp_registry_part",
)
JUDGED = (
    "bfcl",
    "toolbench_solvable",
    "toollens",
    "ultratool_en",
    "mcp_bench",
    "mcptoolbenchpp",
    "nestful",
    "toolalpaca_eval",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's text, in fields, as the product itself reads it."""

    id: str
    text: ToolText
    card: ToolCard

    @property
    def parameter_names(self) -> str:
        return " ".join(parameter.name for parameter in self.text.parameters)

    @property
    def parameter_texts(self) -> str:
        return " ".join(parameter.format_short() for parameter in self.text.parameters)


@dataclass(frozen=True, slots=True)
class Request:
    """A request, with one group of tools (by position) for each thing it needs."""

    id: str
    text: str
    groups: tuple[tuple[int, ...], ...]
    candidates: tuple[int, ...]
    needs_tool: bool
    language: str


@dataclass(frozen=True, slots=True)
class RoutingSet:
    """A catalog and the requests for it."""

    name: str
    family: str
    tools: tuple[Tool, ...]
    requests: tuple[Request, ...]


def read_public(folder: Path, names: Iterable[str]) -> list[RoutingSet]:
    """The named sets of a data folder; those that are not there are left out."""
    return [
        _read(name, FAMILIES.get(name, name), folder / name / "tools.jsonl", folder / name / "queries.jsonl")
        for name in names
        if (folder / name / "tools.jsonl").exists()
    ]


def read_own(folder: Path, *, held_out: bool = False) -> list[RoutingSet]:
    """The sets written for this project. A tenth of the requests is never trained on."""
    sets: list[RoutingSet] = []
    for tools in sorted(folder.glob("tools-*.jsonl")):
        name = tools.stem.removeprefix("tools-")
        whole = _read(f"own-{name}", "own", tools, folder / f"requests-{name}.jsonl")
        kept = tuple(request for request in whole.requests if is_held_out(request.id) is held_out)
        sets.append(RoutingSet(whole.name, whole.family, whole.tools, kept))
    return sets


def is_held_out(request_id: str) -> bool:
    """Whether a request of our own is kept for judging: one in ten, by its id."""
    return int(hashlib.sha256(request_id.encode()).hexdigest(), 16) % 10 == 0


def _read(name: str, family: str, tools: Path, queries: Path) -> RoutingSet:
    records = [_tool(record) for record in _lines(tools)]
    place = {tool.id: index for index, tool in enumerate(records)}
    requests = tuple(_request(record, place) for record in _lines(queries)) if queries.exists() else ()
    return RoutingSet(name, family, tuple(records), requests)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _tool(record: dict[str, Any]) -> Tool:
    card = _card(record)
    return Tool(record["id"], build_tool_text(card), card)


def _card(record: dict[str, Any]) -> ToolCard:
    """Just enough of a card for its words: what the catalog adds makes no difference to them."""
    description = record.get("description") or ""
    return ToolCard(
        key=record["id"],
        server=record.get("server") or "",
        name=record["name"],
        exposed_name=record["id"],
        definition={"inputSchema": record.get("input_schema") or {}},
        description=description,
        effect=Known(Effect.READ, Source.DEFAULT),
        fingerprint=record["id"],
        intelligence=cast("Intelligence", None),
    )


def _routed(text: str, language: str) -> str:
    """What the encoder is given: a Hebrew request as English words, anything else as it is."""
    return join_gloss(gloss_words(text)) if language == "he" else text


def _request(record: dict[str, Any], place: dict[str, int]) -> Request:
    alone: list[list[str]] = [[tool] for tool in _ids(record, "relevant")]
    groups: list[list[str]] = record.get("relevant_groups") or alone
    known = [tuple(place[tool] for tool in group if tool in place) for group in groups]
    return Request(
        id=record["id"],
        text=_routed(record["query"], record.get("lang") or "en"),
        groups=tuple(group for group in known if group),
        candidates=tuple(place[tool] for tool in _ids(record, "candidates") if tool in place),
        needs_tool=bool(record.get("needs_tool")),
        language=record.get("lang") or "en",
    )


def _ids(record: dict[str, Any], field: str) -> list[str]:
    return record.get(field) or []
