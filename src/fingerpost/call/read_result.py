"""`read_result`, the built-in tool that reads more of a trimmed result."""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.coercion import read_scalar
from fingerpost.call.digest import ResultPage, ResultStore
from fingerpost.call.outcomes import OutcomeBuilder
from fingerpost.catalog.tool_names import READ_RESULT
from fingerpost.records import CallContext, ErrorKind, Json, JsonObject, Outcome, ToolCall

READ_RESULT_TOOL_NAME: Final = READ_RESULT
MAX_PAGES: Final = 8  # pages that a model may read for one request
READ_RESULT_TOOL: Final[JsonObject] = {
    "name": READ_RESULT_TOOL_NAME,
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
READ_RESULT_FUNCTION: Final[JsonObject] = {  # in the OpenAI format
    "type": "function",
    "function": {
        "name": READ_RESULT_TOOL_NAME,
        "description": READ_RESULT_TOOL["description"],
        "parameters": READ_RESULT_TOOL["inputSchema"],
    },
}
READ_RESULT_SIGNATURE: Final = "read_result(handle: string, page?: integer = 1)"


async def run_read_result(results: ResultStore, tool_call: ToolCall, context: CallContext) -> Outcome:
    """Return one page of a stored result, or why there is none."""
    outcomes = OutcomeBuilder(tool_call, context)
    handle, number = tool_call.arguments.get("handle"), _parse_page_number(tool_call.arguments.get("page", 1))
    if not isinstance(handle, str) or number < 1:
        content = f"it takes {READ_RESULT_SIGNATURE}"
        return outcomes.build_failure(
            READ_RESULT_TOOL_NAME, ErrorKind.INVALID_PARAMETERS, content, signature=READ_RESULT_SIGNATURE
        )
    found = await results.read_page(handle, page=number, caller=context.caller)
    if found is None:
        content = f"nothing is kept under {handle} at page {number}"
        return outcomes.build_failure(READ_RESULT_TOOL_NAME, ErrorKind.EXECUTION_FAILED, content)
    return _build_page_outcome(tool_call, context, found)


def _parse_page_number(page: Json) -> int:
    """Return the page number, which many models write as text. 0 if it is no number."""
    if isinstance(page, str):
        reading = read_scalar("integer", page)
        page = None if reading is None else reading.value
    return page if isinstance(page, int) and not isinstance(page, bool) else 0


def _build_page_outcome(tool_call: ToolCall, context: CallContext, found: ResultPage) -> Outcome:
    metadata: dict[str, Json] = {"page": found.page, "pages": found.pages, "untrusted": True}
    return Outcome(
        call_id=context.call_id,
        tool=READ_RESULT_TOOL_NAME,
        success=True,
        content=found.text,
        reference=tool_call.reference,
        metadata=metadata,
    )
