"""Assets: charts, diagrams, bodies and tones made here; pictures and speech made elsewhere. All are kept."""

from fingerpost.call.digest.assets import SCHEME, Asset, Kept, fetch, keep

__all__ = ["SCHEME", "Asset", "Kept", "fetch", "keep"]
