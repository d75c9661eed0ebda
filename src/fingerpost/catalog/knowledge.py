"""What Fingerpost knows about some well-known tools before it has used them.

That a tool only reads is known of some servers, found by what their entry starts: a name alone,
which anybody can give a tool, proves nothing there.

Written in the same form as a person's overrides, and weaker than those; typical
latency and size also give way to what recorded use teaches. Tools are found by
their own name, `-` and `_` being the same. Fallbacks are names too: they stand
for whichever server offers such a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from fingerpost.settings.model import ToolOverride

_PERPLEXITY_RESEARCH: Final = ToolOverride(
    match="*",
    category="web_search",
    priority=100,
    hierarchy=("perplexity-ask", "tavily-search"),
    typical_ms=60_000,
    timeout_ms=300_000,
    typical_tokens=4000,
    needs_summary=True,
)
_PERPLEXITY_ASK: Final = ToolOverride(
    match="*", category="web_search", priority=95, hierarchy=("tavily-search",)
)
_PERPLEXITY_REASON: Final = ToolOverride(
    match="*",
    category="web_search",
    priority=90,
    hierarchy=("perplexity-ask", "tavily-search"),
    typical_ms=20_000,
    timeout_ms=300_000,
)
_PERPLEXITY_SEARCH: Final = ToolOverride(
    match="*", category="web_search", priority=85, hierarchy=("tavily-search",)
)
_TAVILY_SEARCH: Final = ToolOverride(
    match="*", category="web_search", priority=90, hierarchy=("perplexity-search",), typical_ms=4000
)
# Official figures come from the official source: the general searches only stand in for it.
_DATAGOV: Final = ToolOverride(
    match="*",
    category="data",
    priority=95,
    hierarchy=("perplexity-search", "tavily-search"),
    conflicts=("perplexity-search", "tavily-search"),
    typical_ms=5000,
    structured=True,
    exclusive_intent="official_data",
)
# A file that cannot be read is not to be looked for elsewhere: fail at once.
_FILE_TOOL: Final = ToolOverride(match="*", category="files", priority=80, hierarchy=())

_KNOWN_TOOLS: Final[Mapping[str, ToolOverride]] = {
    "perplexity_research": _PERPLEXITY_RESEARCH,
    "perplexity_ask": _PERPLEXITY_ASK,
    "perplexity_reason": _PERPLEXITY_REASON,
    "perplexity_search": _PERPLEXITY_SEARCH,
    "tavily_search": _TAVILY_SEARCH,
    "datagov_query": _DATAGOV,
    "read_file": _FILE_TOOL,
    "write_file": _FILE_TOOL,
}


# Tools that are known to read: by the package or the address that the operator's entry names, then by name
# with the parameters they have. One with a further parameter is another tool, and is judged by its words.
_KNOWN_READS: Final[Mapping[str, str]] = {
    "mcp-server-fetch": """
        fetch url max_length start_index raw
        """,
    "mcp-server-git": """
        git_status repo_path
        git_diff_unstaged repo_path context_lines
        git_diff_staged repo_path context_lines
        git_diff repo_path target context_lines
        git_log repo_path max_count start_timestamp end_timestamp
        git_show repo_path revision
        git_branch repo_path branch_type contains not_contains
        """,
    "mcp-server-time": """
        get_current_time timezone
        convert_time source_timezone time target_timezone
        """,
    "mcp-server-sqlite": """
        read_query query
        list_tables
        describe_table table_name
        """,
    "@modelcontextprotocol/server-filesystem": """
        read_file path tail head
        read_text_file path tail head
        read_media_file path
        read_multiple_files paths
        list_directory path
        list_directory_with_sizes path sortBy
        directory_tree path excludePatterns
        search_files path pattern excludePatterns
        get_file_info path
        list_allowed_directories
        """,
    "@modelcontextprotocol/server-memory": """
        read_graph
        search_nodes query
        open_nodes names
        """,
    "@modelcontextprotocol/server-everything": """
        echo message
        get-annotated-message messageType includeImage
        get-env
        get-resource-links count
        get-resource-reference resourceType resourceId
        get-structured-content location
        get-sum a b
        get-tiny-image
        trigger-long-running-operation duration steps
        """,
    "tavily-mcp": """
        tavily-extract urls extract_depth include_images include_favicon format query
        tavily-map url max_depth max_breadth limit instructions select_paths select_domains categories
        """,
    "exa-mcp-server": """
        crawling_exa url maxCharacters
        """,
    "awslabs.aws-documentation-mcp-server": """
        read_documentation url max_length start_index
        recommend url
        """,
}
_PACKAGE_ALIASES: Final[Mapping[str, str]] = {
    "mcp-server-filesystem": "@modelcontextprotocol/server-filesystem",
    "mcp-server-memory": "@modelcontextprotocol/server-memory",
    "mcp-server-everything": "@modelcontextprotocol/server-everything",
}
# Tools whose words say that they read, and that do something: an investigation is begun and kept.
_KNOWN_TO_ACT: Final = frozenset({"find_error_pattern_logs", "find_slow_requests"})


def is_known_read(package: str | None, name: str, parameters: Iterable[str]) -> bool:
    """Whether we know of this very tool that it reads, whatever its words."""
    if package is None:
        return False
    known = _get_known_reads(_PACKAGE_ALIASES.get(package, package)).get(name)
    return known is not None and known.issuperset(parameters)


def is_known_to_act(name: str) -> bool:
    """Whether a tool of this name is known to do more than it says. A false one is only asked about."""
    return normalize_name(name) in _KNOWN_TO_ACT


@lru_cache(maxsize=64)
def _get_known_reads(package: str) -> Mapping[str, frozenset[str]]:
    lines = _KNOWN_READS.get(package, "").strip().splitlines()
    return {name: frozenset(rest) for name, *rest in map(str.split, lines)}


def normalize_name(name: str) -> str:
    """The form in which names are compared: small letters, `_` for `-`."""
    return name.lower().replace("-", "_")


def get_shipped_override(name: str) -> ToolOverride | None:
    """What we know of a tool of this name."""
    return _KNOWN_TOOLS.get(normalize_name(name))
