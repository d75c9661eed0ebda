"""Lines that begin with a label: `Thought:`, `Action:`, `Action Input:`, `Tool call:`, and their relatives.

Minutes and to-do lists have such lines too. An action is a call only if an input follows
it, or if all it says is the name of a real tool that is nobody's ordinary word.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL_WORDS_BY_KIND: Final = {
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
LABEL_KINDS: Final = {
    word: kind for kind, words in _LABEL_WORDS_BY_KIND.items() for word in words.split(", ")
}
_LABEL_LEAD: Final = r"[ \t>*_#•🔧🛠️→\-]{0,12}"
_ANY_LABEL: Final = "|".join(re.escape(word) for word in sorted(LABEL_KINDS, key=len, reverse=True))
LABEL_PATTERN: Final = re.compile(
    rf"(?P<lead>{_LABEL_LEAD})(?P<label>{_ANY_LABEL})(?P<number>[ \t]?\d{{1,3}})?"
    rf"[ \t*_`]{{0,4}}[:=][*_]{{0,3}}[ \t]{{0,4}}",
    re.IGNORECASE,
)
_LABEL_DECORATION: Final = re.compile(_LABEL_LEAD)
MAX_LABEL_LENGTH: Final = 60


def get_label_kind(found: re.Match[str]) -> str:
    return LABEL_KINDS[found["label"].casefold()]


def may_become_label(head: str) -> bool:
    """Whether a line that begins so may still turn out to have a label."""
    lead = _LABEL_DECORATION.match(head)
    written = head[lead.end() if lead is not None else 0 :].casefold()
    if len(head) >= MAX_LABEL_LENGTH or "\n" in head:
        return False
    return any(word.startswith(written) or _is_numbered_word(written, word) for word in LABEL_KINDS)


def match_label(text: str, at: int, *, final: bool) -> re.Match[str] | bool:
    """The label of the line that begins at `at`; False: none; True: what has come may become one."""
    found = LABEL_PATTERN.match(text, at)
    head = text[at : at + MAX_LABEL_LENGTH]
    if found is not None:
        return True if found.end() == len(text) and not final else found
    cut = "\n" not in head and len(head) < MAX_LABEL_LENGTH and not final
    return cut and (not head.strip() or may_become_label(head))


def _is_numbered_word(written: str, word: str) -> bool:
    return (
        written.startswith(word)
        and re.fullmatch(r"[ \t]?\d{0,3}[ \t*_`]{0,4}", written[len(word) :]) is not None
    )
