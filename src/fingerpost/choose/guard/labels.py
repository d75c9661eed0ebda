"""Lines that begin with a label: `Thought:`, `Action:`, `Action Input:`, `Tool call:`, and their relatives.

Minutes and to-do lists have such lines too. An action is a call only if an input follows
it, or if all it says is the name of a real tool that is nobody's ordinary word.
"""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = {
    "thought": "thought, thoughts, reasoning, מחשבה",
    "action": "action, act, פעולה",
    "input": (
        "action input, action_input, action inputs, action arguments, action args, action parameters,"
        " tool input, tool_input, tool arguments, tool args, input, arguments, args, parameters, params,"
        " קלט לפעולה, קלט הפעולה, קלט פעולה, קלט, ארגומנטים, פרמטרים"
    ),
    "observation": (
        "observation, observations, tool result, tool output, tool response, תצפית, תוצאה, תוצאת הכלי"
    ),
    "final": "final answer, final_answer, final response, תשובה סופית",
    "tool": "tool, function, tool name, tool_name, function name, כלי, פונקציה",
    "call": (
        "tool call, tool_call, toolcall, tool-call, tool calls, tool_calls, tool request, tool_request,"
        " tool invocation, tool_invocation, tool_code, tool code, function-call, function_calls, api call,"
        " mcp call, mcp tool call, running tool, running, invoke, invoking, assistant tool call,"
        " function call, function_call, calling tool, calling function,"
        " calling, call, invoke tool, invoking tool, using tool, use tool, tool use, tool_use, call tool,"
        " run tool, execute tool, executing tool, קריאה לכלי, קריאת כלי, קורא לכלי, קוראת לכלי, הפעלת כלי,"
        " מפעיל כלי, מפעיל את הכלי, שימוש בכלי, קריאה לפונקציה"
    ),
}
KINDS: Final = {word: kind for kind, words in _WORDS.items() for word in words.split(", ")}
_LEAD: Final = r"[ \t>*_#•🔧🛠️→\-]{0,12}"
_ANY: Final = "|".join(re.escape(word) for word in sorted(KINDS, key=len, reverse=True))
LABEL: Final = re.compile(
    rf"(?P<lead>{_LEAD})(?P<label>{_ANY})(?P<number>[ \t]?\d{{1,3}})?"
    rf"[ \t*_`]{{0,4}}[:=][*_]{{0,3}}[ \t]{{0,4}}",
    re.IGNORECASE,
)
_LEADING: Final = re.compile(_LEAD)
LONGEST_LABEL: Final = 60


def kind_of(found: re.Match[str]) -> str:
    return KINDS[found["label"].casefold()]


def label_begun(head: str) -> bool:
    """Whether a line that begins so may still turn out to have a label."""
    lead = _LEADING.match(head)
    written = head[lead.end() if lead is not None else 0 :].casefold()
    if len(head) >= LONGEST_LABEL or "\n" in head:
        return False
    return any(word.startswith(written) or _only_number(written, word) for word in KINDS)


def label_at(text: str, at: int, *, final: bool) -> re.Match[str] | bool:
    """The label of the line that begins at `at`; False: none; True: what has come may become one."""
    found = LABEL.match(text, at)
    head = text[at : at + LONGEST_LABEL]
    if found is not None:
        return True if found.end() == len(text) and not final else found
    cut = "\n" not in head and len(head) < LONGEST_LABEL and not final
    return cut and (not head.strip() or label_begun(head))


def _only_number(written: str, word: str) -> bool:
    return (
        written.startswith(word)
        and re.fullmatch(r"[ \t]?\d{0,3}[ \t*_`]{0,4}", written[len(word) :]) is not None
    )
