"""What the guard over a model's words costs: ordinary text and text made to keep it busy.

Pieces of seven characters are about what a model streams. `× ten times as long` is the time of a
text ten times as long, for each character: 1 is straight, 10 would be the square.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from rich.table import Table

from benchmarks.catalog import build, listings
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.choose.syntax_guard.scanner import SyntaxGuard

SIZE: Final = 50_000  # characters
PIECE: Final = 7
ROUNDS: Final = 2
TOOLS: Final = 300

PROSE: Final = (
    "The library opens at nine and closes at eight, and on Fridays already at one. You can reserve up to "
    "five books; the action starts on Monday, and the function of the new desk is to help. It costs "
    "4 < 5 shekels.\n\n"
)
MARKDOWN: Final = """\
## What to do next

1. **Call** the bank (03-555-1234) [as described](https://example.org/help#calls).
2. Action: Dana sends the report by Friday.
   - Thought: perhaps on Thursday already?
3. Use the `search` box, or `get_order(id)` in the console.

| name | value |
| ---- | ----- |
| tool | hammer |

"""
CODE: Final = """\
Here is the program:

```python
def total(orders: list[dict[str, int]]) -> int:
    return sum(order["price"] * order.get("count", 1) for order in orders if order["price"] < 100)
```

and its settings: {"retries": 3, "servers": ["one", "two"], "nested": {"deep": [1, 2, {"x": null}]}}

"""
HEBREW: Final = "הספרייה נפתחת בתשע ונסגרת בשמונה. פעולה: להתקשר לבנק ולשאול על ההזמנה מספר 12.\n"

ORDINARY: Final[Mapping[str, str]] = {
    "prose": PROSE, "lists and tables": MARKDOWN, "code and JSON": CODE, "Hebrew": HEBREW,
}  # fmt: skip
ADVERSARIAL: Final[Mapping[str, str]] = {
    "<<<<<<<<": "<",
    "[[[[[[[[": "[",
    "{{{{{{{{": "{",
    '{"name": {"name": …': '{"name": ',
    "````````": "`",
    "an open fence for each line": "```json\n",
    "<tool_call> never closed": "<tool_call>\n",
    "<|x|> markers": "<|tool_call_begin|> ",
    "Action: Action: …": "Action: get_order\n",
    "&lt;&lt;&lt;": "&lt;",
    "invisible characters": "<\u200bt\u200bo\u200bo\u200bl\u200b",
    "<a <b <c": "<a <b ",
    "calls of real tools": '<tool_call>{"name": "list_ticket_7", "arguments": {"id": "1"}}</tool_call>\n',
    "new lines": "\n",
    "blanks": " ",
    "quotes": '{"a": "',
}  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """Processor time, the best of some rounds."""
    found: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def clean_stream(guard: SyntaxGuard, text: str) -> None:
    stream = guard.stream()
    for at in range(0, len(text), PIECE):
        stream.feed(text[at : at + PIECE])
    stream.finish()


def fill_text(part: str, size: int) -> str:
    return (part * (size // len(part) + 1))[:size]


def row(table: Table, guard: SyntaxGuard, name: str, part: str, plain: float) -> float:
    text, short = fill_text(part, SIZE), fill_text(part, SIZE // 10)
    size = len(text.encode()) / 1e6
    whole = seconds(lambda: guard.clean(text))
    pieces, beginning = (
        seconds(lambda: clean_stream(guard, text)),
        seconds(lambda: clean_stream(guard, short)),
    )
    per_thousand = pieces * 1e3 / (count_tokens(text) / 1e3)
    plain = plain or per_thousand
    table.add_row(
        name,
        f"{size / whole:.2f}",
        f"{size / pieces:.2f}",
        f"{per_thousand:.1f}",
        f"{per_thousand / plain:.1f}",
        f"{pieces / beginning / 10:.1f}",
    )
    return plain


def measure_guard() -> Table:
    guard = SyntaxGuard(build(listings(TOOLS)).snapshot.cards)
    title = f"The guard over {SIZE:,} characters, {TOOLS} tools known (processor, best of {ROUNDS})"
    table = Table(title=title)
    columns = (
        "text",
        "MB/s whole",
        f"MB/s by {PIECE}",
        "ms per 1,000 tokens",
        "x prose",
        "x ten times as long",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "text" else "right")
    plain = 0.0
    for kind in (ORDINARY, ADVERSARIAL):
        for name, part in kind.items():
            plain = row(table, guard, name, part, plain)
        table.add_section()
    return table
