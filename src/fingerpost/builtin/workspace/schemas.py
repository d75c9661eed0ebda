"""The parameters of the workspace's tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fingerpost.records import Json, JsonObject


def choice(names: Iterable[str], description: str) -> JsonObject:
    listed: list[Json] = list(names)
    return {"type": "string", "enum": listed, "description": description}


def words(description: str, longest: int = 4096) -> JsonObject:
    return {"type": "string", "maxLength": longest, "description": description}


def number(description: str, least: int, most: int) -> JsonObject:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


def flag(description: str) -> JsonObject:
    return {"type": "boolean", "description": description}


LONGEST_CONTENT: Final = 16 * 1024 * 1024  # characters; builtin.workspace.write_bytes is the real bound
_FAR: Final = 2**31

PATH: Final = words("File or folder, seen from the working directory, such as notes/today.md")
CONTENT: Final = words("The text to write", LONGEST_CONTENT)
DRY_RUN: Final = flag("true: change nothing, show what would be done")
COMMAND: Final = words(
    "One program with its arguments, such as pytest -q tests. No shell: no pipes, ;, &&, $VARIABLE or *",
    8192,
)
LIMIT: Final = number("Most results", 1, 2000)
START_LINE: Final = number("First line, from 1; negative: counted from the end", -_FAR, _FAR)
END_LINE: Final = number("Last line, itself included", 1, _FAR)

FILE_PARAMETERS: Final[dict[str, JsonObject]] = {
    "path": PATH,
    "new_path": words("rename_file, copy_file: the new name, seen from the working directory"),
    "content": CONTENT,
    "old_string": words(
        "replace_string: the text that is there, exactly, with enough around it to be found once", 10**6
    ),
    "new_string": words("replace_string: the text to stand there instead", 10**6),
    "all": flag("replace_string: true replaces every place, not just one"),
    "edits": {
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "description": "multi_replace: the replacements, in order",
        "items": {
            "type": "object",
            "properties": {
                "path": PATH,
                "old_string": words("The text that is there", 10**6),
                "new_string": words("The text to stand there instead", 10**6),
                "all": flag("true replaces every place"),
            },
            "required": ["old_string", "new_string"],
            "additionalProperties": False,
        },
    },
    "line": number("insert_text: the line to insert before, from 1; 0: at the end", 0, _FAR),
    "start_line": START_LINE,
    "end_line": END_LINE,
    "query": words("grep_search: the text to look for; semantic_search: what it should be about", 1000),
    "pattern": words("find_files, grep_search: which files, such as *.py or docs/**/*.md", 300),
    "regex": flag("grep_search: the query is a regular expression"),
    "match_case": flag("grep_search: upper and lower case differ"),
    "context_lines": number("grep_search: lines shown around each", 0, 10),
    "depth": number("list_dir: how deep", 1, 10),
    "recursive": flag("delete: a folder with all that is in it"),
    "include_ignored": flag("Also what .gitignore and the settings leave out"),
    "limit": LIMIT,
    "dry_run": DRY_RUN,
}

TERMINAL_PARAMETERS: Final[dict[str, JsonObject]] = {
    "command": COMMAND,
    "folder": words("Where it runs, seen from the working directory; by default there"),
    "seconds": number("Time limit", 1, 86_400),
    "isBackground": flag("true: start it and answer at once with a job to poll, read and stop"),
    "job": words("get_output, stop: which background command, such as job-1", 40),
    "offset": number("get_output: only what came after this byte", 0, _FAR),
    "dry_run": flag("true: run nothing, show what would be run"),
}
