"""The corpus of written tool names: what models write, and the one answer to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fingerpost.catalog import Snapshot
from tests.kit.cards import snapshot


def _combining(name: str, *operations: str) -> Mapping[str, Any]:
    """A tool with an operation; without operations here, it takes any."""
    operation: dict[str, Any] = {"type": "string", **({"enum": list(operations)} if operations else {})}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"operation": operation}}}


def _tools(*names: str) -> list[Mapping[str, Any]]:
    return [{"name": name} for name in names]


LONG_NAME: Final = (
    "find_the_nearest_public_library_branch_with_a_copy_of_a_book_that_is_not_lent_to_anybody_now"
)
# Ordinary servers; and servers and tools that are named like namespaces, numbers and each other.
DEFINITIONS: Final[Mapping[str, Mapping[str, list[Mapping[str, Any]]]]] = {
    "main": {
        "weather": _tools("get_weather", "get_forecast"),
        "files": [
            *_tools("read_file", "delete_file"),
            _combining("file_operations", "read_file", "write_file", "list"),
        ],
        "web": _tools("search", "fetch_page"),
        "notes": _tools("search", "חיפוש", "הוסף_פתק"),
        "github": _tools("get_issue", "create_issue", "list-branches"),
        "jira": [*_tools("get_issue"), _combining("boards")],
        "shop": _tools("getOrder", "get_order", "buy"),
        "google-maps": _tools("find_place"),
        "docker": _tools("container.start", "container.stop"),
        "math": _tools("run_c", "run_c++"),
        "café": _tools("réserver_table", "показать_файл", "表示_天気", "कि_1"),
        "archive": _tools(LONG_NAME),
    },
    "odd": {
        "weather": _tools("get_weather", "read"),
        "api": _tools("status", "get_user"),
        "lab": [*_tools("client.get", "get_weather:0", "functions"), _combining("tools", "read", "write")],
        "search": _tools("web"),
        "x": [_combining("search", "web", "news")],
        "a": _tools("bc"),
        "ab": _tools("c"),
    },
}
CATALOGS: Final[Mapping[str, Snapshot]] = {
    name: snapshot(**{server: list(tools) for server, tools in servers.items()})
    for name, servers in DEFINITIONS.items()
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The tools a name may mean: none, one (perhaps with an operation), or several."""

    tools: tuple[str, ...] = ()
    operation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenName:
    """A name as it is written, and what it means in one of the catalogs."""

    written: str
    catalog: str
    meaning: Meaning


def read_corpus() -> tuple[WrittenName, ...]:
    lines = (Path(__file__).parent / "tool_names.jsonl").read_text("utf-8").splitlines()
    return tuple(_build_written_name(json.loads(line)) for line in lines)


def _build_written_name(entry: Mapping[str, Any]) -> WrittenName:
    tools = entry.get("candidates") or ([entry["tool"]] if "tool" in entry else [])
    meaning = Meaning(tuple(tools), entry.get("operation", ""))
    return WrittenName(written=entry["written"], catalog=entry.get("catalog", "main"), meaning=meaning)
