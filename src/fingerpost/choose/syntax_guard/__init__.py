"""Invented tool syntax never reaches a person, and never runs as it stands.

Models write tool calls into their answers: markers of their own training, JSON in a code
block, a script of thoughts and actions. `Guard` takes them out, whole or while they are
streamed, and gives back those that mean a real tool, so that they can be made properly.
Thinking aloud (`<think>`) is no answer either: it is hidden and counted as "thought".
"""

from fingerpost.choose.syntax_guard.scanner import CleanedText, FoundSyntax, StreamGuard, SyntaxGuard
from fingerpost.choose.syntax_guard.vocabulary import is_announcement

__all__ = ["CleanedText", "FoundSyntax", "StreamGuard", "SyntaxGuard", "is_announcement"]
