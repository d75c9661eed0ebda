"""The parameters of the workspace's tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fingerpost.records import Json, JsonObject


def build_enum_schema(names: Iterable[str], description: str) -> JsonObject:
    listed: list[Json] = list(names)
    return {"type": "string", "enum": listed, "description": description}


def build_text_schema(description: str, max_length: int = 4096) -> JsonObject:
    return {"type": "string", "maxLength": max_length, "description": description}


def build_integer_schema(description: str, minimum: int, limit: int) -> JsonObject:
    return {"type": "integer", "minimum": minimum, "maximum": limit, "description": description}


def build_boolean_schema(description: str) -> JsonObject:
    return {"type": "boolean", "description": description}


MAX_CONTENT_LENGTH: Final = 16 * 1024 * 1024  # characters; builtin.workspace.write_bytes is the real bound
_MAX_LINE_NUMBER: Final = 2**31

PATH_SCHEMA: Final = build_text_schema(
    "File or folder, seen from the working directory, such as notes/today.md"
)
CONTENT_SCHEMA: Final = build_text_schema("The text to write", MAX_CONTENT_LENGTH)
DRY_RUN_SCHEMA: Final = build_boolean_schema("true: change nothing, show what would be done")
COMMAND_SCHEMA: Final = build_text_schema(
    "One program with its arguments, such as pytest -q tests. No shell: no pipes, ;, &&, $VARIABLE or *",
    8192,
)
LIMIT_SCHEMA: Final = build_integer_schema("Most results", 1, 2000)
START_LINE_SCHEMA: Final = build_integer_schema(
    "First line, from 1; negative: counted from the end", -_MAX_LINE_NUMBER, _MAX_LINE_NUMBER
)
END_LINE_SCHEMA: Final = build_integer_schema("Last line, itself included", 1, _MAX_LINE_NUMBER)

FILE_PARAMETERS: Final[dict[str, JsonObject]] = {
    "path": PATH_SCHEMA,
    "new_path": build_text_schema("rename_file, copy_file: the new name, seen from the working directory"),
    "content": CONTENT_SCHEMA,
    "old_string": build_text_schema(
        "replace_string: the text that is there, exactly, with enough around it to be found once", 10**6
    ),
    "new_string": build_text_schema("replace_string: the text to stand there instead", 10**6),
    "all": build_boolean_schema("replace_string: true replaces every place, not just one"),
    "edits": {
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "description": "multi_replace: the replacements, in order",
        "items": {
            "type": "object",
            "properties": {
                "path": PATH_SCHEMA,
                "old_string": build_text_schema("The text that is there", 10**6),
                "new_string": build_text_schema("The text to stand there instead", 10**6),
                "all": build_boolean_schema("true replaces every place"),
            },
            "required": ["old_string", "new_string"],
            "additionalProperties": False,
        },
    },
    "line": build_integer_schema(
        "insert_text: the line to insert before, from 1; 0: at the end", 0, _MAX_LINE_NUMBER
    ),
    "start_line": START_LINE_SCHEMA,
    "end_line": END_LINE_SCHEMA,
    "query": build_text_schema(
        "grep_search: the text to look for; semantic_search: what it should be about", 1000
    ),
    "pattern": build_text_schema("find_files, grep_search: which files, such as *.py or docs/**/*.md", 300),
    "regex": build_boolean_schema("grep_search: the query is a regular expression"),
    "match_case": build_boolean_schema("grep_search: upper and lower case differ"),
    "context_lines": build_integer_schema("grep_search: lines shown around each", 0, 10),
    "depth": build_integer_schema("list_dir: how deep", 1, 10),
    "recursive": build_boolean_schema("delete: a folder with all that is in it"),
    "include_ignored": build_boolean_schema("Also what .gitignore and the settings leave out"),
    "limit": LIMIT_SCHEMA,
    "dry_run": DRY_RUN_SCHEMA,
}

TERMINAL_PARAMETERS: Final[dict[str, JsonObject]] = {
    "command": COMMAND_SCHEMA,
    "folder": build_text_schema("Where it runs, seen from the working directory; by default there"),
    "seconds": build_integer_schema("Time limit", 1, 86_400),
    "isBackground": build_boolean_schema(
        "true: start it and answer at once with a job to poll, read and stop"
    ),
    "job": build_text_schema("get_output, stop: which background command, such as job-1", 40),
    "offset": build_integer_schema("get_output: only what came after this byte", 0, _MAX_LINE_NUMBER),
    "dry_run": build_boolean_schema("true: run nothing, show what would be run"),
}
