"""Names, descriptions and parameter schemas of the workspace tools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final

from fingerpost.frozen import frozen
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


# Characters; the effective limit is builtin.workspace.write_bytes.
MAX_CONTENT_LENGTH: Final = 16 * 1024 * 1024
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


@frozen
class ToolWording:
    """The description of a tool and of its operation parameter, and further known properties."""

    description: str
    operation: str = ""
    knowledge: dict[str, Any] = field(default_factory=dict[str, Any])


INSIDE_ONLY: Final = "nothing outside of it can be reached."
WITH_APPROVAL: Final = "a file outside of it needs its whole path, and each call a person's approval."


def format_boundary(text: str, *, outside: bool) -> str:
    """Return the text with the current rule about paths outside the folder."""
    return text.replace(INSIDE_ONLY, WITH_APPROVAL) if outside else text


FILES_WORDING: Final = ToolWording(
    description=(
        "Work with the files of the working directory: read a file or a range of its lines, create, write, "
        "append, replace text, insert lines, rename or move, copy, delete, list a folder, find files by name "
        "pattern, search the text of files (which files mention a word), search by meaning, show size and "
        "type. Paths are seen from the working directory; "
    )
    + INSIDE_ONLY,
    operation=(
        "read_file, read_range (start_line, end_line), create_file (fails if it exists), write_file (whole "
        "content), append_file, replace_string (old_string must occur once, or all: true), multi_replace "
        "(edits), insert_text (line), rename_file and copy_file (new_path), delete, list_dir, find_files "
        "(pattern), grep_search (query: text in files), semantic_search (query: meaning), file_info"
    ),
    knowledge={
        "category": "files",
        "keywords": (
            "file", "files", "folder", "directory", "read", "open", "show", "create", "write", "append",
            "edit", "replace", "insert", "rename", "move", "copy", "delete", "list", "find", "grep", "search",
            "mention", "mentions", "contain", "lines",
        ),
        "purpose": "Read, search and change files of the working directory.",
        "when": (
            "A file or folder of the project is to be listed, changed, renamed, copied or deleted",
            "Its text is to be searched with more than a plain word: a pattern, some files only",
        ),
        "when_not": (
            "A program is to be run: terminal_operations",
            "The question is about what the person's notes say in general: the knowledge base",
        ),
        "examples": (
            "list the files in src",
            "find all python files",
            "read lines 10 to 20 of app.py",
            "rename draft.md to final.md",
            "replace foo by bar in config.toml",
            "delete the file old.log",
        ),
    },
)  # fmt: skip

TERMINAL_WORDING: Final = ToolWording(
    description=(
        "Manage commands of the working directory: run one in the foreground or start it in the background, "
        "read the output of a background job so far, stop it, list all of them; also elevated commands, "
        "which a person is asked about. No shell is used."
    ),
    operation=(
        "run_command (waits for its end; isBackground: answers at once with a job), run_background (that as "
        "an operation), run_elevated (sudo, sh -c, rm -r, installers and the like: asks a person), "
        "get_output (job), stop (job), list"
    ),
    knowledge={
        "category": "commands",
        "keywords": (
            "command", "terminal", "background", "process", "job", "start", "stop", "output", "sudo",
        ),
        "purpose": "Run programs in the working directory.",
        "when": ("A command is to run in the background, or with elevated rights", "A job is asked about"),
        "when_not": ("One command is to be run to its end: ai.execute",),
        "examples": (
            "start the development server in the background",
            "stop job-1",
            "what has the background job said so far",
            "which commands run in the background",
        ),
    },
)  # fmt: skip

READ_WORDING: Final = ToolWording(
    description="Read a file of the working directory as text, whole or a range of its lines.",
    knowledge={
        "category": "files",
        "keywords": ("read", "open", "show", "file", "content", "contents", "what is in"),
        "purpose": "Read one file.",
        "when": ("The path of a file is given and its content is wanted",),
        "when_not": ("Files have to be found or searched first: file_operations",),
        "examples": ("read the file notes.md", "show me the contents of src/main.py", "what is in README.md"),
    },
)

WRITE_WORDING: Final = ToolWording(
    description=(
        "Write the whole content of a file of the working directory; a file that does not exist is created."
    ),
    knowledge={
        "category": "files",
        "keywords": ("write", "save", "create", "file", "content", "store"),
        "purpose": "Write one file as a whole.",
        "when": ("A file is to be created or its whole content replaced, and path and content are given",),
        "when_not": ("A part of a file is to be changed: file_operations",),
        "examples": ("create a file todo.txt with buy milk", "save this text to notes/today.md"),
    },
)

EXECUTE_WORDING: Final = ToolWording(
    description=(
        "Execute one command in the working directory to its end, such as the tests, a linter, a build or "
        "git status, without a shell, and give its output and exit status."
    ),
    knowledge={
        "category": "commands",
        "keywords": (
            "run", "execute", "command", "tests", "test", "build", "compile", "lint", "pytest", "make", "git",
            "npm", "script", "program", "terminal",
        ),
        "purpose": "Run one command and see its output.",
        "when": ("One command is to be run to its end",),
        "when_not": ("It should run in the background or needs elevated rights: terminal_operations",),
        "examples": (
            "run the tests",
            "run pytest -q",
            "build the project with make",
            "what does git status say",
        ),
    },
)  # fmt: skip

TESTS_WORDING: Final = ToolWording(
    description=(
        "Run the tests of the project in the working directory, in the way its files say "
        "(make, npm, pytest, cargo, go), and give their output and exit status."
    ),
    knowledge={
        "category": "commands",
        "keywords": ("run the tests", "tests", "test", "test suite", "pytest", "check"),
        "purpose": "Run the project's tests.",
        "when": ("The tests are to be run and nobody says with which command",),
        "when_not": ("A certain command is named: ai.execute",),
        "examples": ("run the tests", "do the tests pass", "run the test suite"),
    },
)

SEARCH_WORDING: Final = ToolWording(
    description=(
        "Find which files of the working directory mention a text: every line that contains it, with file "
        "and line number."
    ),
    knowledge={
        "category": "files",
        "keywords": (
            "which files",
            "mention",
            "mentions",
            "contain",
            "contains",
            "grep",
            "search",
            "find",
            "text",
        ),
        "purpose": "Find an exact text in files.",
        "when": ("It is asked which files mention or contain a word, a name or a text",),
        "when_not": ("Other words may be used for the same thing: embedding.query",),
        "examples": (
            "which files mention retry",
            "which files contain the word timeout",
            "where is parse_config used",
            "search the files for TODO",
        ),
    },
)

QUERY_WORDING: Final = ToolWording(
    description=(
        "Search the code and text files of the working directory by meaning (vector search): gives the "
        "passages that answer a question best, such as where in the code something is done, with their lines."
    ),
    knowledge={
        "category": "files",
        "keywords": (
            "semantic", "meaning", "similar", "related", "about", "embedding", "vector", "passages", "code",
            "where",
        ),
        "purpose": "Find passages of files by what they mean.",
        "when": ("It is known what a passage is about, not which words it uses",),
        "when_not": ("An exact word or name is looked for: file_operations with grep_search",),
        "examples": (
            "where in the code are failed calls repeated",
            "find passages about caching in these files",
            "semantic search for error handling",
        ),
    },
)  # fmt: skip
