"""What people taught: corrections, habits of one person, decisions that were right before."""

from fingerpost.narrow.learning.corrections import Correction, Corrections
from fingerpost.narrow.learning.decisions import PastDecisions, RememberedDecision
from fingerpost.narrow.learning.preferences import Preferences
from fingerpost.narrow.learning.vectors import RequestVectors

__all__ = [
    "Correction",
    "Corrections",
    "PastDecisions",
    "Preferences",
    "RememberedDecision",
    "RequestVectors",
]
