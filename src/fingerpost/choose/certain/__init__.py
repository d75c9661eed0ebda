"""Routing and acting without any model: only what is certain, and a question for the rest."""

from fingerpost.choose.certain.answers import fill_answer, is_refusal, pick_option
from fingerpost.choose.certain.arithmetic import evaluate_expression
from fingerpost.choose.certain.asking import build_missing_question, format_missing_question
from fingerpost.choose.certain.choosing import KeylessChoice, ToolOption, choose_tool
from fingerpost.choose.certain.fill import FilledArguments, fill_arguments
from fingerpost.choose.certain.replies import (
    build_direct_reply,
    build_keyless_answer,
    build_routing_off_reply,
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
