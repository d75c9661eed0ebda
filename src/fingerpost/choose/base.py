"""How the parts of choosing reach a model: one question, one reply.

Whoever hands an `Ask` over has decided which model answers, counts the tokens and tells
the journal. A failure is a `ModelError`.
"""

from fingerpost.llm import Ask

__all__ = ["Ask"]
