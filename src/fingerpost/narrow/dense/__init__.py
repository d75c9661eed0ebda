"""Scoring by meaning: the routing encoder, its vectors on disk, and the scorer that compares them."""

from fingerpost.narrow.dense.encoder import Encoder, TextEncoder
from fingerpost.narrow.dense.scorer import DenseScorer, default_vectors_folder
from fingerpost.narrow.dense.vectors import VectorCache

__all__ = ["DenseScorer", "Encoder", "TextEncoder", "VectorCache", "default_vectors_folder"]
