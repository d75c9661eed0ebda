"""A result made to fit for one call, without holding up anybody else meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from fingerpost.call.digest.cut import (
    build_digest,
    compute_budget,
    digest_sentence,
    digest_whole,
    needs_summary,
)
from fingerpost.call.digest.results import build_handle
from fingerpost.records import CallContext, Digest, Json, JsonObject, ToolCard
from fingerpost.records.json import is_large_value
from fingerpost.settings import Settings
from fingerpost.tasks import run_in_thread

MANY_BLOCKS: Final = 100  # blocks


async def build_fitted_digest(
    result: JsonObject, card: ToolCard, context: CallContext, settings: Settings, *, kept: bool = True
) -> Digest:
    """The digest; of a large result in a thread, because cutting it takes a while.

    `kept`: the whole can be read on under the handle that is named.
    """
    summary = needs_summary(card, settings)
    budget = compute_budget(card, context, settings.digest, summary=summary and not context.summarises)
    budget = budget if settings.flags.digest else sys.maxsize
    if (said := digest_sentence(result, budget=budget)) is not None:
        return said
    large = _is_large(result)
    handle = build_handle(context.call_id) if kept else None
    if not large and (whole := digest_whole(result, budget=budget)) is not None:
        long = summary and whole.tokens > settings.digest.summary_tokens  # kept, for it will be summarised
        return replace(whole, handle=handle) if long else whole
    cutting = partial(build_digest, result, card, budget=budget, request=context.request, handle=handle)
    return await run_in_thread(cutting) if large else cutting()


def _is_large(result: JsonObject) -> bool:
    """Whether cutting this result would hold up the event loop. A cheap look, no more."""
    content = result.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return len(parts) > MANY_BLOCKS or is_large_value(
        [*map(_get_readable, parts), result.get("structuredContent")]
    )


def _get_readable(part: Json) -> Json:
    """What of a block becomes text. Bytes are only named, and of a link no more than a line is read."""
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "text":
            text = part.get("text")
            return text if isinstance(text, str) else part
        case "resource_link":
            return None
        case "image" | "audio":
            return None if isinstance(part.get("data"), str) else part
        case "resource":
            return _get_readable_resource(part)
        case _:
            return part  # written out as it is


def _get_readable_resource(part: JsonObject) -> Json:
    resource = part.get("resource")
    if not isinstance(resource, Mapping):
        return part
    text = resource.get("text")
    if isinstance(text, str):
        return text
    return None if isinstance(resource.get("blob"), str) else part
