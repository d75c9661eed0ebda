"""`read_result`: the one tool of our own that every model may use, to fetch what a digest left out.

It reaches no server and changes nothing, so it needs no permit. Surfaces offer
its definition beside the others.
"""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.scalars import read_as
from fingerpost.call.digest import Page, Results
from fingerpost.call.outcomes import Endings
from fingerpost.catalog.names import READ_RESULT
from fingerpost.records import CallContext, ErrorKind, Json, JsonObject, Outcome, ToolCall

NAME: Final = READ_RESULT
MOST_PAGES: Final = 8  # that a model may read for one request
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
FUNCTION: Final[JsonObject] = {  # in the OpenAI format
    "type": "function",
    "function": {
        "name": NAME,
        "description": DEFINITION["description"],
        "parameters": DEFINITION["inputSchema"],
    },
}
SIGNATURE: Final = "read_result(handle: string, page?: integer = 1)"


async def read_result(results: Results, wish: ToolCall, context: CallContext) -> Outcome:
    """One page of a kept result, or why there is none."""
    endings = Endings(wish, context)
    handle, number = wish.arguments.get("handle"), _number(wish.arguments.get("page", 1))
    if not isinstance(handle, str) or number < 1:
        content = f"it takes {SIGNATURE}"
        return endings.failure(NAME, ErrorKind.INVALID_PARAMETERS, content, signature=SIGNATURE)
    found = await results.page(handle, page=number, caller=context.caller)
    if found is None:
        content = f"nothing is kept under {handle} at page {number}"
        return endings.failure(NAME, ErrorKind.EXECUTION_FAILED, content)
    return _answer(wish, context, found)


def _number(page: Json) -> int:
    """Of the page, which many models write as text; 0 for what is no number."""
    if isinstance(page, str):
        reading = read_as("integer", page)
        page = None if reading is None else reading.value
    return page if isinstance(page, int) and not isinstance(page, bool) else 0


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
