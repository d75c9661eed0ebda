"""The API, at /api."""
