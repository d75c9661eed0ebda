"""Hebrew requests against English tool texts, without a network: a lexicon, its forms, and a gloss."""

from fingerpost.narrow.hebrew.gloss import Gloss, gloss_words, join_gloss
from fingerpost.narrow.hebrew.sounds import SoundIndex

__all__ = ["Gloss", "SoundIndex", "gloss_words", "join_gloss"]
