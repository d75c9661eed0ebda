"""Assets: charts, diagrams, bodies and tones made here; pictures and speech made elsewhere. All are kept."""

from fingerpost.builtin.assets.keeping import SCHEME, Kept, fetch, keep
from fingerpost.builtin.assets.records import Asset

__all__ = ["SCHEME", "Asset", "Kept", "fetch", "keep"]
