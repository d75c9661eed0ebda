"""Search over passages of text, by words and by meaning: for notes, memories and files alike."""

from fingerpost.builtin.passages.index import PassageIndex
from fingerpost.builtin.passages.meanings import get_default_folder
from fingerpost.builtin.passages.records import PassageHit, TextPassage

__all__ = ["PassageHit", "PassageIndex", "TextPassage", "get_default_folder"]
