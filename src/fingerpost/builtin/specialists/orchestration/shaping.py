"""Asking for an answer in a shape."""

from __future__ import annotations

from fingerpost.records import JsonObject


def build_response_format(name: str, schema: JsonObject) -> JsonObject:
    """The option with which a model is asked for JSON of this shape. Whoever asks checks what came."""
    wanted: JsonObject = {"name": name, "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}
