"""Hebrew requests against English tool texts, without a network: a lexicon, its forms, and a gloss."""

from fingerpost.narrow.hebrew.gloss import Gloss, gloss, telegram
from fingerpost.narrow.hebrew.sounds import Names

__all__ = ["Gloss", "Names", "gloss", "telegram"]
