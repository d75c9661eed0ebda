"""The HTTP API at /api."""

from fingerpost.surfaces.api.app import ApiApp, open_api

__all__ = ["ApiApp", "open_api"]
