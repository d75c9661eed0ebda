"""Scoring by meaning: the routing encoder, its vectors on disk, and the scorer."""

from fingerpost.narrow.dense.encoder import OnnxEncoder, TextEncoder
from fingerpost.narrow.dense.scorer import DenseScorer, get_default_vectors_folder
from fingerpost.narrow.dense.vectors import VectorCache

__all__ = ["DenseScorer", "OnnxEncoder", "TextEncoder", "VectorCache", "get_default_vectors_folder"]
