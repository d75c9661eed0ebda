"""When to use which tool and when none: told to a model beside the definitions, from the same record."""

from fingerpost.choose.instructions.compose import describe_use, tool_guides, tool_instructions
from fingerpost.choose.instructions.general import BESIDE_OTHERS, WITH_TOOLS, WITHOUT_TOOLS
from fingerpost.choose.instructions.guidance import Guidance, guide
from fingerpost.choose.instructions.sections import directives_under, persona_under

__all__ = [
    "BESIDE_OTHERS",
    "WITHOUT_TOOLS",
    "WITH_TOOLS",
    "Guidance",
    "describe_use",
    "directives_under",
    "guide",
    "persona_under",
    "tool_guides",
    "tool_instructions",
]
