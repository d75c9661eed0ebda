"""Hostile callers, hostile pages and bad luck, against /v1 and /api as they are served."""
