"""Which tool definitions we take, and why the others are dropped. Pure: no server is asked here.

A definition is taken as it is or not at all: what a person approves later must
be what the server sent. `$ref`s are left alone and never followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header
from pydantic_core import to_json

from fingerpost.records import DroppedTool, JsonObject, check_json
from fingerpost.servers.schemas import describe_kind, find_schema_fault
from fingerpost.servers.soundness import encode_if_valid
from fingerpost.settings.model import LimitSettings

MAX_NAME_LENGTH = 1024
_HEADER_KEY = to_json(X_MCP_HEADER_KEY)
UNNAMED = "(unnamed)"


class DefinitionFilter:
    """The definitions of one server, collected page by page."""

    def __init__(self, server: str, limits: LimitSettings, *, modern: bool) -> None:
        self._server = server
        self._limits = limits
        self._modern = modern
        self._names: set[str] = set()
        self.kept: list[JsonObject] = []
        self.dropped: list[DroppedTool] = []

    @property
    def is_full(self) -> bool:
        return len(self.kept) + len(self.dropped) >= self._limits.tools_per_server

    def add_page(self, page: Sequence[object]) -> bool:
        """Look at every entry of a page. False when the page holds more than we are willing to keep."""
        for entry in page:
            if self.is_full:
                return False
            reason = self._find_fault(entry)
            if reason is None:
                definition = cast("dict[str, Any]", entry)
                self._names.add(definition["name"])
                self.kept.append(definition)
            else:
                self.dropped.append(
                    DroppedTool(server=self._server, name=get_display_name(entry), reason=reason)
                )
        return True

    def _find_fault(self, entry: object) -> str | None:
        if not isinstance(entry, Mapping):
            return f"the definition is {describe_kind(entry)}, not an object"
        definition = cast("Mapping[str, object]", entry)
        written = encode_if_valid(definition, self._limits.schema_depth)
        return (
            _find_name_fault(definition.get("name"))
            or _find_json_fault(definition, written, self._limits)
            or _find_schema_fault(definition)
            or self._find_header_fault(definition, written)
            or self._find_duplicate(definition)
        )

    def _find_header_fault(self, definition: Mapping[str, object], written: bytes | None) -> str | None:
        if not self._modern or not may_name_headers(written):
            return None
        reason = find_invalid_x_mcp_header(cast("dict[str, Any]", definition["inputSchema"]))
        return None if reason is None else f"x-mcp-header is invalid: {reason}"

    def _find_duplicate(self, definition: Mapping[str, object]) -> str | None:
        if definition["name"] in self._names:
            return "another tool of this server already has this name; the first one is kept"
        return None


def may_name_headers(written: bytes | None) -> bool:
    """Whether a definition, as written, may say which arguments are repeated as headers; None: it may."""
    return written is None or _HEADER_KEY in written


def get_display_name(entry: object) -> str:
    """What to call an entry that may not even have a usable name."""
    name = cast("Mapping[str, object]", entry).get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name:
        return UNNAMED
    return name[:80].encode("utf-8", "backslashreplace").decode()


def _find_name_fault(name: object) -> str | None:
    if not isinstance(name, str):
        return f"the name is {describe_kind(name)}, not text"
    if not name.strip():
        return "the name is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"the name is longer than {MAX_NAME_LENGTH} characters"
    return None


def _find_json_fault(
    definition: Mapping[str, object], written: bytes | None, limits: LimitSettings
) -> str | None:
    if written is None:
        reason = check_json(definition, max_depth=limits.schema_depth)
        if reason is not None:
            return f"the definition {reason}"
        written = to_json(definition)
    size = len(written)
    if size > limits.definition_bytes:
        return f"the definition has {size:,} bytes; the limit is {limits.definition_bytes:,}"
    return None


def _find_schema_fault(definition: Mapping[str, object]) -> str | None:
    if "inputSchema" not in definition:
        return "there is no inputSchema"
    schema: object = definition["inputSchema"]
    # A missing type is common and harmless: arguments are an object in any case.
    if _get_schema_type(schema) != "object":
        return 'the type of inputSchema is not "object", and arguments are always one'
    if isinstance(schema, bool):
        return "inputSchema is a boolean, not an object"
    output = definition.get("outputSchema")
    return find_schema_fault("inputSchema", schema) or (
        find_schema_fault("outputSchema", output) if output is not None else None
    )


def _get_schema_type(schema: object) -> object:
    return (
        cast("Mapping[str, object]", schema).get("type", "object")
        if isinstance(schema, Mapping)
        else "object"
    )
