"""Requests in other languages: their English words."""
