"""The registry of faults, and faulty tool definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fingerpost.frozen import frozen

T = TypeVar("T")


@frozen(kw_only=False)
class ServerFault(Generic[T]):
    """One kind of faulty behaviour."""

    name: str
    row: int
    summary: str
    act: T


class FaultRegistry(Generic[T]):
    """A registry of faults. `register` is a decorator for their implementations."""

    def __init__(self) -> None:
        self.faults: dict[str, ServerFault[T]] = {}

    def register(self, name: str, row: int, summary: str) -> Callable[[T], T]:
        def register(act: T) -> T:
            self.faults[name] = ServerFault(name, row, summary, act)
            return act

        return register

    def __getitem__(self, name: str) -> ServerFault[T]:
        try:
            return self.faults[name]
        except KeyError:
            message = f"no fault is named {name!r}; there are: {', '.join(sorted(self.faults))}"
            raise LookupError(message) from None

    def format_list(self) -> str:
        """Return all faults as lines of text."""
        return "\n".join(f"{fault.name:20} {fault.row:3}  {fault.summary}" for fault in self.faults.values())


ToolDefinitions = list[Any]

GOOD_TOOL: dict[str, Any] = {
    "name": "echo",
    "description": "Answers with its arguments.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def build_tool(name: str, **fields: Any) -> dict[str, Any]:
    """Return a valid definition with another name and some fields replaced."""
    return {**GOOD_TOOL, "name": name, **fields}


def build_bad_schemas() -> ToolDefinitions:
    """Return four invalid definitions between two valid ones."""
    return [
        GOOD_TOOL,
        build_tool("text_schema", inputSchema="object"),
        build_tool("odd_type", inputSchema={"type": "strnig"}),
        build_tool("odd_part", inputSchema={"type": "object", "properties": {"a": {"type": "txt"}}}),
        {"name": "no_schema"},
        build_tool("also_good"),
    ]


def build_odd_names() -> ToolDefinitions:
    """Return tools with names that are empty, not text, too long, invisible, confusable, or unusual."""
    return [
        GOOD_TOOL,
        build_tool(""),
        {**GOOD_TOOL, "name": 7},
        {**GOOD_TOOL, "name": None},
        build_tool("x" * 5000),
        build_tool("ec\u200bho"),
        build_tool("\u0435cho"),  # a Cyrillic letter that looks like a Latin one
        build_tool("\u202eohce"),
        build_tool("a tool / with spaces"),
        build_tool("כלי"),
        "not an object",
    ]


def build_ref_loop() -> ToolDefinitions:
    return [
        GOOD_TOOL,
        build_tool(
            "loop",
            inputSchema={
                "type": "object",
                "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
                "properties": {"root": {"$ref": "#/$defs/node"}},
            },
        ),
    ]


def build_network_ref(url: str) -> ToolDefinitions:
    return [
        GOOD_TOOL,
        build_tool("remote", inputSchema={"type": "object", "properties": {"a": {"$ref": url}}}),
    ]


def build_duplicate_names() -> ToolDefinitions:
    return [
        GOOD_TOOL,
        build_tool("twin", description="the first"),
        build_tool("twin", description="the second"),
    ]


def build_many(count: int) -> ToolDefinitions:
    return [build_tool(f"tool_{number}") for number in range(count)]
