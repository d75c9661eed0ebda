"""A caller's options, written for the OpenAI format, where these APIs have the same under another name."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.llm.base import ModelRequest, ResponseSchema
from fingerpost.llm.options import get_number, get_response_schema, get_token_limit


def apply_caller_options(request: ModelRequest) -> ModelRequest:
    """The request with the caller's options in the place of ours. What has no equal is left out."""
    options = request.options
    if not options:
        return request
    shape = get_response_schema(options)
    return replace(
        request,
        temperature=get_number(options, "temperature") if "temperature" in options else request.temperature,
        top_p=get_number(options, "top_p") if "top_p" in options else request.top_p,
        max_tokens=get_token_limit(options) or request.max_tokens,
        schema=request.schema or (None if shape is None else ResponseSchema(name=shape[0], schema=shape[1])),
    )
