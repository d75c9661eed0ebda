"""The gateway's own tools: the way to all the others, where showing them all would be too much.

Their texts are what a model decides by, so each says when to use it and what comes next.
They never change, whoever asks and whatever servers come and go.
"""

from __future__ import annotations

from typing import Final

from fingerpost.call import reread
from fingerpost.records import JsonObject

FIND_TOOLS_NAME: Final = "find_tools"
DESCRIBE_TOOL_NAME: Final = "describe_tool"
CALL_TOOL_NAME: Final = "call_tool"
READ_RESULT_NAME: Final = reread.READ_RESULT_TOOL_NAME

_READ_ONLY_HINTS: Final[JsonObject] = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
MAX_FOUND: Final = 20

FIND_TOOLS_DEFINITION: Final[JsonObject] = {
    "name": FIND_TOOLS_NAME,
    "title": "Find tools",
    "description": (
        "Find the tools for a task. Use this FIRST whenever a task may need live data, files, accounts, "
        "other programs or any action outside of this conversation: the tools are not listed here, they "
        "are found by describing the task. Answers with the few that suit best, each with its name, its "
        "parameters and what it does. Then run one with call_tool. If nothing suits, try once more in "
        "other words, or name the service you want to use."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "request": {
                "type": "string",
                "minLength": 1,
                "description": "What is to be done, in plain words, with the names of services, files and "
                "things it is about. One task at a time works best.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_FOUND,
                "description": "Most tools to answer with; leave it out unless too few were found.",
            },
            "server": {"type": "string", "description": "Only tools of this server, when you know it."},
        },
        "required": ["request"],
        "additionalProperties": False,
    },
    "outputSchema": {
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "For call_tool and describe_tool"},
                        "signature": {"type": "string", "description": "Parameters; `?` marks optional ones"},
                        "description": {"type": "string"},
                        "effect": {"type": "string", "enum": ["read", "write", "destroy"]},
                        "why": {"type": "string", "description": "Why it was found"},
                    },
                    "required": ["name", "signature", "effect"],
                },
            },
            "note": {"type": "string", "description": "What to do next"},
        },
        "required": ["tools", "note"],
    },
    "annotations": {"title": "Find tools", **_READ_ONLY_HINTS},
}

DESCRIBE_TOOL_DEFINITION: Final[JsonObject] = {
    "name": DESCRIBE_TOOL_NAME,
    "title": "Describe a tool",
    "description": (
        "Read the full definition of one tool: its description, every parameter with its meaning, and what "
        "it returns. Use it when the signature from find_tools does not tell enough to write the call, or "
        "after a call was refused because of its arguments."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "A name that find_tools answered with"}
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "annotations": {"title": "Describe a tool", **_READ_ONLY_HINTS},
}

CALL_TOOL_DEFINITION: Final[JsonObject] = {
    "name": CALL_TOOL_NAME,
    "title": "Call a tool",
    "description": (
        "Run a tool that find_tools answered with, and get its result. Give its name and its arguments as "
        "the signature says. A call that changes something may have to be approved by a person first; the "
        "result says so and what to do then. A result that was too long ends with a handle for read_result."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "A name that find_tools answered with"},
            "arguments": {"type": "object", "description": "The tool's own arguments, by name"},
            "intent": {
                "type": "string",
                "description": "What the person wants, in a few words: a long result keeps what is about it.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "annotations": {"title": "Call a tool", "readOnlyHint": False, "openWorldHint": True},
}

READ_RESULT_DEFINITION: Final[JsonObject] = {
    **reread.READ_RESULT_TOOL,
    "title": "Read a long result",
    "annotations": {"title": "Read a long result", **_READ_ONLY_HINTS},
}

ROUTING_TOOLS: Final = (
    FIND_TOOLS_DEFINITION,
    DESCRIBE_TOOL_DEFINITION,
    CALL_TOOL_DEFINITION,
    READ_RESULT_DEFINITION,
)
ALWAYS_LISTED_TOOLS: Final = (READ_RESULT_DEFINITION,)
