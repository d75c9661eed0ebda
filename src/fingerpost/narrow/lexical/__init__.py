"""Scoring by words: stems, rarity, synonyms and a little spelling."""

from fingerpost.narrow.lexical.scorer import LexicalScorer

__all__ = ["LexicalScorer"]
