"""`read_result`: the one tool of our own that every model may use, to fetch what a digest left out.

It reaches no server and changes nothing, so it needs no permit. Surfaces offer
its definition beside the others.
"""

from __future__ import annotations

from typing import Final

from fingerpost.call.digest import Page, Results
from fingerpost.call.guidance import advice
from fingerpost.records import CallContext, ErrorKind, Json, JsonObject, Outcome, ToolCall

NAME: Final = "read_result"
DEFINITION: Final[JsonObject] = {
    "name": NAME,
    "description": "Read more of a result that was cut. Give the handle named at the end of the cut text.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "Such as res_abc…, from the end of the cut text"},
            "page": {"type": "integer", "minimum": 1, "default": 1},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}
SIGNATURE: Final = "read_result(handle: string, page?: integer = 1)"


async def read_result(results: Results, wish: ToolCall, context: CallContext) -> Outcome:
    """One page of a kept result, or why there is none."""
    handle, page = wish.arguments.get("handle"), wish.arguments.get("page", 1)
    number = int(page) if isinstance(page, int | str) and str(page).strip().isdigit() else 0
    if not isinstance(handle, str) or number < 1:
        return _failure(wish, context, ErrorKind.INVALID_PARAMETERS, f"it takes {SIGNATURE}")
    found = await results.page(handle, page=number)
    if found is None:
        return _failure(
            wish, context, ErrorKind.EXECUTION_FAILED, f"nothing is kept under {handle} at page {number}"
        )
    return _answer(wish, context, found)


def _answer(wish: ToolCall, context: CallContext, found: Page) -> Outcome:
    metadata: dict[str, Json] = {"page": found.page, "pages": found.pages, "untrusted": True}
    return Outcome(
        call_id=context.call_id,
        tool=NAME,
        success=True,
        content=found.text,
        reference=wish.reference,
        metadata=metadata,
    )


def _failure(wish: ToolCall, context: CallContext, error: ErrorKind, content: str) -> Outcome:
    metadata: dict[str, Json] = {"error_type": error}
    return Outcome(
        call_id=context.call_id,
        tool=NAME,
        success=False,
        content=content,
        reference=wish.reference,
        error=error,
        advice=advice(error, signature=SIGNATURE),
        metadata=metadata,
    )
