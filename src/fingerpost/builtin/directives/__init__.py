"""Directives for a VR or AR client, as data: what shall happen in the person's scene."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    BuiltinTool,
    ToolCaller,
    ToolRefused,
    ToolReply,
)
from fingerpost.data_files import read_data_table
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Json, JsonObject, create_id
from fingerpost.settings import OwnRule

DIRECTIVE_VERSION: Final = "1"  # format version of directives; clients reject unknown versions
_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$(?![\s\S])"  # to the very end of the text
_ALLOWED_CONTROL_CHARACTERS: Final = "\n\t"
_DIRECTION_MARKS: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@frozen
class DirectiveKind:
    """One kind of directive. `target` is its subject; empty for the whole scene."""

    name: str
    title: str
    description: str
    sentence: str  # a description that may contain {target} and the parameters
    target: str = ""
    parameters: Mapping[str, JsonObject]
    required: Sequence[str] = ()
    keywords: Sequence[str]
    examples: Sequence[str]


def _load_kinds() -> tuple[DirectiveKind, ...]:
    data = read_data_table(__name__, "kinds.toml")
    for kind in data["kinds"].values():
        for name, schema in kind["parameters"].items():
            if isinstance(schema, str):
                kind["parameters"][name] = data["schemas"][schema]
    return tuple(DirectiveKind(name=name, **fields) for name, fields in data["kinds"].items())


DIRECTIVE_KINDS: Final = _load_kinds()


def build_tool(kind: DirectiveKind) -> BuiltinTool:
    """Build the tool for directives of this kind."""
    target: dict[str, JsonObject] = {}
    if kind.target:
        target["target"] = {"type": "string", "pattern": _ID_PATTERN, "description": kind.target}

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        directive = build_directive(kind, arguments)
        return ToolReply(_format_sentence(kind, directive), data=directive)

    return BuiltinTool(
        name=kind.name,
        title=kind.title,
        description=f"{kind.description} Gives a directive that the client carries out.",
        run=run,
        # It changes what a person sees, so it is never retried and keeps its order.
        effect=Effect.WRITE,
        properties={**target, **kind.parameters},
        required=(*target, *kind.required),
        output_schema=build_output_schema(kind),
        knowledge={
            "category": "scene",
            "keywords": kind.keywords,
            "examples": kind.examples,
            "typical_ms": 5,
            "timeout_ms": 10_000,
            "structured": True,
            "when": ("the person asks for something to happen in the VR or AR scene they are in",),
            "when_not": ("there is no scene: the person only wants to know something",),
        },
    )


def build_output_schema(kind: DirectiveKind) -> JsonObject:
    """Return the schema of a directive. New fields may be added; the fields of this version do not change."""
    return {
        "type": "object",
        "properties": {
            "version": {"type": "string", "const": DIRECTIVE_VERSION},
            "directive": {"type": "string", "const": kind.name},
            "id": {"type": "string", "pattern": "^dir_[0-9a-f]{32}$"},
            "target": {"type": ["string", "null"]},
            "parameters": {
                "type": "object",
                "properties": dict(kind.parameters),
                "required": list(kind.required),
                "additionalProperties": False,
            },
        },
        "required": ["version", "directive", "id", "target", "parameters"],
    }


def build_directive(kind: DirectiveKind, arguments: JsonObject) -> JsonObject:
    """Build the directive. Raises `ToolRefused` for values that no client could use."""
    parameters = {name: value for name, value in arguments.items() if name in kind.parameters}
    if not kind.required and not parameters and "seconds" in kind.parameters:
        named = ", ".join(name for name in kind.parameters if name != "seconds")
        raise ToolRefused(f"{kind.name} says nothing so.", hint=f"Give at least one of {named}.")
    for name, value in parameters.items():
        _check_value(name, value)
    return {
        "version": DIRECTIVE_VERSION,
        "directive": kind.name,
        "id": create_id("dir"),
        "target": arguments.get("target") if kind.target else None,
        "parameters": parameters,
    }


def _check_value(name: str, value: Json) -> None:
    """Check what JSON Schema cannot express: finite numbers and displayable text."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolRefused(f"{name} is not a number.", hint="Give a finite one.")
    if isinstance(value, str) and (bad := next(filter(_is_invisible, value), None)) is not None:
        raise ToolRefused(f"{name} holds the character U+{ord(bad):04X}.", hint="Write plain text.")
    if isinstance(value, Mapping):
        for inner, each in cast("Mapping[str, Json]", value).items():
            _check_value(f"{name}.{inner}", each)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            _check_value(name, each)


def _is_invisible(character: str) -> bool:
    """Return whether it is a control character, a lone surrogate, or an invisible direction mark."""
    unseen = unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTION_MARKS
    return unseen and character not in _ALLOWED_CONTROL_CHARACTERS


def _format_sentence(kind: DirectiveKind, directive: JsonObject) -> str:
    parameters = cast("Mapping[str, Json]", directive["parameters"])
    words = {name: value for name, value in parameters.items() if isinstance(value, str)}
    return kind.sentence.format_map({**words, "target": directive["target"]}) + " The client carries it out."


NAME: Final = "directives"
_INSTRUCTIONS: Final = (
    "Directives for a VR or AR client. Each tool gives one directive back, and the client carries it out: "
    "nothing happens before. Distances are metres, angles degrees, y points up."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server. It needs nothing from the host."""
    return BuiltinServer(
        NAME,
        (build_tool(kind) for kind in DIRECTIVE_KINDS),
        instructions=_INSTRUCTIONS,
        # They change only the caller's own scene in its own client, so no approval is needed.
        rules=(OwnRule(verdict="allow", server=NAME, reason="the client decides what it carries out"),),
        get_context=host.get_context,
    )
