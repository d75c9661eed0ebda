"""The six tools as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fingerpost.builtin.kit import BuiltinTool
from fingerpost.builtin.knowledge import wording
from fingerpost.builtin.knowledge.contexts import DEFAULT_TOKENS, MAX_TOKENS
from fingerpost.builtin.knowledge.tools import DEFAULT_HITS, KnowledgeTools
from fingerpost.records import Effect, JsonObject

MAX_HITS: Final = 20
MAX_QUERY_LENGTH: Final = 1000
MAX_PATHS: Final = 40
MAX_LIST_DEPTH: Final = 8

_QUERY: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH}
_PATH: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": 1000}
_FOLDER: Final[JsonObject] = {**_PATH, "description": "Only notes in this folder of the knowledge base"}
_TAGS: Final[JsonObject] = {
    "type": "array",
    "items": {"type": "string", "maxLength": 100},
    "maxItems": 10,
    "description": "Only notes that have all of these tags",
}
_TOKENS: Final[JsonObject] = {
    "type": "integer",
    "minimum": 200,
    "maximum": MAX_TOKENS,
    "default": DEFAULT_TOKENS,
    "description": "Most it may take",
}


def _build_tool(
    name: str,
    title: str,
    description: str,
    run: Any,
    knowledge: Mapping[str, Any],
    properties: Mapping[str, JsonObject],
    *required: str,
) -> BuiltinTool:
    return BuiltinTool(
        name=name,
        title=title,
        description=description,
        run=run,
        effect=Effect.READ,
        properties=properties,
        required=required,
        knowledge=knowledge,
    )


def build_knowledge_tools(tools: KnowledgeTools) -> tuple[BuiltinTool, ...]:
    """The six, as records."""
    return (
        _build_tool(
            "search_knowledge_base",
            "Search the knowledge base",
            "Search the user's own knowledge base: their personal notes and documents (Markdown, text, PDF). "
            "Finds passages by words and by meaning and gives each with its file, heading and lines. Use it "
            "when the user asks what their notes say, or to find something they wrote down.",
            tools.search_notes,
            wording.SEARCH_KNOWLEDGE,
            {
                "query": {**_QUERY, "description": "What to look for, in the user's own words"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": DEFAULT_HITS},
                "folder": _FOLDER,
                "tags": _TAGS,
            },
            "query",
        ),
        _build_tool(
            "load_kos_context",
            "Load the user's own context",
            "Load the user's knowledge operating system (KOS) context: who they are, how they work, what "
            "they are working on, from contexts/kos.md of their knowledge base or, where that is not "
            "written, its first page and newest notes.",
            tools.get_own_context,
            wording.OWN_CONTEXT_KNOWLEDGE,
            {
                "name": {**_PATH, "description": "Another context instead, by name"},
                "max_tokens": _TOKENS,
            },
        ),
        _build_tool(
            "read_kb_file",
            "Read a note",
            "Read one note or document of the user's knowledge base: what it says, or what it says about "
            "something, a section or some lines of it; with its tags and the notes it links to and is "
            "linked from.",
            tools.read_note,
            wording.READ_KNOWLEDGE,
            {
                "path": {**_PATH, "description": "Its path, title or alias, such as garden/tomatoes.md"},
                "about": {**_QUERY, "description": "Only what it says about this subject"},
                "section": {
                    "type": "string",
                    "maxLength": 200,
                    "description": "Only what stands under this heading; 'page 3' of a PDF",
                },
                "start_line": {"type": "integer", "minimum": 1},
                "end_line": {"type": "integer", "minimum": 1},
            },
            "path",
        ),
        _build_tool(
            "list_kb_directory",
            "List notes",
            "List the notes and folders of the user's knowledge base with their titles.",
            tools.list_notes,
            wording.LIST_KNOWLEDGE,
            {
                "path": {
                    **_PATH,
                    "default": ".",
                    "description": "A folder of the knowledge base",
                },
                "depth": {"type": "integer", "minimum": 1, "maximum": MAX_LIST_DEPTH, "default": 1},
            },
        ),
        _build_tool(
            "load_kb_context",
            "Load notes as context",
            "Load a bundle of the user's notes as background within a bound of tokens: a named context "
            "(a file in contexts/), everything on a topic, or the given notes. Without any of these it lists "
            "the contexts there are.",
            tools.get_context,
            wording.CONTEXT_KNOWLEDGE,
            {
                "name": {**_PATH, "description": "A named context"},
                "topic": {**_QUERY, "description": "A topic, where no context is named"},
                "paths": {
                    "type": "array",
                    "items": _PATH,
                    "maxItems": MAX_PATHS,
                    "description": "These notes, by path or title",
                },
                "max_tokens": _TOKENS,
            },
        ),
        _build_tool(
            "synthesize_kb_information",
            "Answer from the notes",
            "Answer a question from several notes of the user's knowledge base at once: a summary, a "
            "comparison, a conclusion, in which every statement cites its source.",
            tools.synthesize_answer,
            wording.SYNTHESIZE_KNOWLEDGE,
            {
                "question": {**_QUERY, "description": "The question, in the user's own words"},
                "folder": _FOLDER,
                "tags": _TAGS,
                "paths": {
                    "type": "array",
                    "items": _PATH,
                    "maxItems": MAX_PATHS,
                    "description": "Only these notes",
                },
            },
            "question",
        ),
    )
