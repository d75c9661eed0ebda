"""Assets: charts, diagrams, 3D bodies and tones made locally, images and speech made by services."""

from fingerpost.call.digest.results import RESULT_URI_PREFIX, Asset, KeptAsset, fetch_asset, keep_asset

__all__ = ["RESULT_URI_PREFIX", "Asset", "KeptAsset", "fetch_asset", "keep_asset"]
