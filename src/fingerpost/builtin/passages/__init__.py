"""Search over passages of text, by words and by meaning: for notes, memories and files alike."""

from fingerpost.builtin.passages.index import PassageIndex
from fingerpost.builtin.passages.meanings import default_folder
from fingerpost.builtin.passages.records import Hit, Passage

__all__ = ["Hit", "Passage", "PassageIndex", "default_folder"]
