"""When to use which tool and when none: told to a model beside the definitions, from the same record."""

from fingerpost.choose.instructions.compose import (
    build_tool_guides,
    build_tool_instructions,
    describe_tool_usage,
)
from fingerpost.choose.instructions.general import (
    CLIENT_TOOLS_INSTRUCTIONS,
    NO_TOOLS_INSTRUCTIONS,
    TOOLS_INSTRUCTIONS,
)
from fingerpost.choose.instructions.guidance import ToolGuidance, build_guidance
from fingerpost.choose.instructions.sections import build_directives, choose_persona

__all__ = [
    "CLIENT_TOOLS_INSTRUCTIONS",
    "NO_TOOLS_INSTRUCTIONS",
    "TOOLS_INSTRUCTIONS",
    "ToolGuidance",
    "build_directives",
    "build_guidance",
    "build_tool_guides",
    "build_tool_instructions",
    "choose_persona",
    "describe_tool_usage",
]
