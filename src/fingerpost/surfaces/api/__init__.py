"""The API, at /api.

operation     one operation: what it takes and gives, who may
app           from a request to its operation and back (paths, reading, accepting, problems, shapes)
doors         who comes in: by key or token, or by a session of the console (sessions)
streams       event streams: how many, and how they end
description   OpenAPI, made from the operations
me, packets, asking, approvals, resources   the operations
"""

from fingerpost.surfaces.api.app import ApiApp, open_api

__all__ = ["ApiApp", "open_api"]
