"""Reads a server's tool list page by page and checks each definition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header
from pydantic_core import to_json

from fingerpost.errors import ServerReplyInvalid
from fingerpost.records import DroppedTool, JsonObject, Listing, ServerSpec, find_json_problem
from fingerpost.records.json import encode_if_valid
from fingerpost.schemas import describe_kind, find_schema_fault
from fingerpost.servers.spec import get_package
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import run_in_thread

MAX_NAME_LENGTH = 1024
_HEADER_KEY = to_json(X_MCP_HEADER_KEY)
UNNAMED = "(unnamed)"


class DefinitionFilter:
    """Collects the valid definitions of one server, page by page."""

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
        """Check every entry of a page. Return False when the page exceeds a limit."""
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
    """Return whether an encoded definition may contain mirrored headers. None (not encoded) returns True."""
    return written is None or _HEADER_KEY in written


def get_display_name(entry: object) -> str:
    """Return a name for an entry, even if the entry has no valid name."""
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
        reason = find_json_problem(definition, max_depth=limits.schema_depth)
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
    # A missing type is common and harmless: arguments are always an object.
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


THREAD_PAGE_SIZE = 200  # definitions on one page; more would block the event loop too long

PageReader = Callable[[str | None], Awaitable[dict[str, Any]]]


async def read_listing(
    spec: ServerSpec, read_page: PageReader, limits: LimitSettings, *, modern: bool, instructions: str | None
) -> Listing:
    """Read all tools of the server and check each definition separately."""
    server = spec.name
    collected = DefinitionFilter(server, limits, modern=modern)
    truncated = await _read_pages(server, read_page, limits, collected)
    return Listing(
        server=server,
        definitions=tuple(collected.kept),
        dropped=tuple(collected.dropped),
        instructions=instructions,
        prefix=spec.prefix,
        package=get_package(spec),
        trust_hints=spec.trust_hints or spec.in_process is not None,
        new_tools="allow" if spec.in_process is not None else spec.new_tools,
        review_new=False if spec.in_process is not None else spec.review_new,
        truncated=truncated,
    )


async def _read_pages(
    server: str, read_page: PageReader, limits: LimitSettings, accepted: DefinitionFilter
) -> str | None:
    """Add all pages to `accepted`. Return why the list was truncated, or None when it is complete."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(limits.list_pages):
        page = await read_page(cursor)
        tools: object = page.get("tools")
        if not isinstance(tools, list):
            message = f"{server} answered tools/list without a list of tools"
            raise ServerReplyInvalid(message, server=server, hint="report this to the server's author")
        found = cast("list[object]", tools)
        if not (
            accepted.add_page(found)
            if len(found) <= THREAD_PAGE_SIZE
            else await run_in_thread(accepted.add_page, found)
        ):
            return f"the server lists more than {limits.tools_per_server:,} tools; the rest was left out"
        following: object = page.get("nextCursor")
        if following is None or following == "":  # some servers send an empty cursor for the last page
            return None
        if not isinstance(following, str):
            return "the cursor of the next page is not text; later pages could not be read"
        if following in seen:
            return "the server handed out the same page cursor twice; reading stopped there"
        seen.add(following)
        cursor = following
    return f"the list has more than {limits.list_pages} pages; the rest was left out"
