"""Assets: charts, diagrams, bodies and tones made here; pictures and speech made elsewhere. All are kept."""

from fingerpost.call.digest.results import SCHEME, Asset, KeptAsset, fetch_asset, keep_asset

__all__ = ["SCHEME", "Asset", "KeptAsset", "fetch_asset", "keep_asset"]
