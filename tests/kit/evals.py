"""A small set to measure on, and files with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TOOLS: Sequence[Mapping[str, Any]] = (
    {"id": "w", "server": "weather", "name": "get_forecast", "description": "Weather forecast for a city."},
    {"id": "m1", "server": "mail", "name": "send", "description": "Send an email to somebody."},
    {"id": "m2", "server": "mail", "name": "send", "description": "Send a letter by post, on paper."},
    {"id": "odd/id ~\u200b", "server": "bank", "name": "pay\u202e", "description": "Pay an invoice."},
    {"id": "g", "server": "git", "name": "log", "description": "List the commits of a repository."},
    {"id": "f", "server": "files", "name": "read_file", "description": "Read a file from disk."},
)
QUERIES: Sequence[Mapping[str, Any]] = (
    {"id": "1", "query": "What is the weather forecast for Oslo?", "relevant": ["w"], "needs_tool": True},
    {"id": "2", "query": "Send a letter by post", "relevant": ["m2"], "needs_tool": True},
    {"id": "3", "query": "pay the invoice", "relevant": ["odd/id ~\u200b"], "needs_tool": True},
    {
        "id": "4",
        "query": "list the commits",
        "relevant": ["g"],
        "needs_tool": True,
        "candidates": ["f", "g", "nothing"],
        "scope": "candidates",
    },
    {
        "id": "5",
        "query": "and in Bergen?",
        "relevant": ["w"],
        "needs_tool": True,
        "history": [{"role": "user", "content": "What is the weather forecast for Oslo?"}],
    },
    {"id": "6", "query": "hello!", "relevant": [], "needs_tool": False, "scope": "world"},
)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
