"""A caller's options, written for the OpenAI format, where these APIs have the same under another name."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.llm.base import ModelRequest, ResponseSchema
from fingerpost.llm.options import limit_of, number_of, schema_of


def settled(request: ModelRequest) -> ModelRequest:
    """The request with the caller's options in the place of ours. What has no equal is left out."""
    options = request.options
    if not options:
        return request
    shape = schema_of(options)
    return replace(
        request,
        temperature=number_of(options, "temperature") if "temperature" in options else request.temperature,
        top_p=number_of(options, "top_p") if "top_p" in options else request.top_p,
        max_tokens=limit_of(options) or request.max_tokens,
        schema=request.schema or (None if shape is None else ResponseSchema(name=shape[0], schema=shape[1])),
    )
