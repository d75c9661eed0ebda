"""Removal of tool syntax that models write into their answers.

Models write tool calls as text: special tokens, JSON in a code block, or a ReAct script. `SyntaxGuard`
removes them from a whole text or a stream and returns those that name a real tool, so that they can be
executed. Reasoning (`<think>`) is hidden too and counted as "thought".
"""

from fingerpost.choose.syntax_guard.scanner import CleanedText, FoundSyntax, StreamGuard, SyntaxGuard
from fingerpost.choose.syntax_guard.vocabulary import is_announcement

__all__ = ["CleanedText", "FoundSyntax", "StreamGuard", "SyntaxGuard", "is_announcement"]
