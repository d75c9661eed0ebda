"""Tool choice and argument filling without a language model. Only certain values are used; the person is
asked for the rest.
"""

from fingerpost.choose.keyless.arguments import FilledArguments, fill_arguments
from fingerpost.choose.keyless.choice import (
    KeylessChoice,
    ToolOption,
    build_missing_question,
    choose_tool,
    fill_answer,
    format_missing_question,
    is_refusal,
    pick_option,
)
from fingerpost.choose.keyless.replies import (
    build_direct_reply,
    build_keyless_answer,
    build_routing_off_reply,
    evaluate_expression,
    remove_fence,
)

__all__ = [
    "FilledArguments",
    "KeylessChoice",
    "ToolOption",
    "build_direct_reply",
    "build_keyless_answer",
    "build_missing_question",
    "build_routing_off_reply",
    "choose_tool",
    "evaluate_expression",
    "fill_answer",
    "fill_arguments",
    "format_missing_question",
    "is_refusal",
    "pick_option",
    "remove_fence",
]
