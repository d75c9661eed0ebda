"""A conversation that no longer fits, made to fit.

Where it is cut depends on the messages and the budget alone. When it has to be cut, it
is cut to half of the room, so that the cut stays where it is for many turns: each turn's
prompt then begins with the one before. A tool's reply is never parted from its call.

What the system says (a caller may have written it) is never cut: it moves to the front instead.
What was cut off is told in one summary, written by a model; without one, by how the
conversation began and how many messages are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import anyio.to_thread

from fingerpost.choose.summaries import Summaries, Summary, summarise
from fingerpost.frozen import frozen
from fingerpost.llm import Ask
from fingerpost.llm.content import SYSTEM_ROLES
from fingerpost.records import Message

Count: TypeAlias = Callable[[str], int]
Unit: TypeAlias = tuple[Message, ...]  # what stays together

PER_MESSAGE: Final = 4  # tokens around the text of a message
SUMMARY_TOKENS: Final = 800  # at most, and a quarter of the budget
_AROUND: Final = 60  # tokens of our own words around a summary
_LARGE: Final = 200_000  # characters
_EARLIER: Final = 4  # cuts looked back to for a summary that is known
CUT: Final = "cut"
_ELLIPSIS: Final = " […]"


@frozen
class Fitted:
    """A history as it goes out. `by` is empty when it went in whole."""

    history: tuple[Message, ...]
    summary: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    left_out: int = 0  # messages
    by: str = ""  # the model that wrote the summary, or "cut"


async def fit(
    ask: Ask | None,
    history: Sequence[Message],
    *,
    budget: int,
    count: Count,
    summaries: Summaries | None = None,
) -> Fitted:
    """The history within `budget` tokens, but for what the system says, which always stays whole.

    `summaries` remembers what a model wrote for the next turns.
    """
    parts = units(history)
    sizes = await _sizes(parts, count)
    before = sum(sizes)
    kept_for_sure = [_is_system(part) for part in parts]
    budget = max(0, budget - sum(size for size, sure in zip(sizes, kept_for_sure, strict=True) if sure))
    sizes = [0 if sure else size for size, sure in zip(sizes, kept_for_sure, strict=True)]
    allowance = min(SUMMARY_TOKENS, budget // 4)
    places = cuts(parts, sizes, budget=budget, room=budget - allowance - _AROUND)
    if not places:
        whole = tuple(history)
        return Fitted(history=whole, tokens_before=before, tokens_after=before)
    heads = [
        tuple(message for part in parts[:place] if not _is_system(part) for message in part)
        for place in places[-_EARLIER:]
    ]
    system = [part[0] for part in parts[: places[-1]] if _is_system(part)]
    summary = await summarise(ask, heads, tokens=allowance, memory=summaries) if heads[-1] else None
    kept = parts[places[-1] :]
    if sum(sizes[places[-1] :]) > budget - allowance - _AROUND:
        room = budget - allowance - _AROUND
        kept = [part if _is_system(part) else _shortened(part, room, count) for part in kept]
    head = _head(heads[-1], summary, allowance, count)
    fitted = _joined(head, [message for part in kept for message in part])
    after = sum(tokens_of(message, count) for message in fitted if message.role not in SYSTEM_ROLES)
    left_out = len(heads[-1])
    if after > budget:  # not even that: nothing of it can go in
        fitted = tuple(message for message in fitted if message.role in SYSTEM_ROLES)
        left_out = sum(len(part) for part in parts if not _is_system(part))
    whole = (*system, *fitted)
    return Fitted(
        history=whole,
        summary=head,
        tokens_before=before,
        tokens_after=sum(tokens_of(message, count) for message in whole),
        left_out=left_out,
        by=CUT if summary is None else summary.by,
    )


async def _sizes(parts: Sequence[Unit], count: Count) -> list[int]:
    """Tokens of each piece; of a long conversation in a thread, because counting takes a while."""

    def work() -> list[int]:
        return [sum(tokens_of(message, count) for message in part) for part in parts]

    large = sum(len(message.text) for part in parts for message in part) > _LARGE
    return await anyio.to_thread.run_sync(work) if large else work()


def tokens_of(message: Message, count: Count) -> int:
    """What one message takes."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False, default=dict) if message.tool_calls else ""
    return PER_MESSAGE + count(message.text) + (count(calls) if calls else 0)


def units(history: Sequence[Message]) -> list[Unit]:
    """The messages in the pieces that may be parted: a tool's reply belongs to what stands before it."""
    pieces: list[list[Message]] = []
    for message in history:
        if message.role == "tool" and pieces:
            pieces[-1].append(message)
        else:
            pieces.append([message])
    return [tuple(piece) for piece in pieces]


def _is_system(part: Unit) -> bool:
    return len(part) == 1 and part[0].role in SYSTEM_ROLES


def cuts(parts: Sequence[Unit], sizes: Sequence[int], *, budget: int, room: int) -> list[int]:
    """Where the conversation was cut as it grew: the last place counts, the earlier ones led to it."""
    places: list[int] = []
    start = held = 0
    for at, size in enumerate(sizes):
        held += size
        if held <= (room if places else budget):
            continue
        while start < at and held > room // 2:
            held -= sizes[start]
            start += 1
        # Best where the person speaks: what follows is then an answer to something that can be read.
        person = next((place for place in range(start, at + 1) if parts[place][0].role == "user"), start)
        held -= sum(sizes[start:person])
        start = person
        if not places or places[-1] != start:
            places.append(start)
    return places


def _head(messages: Sequence[Message], summary: Summary | None, allowance: int, count: Count) -> str:
    """What stands for the messages that were cut off."""
    if not messages:
        return ""
    if summary is not None:
        text = clip(summary.text, allowance, count)
        return f"[Summary of the {len(messages)} messages before this one, written by a model]\n{text}\n[End]"
    first = next((message.text for message in messages if message.role == "user"), "")
    began = clip(" ".join(first[:4000].split()), allowance // 2, count)
    told = f"[The conversation began with: {began}]\n" if began else ""
    return f"{told}[{len(messages)} messages are left out here]"


def _joined(head: str, kept: Sequence[Message]) -> tuple[Message, ...]:
    """The head before the person's first kept words, in one message: many models insist on taking turns."""
    if not head:
        return tuple(kept)
    if kept and kept[0].role == "user":
        return (replace(kept[0], text=f"{head}\n\n{kept[0].text}"), *kept[1:])
    return (Message(role="user", text=head), *kept)


def _shortened(part: Unit, room: int, count: Count) -> Unit:
    """One piece too large by itself: every text in it gets its share."""
    fixed = sum(tokens_of(replace(message, text=""), count) for message in part)
    share = max(0, (room - fixed) // len(part))
    return tuple(replace(message, text=clip(message.text, share, count)) for message in part)


def clip(text: str, tokens: int, count: Count) -> str:
    """A beginning of `text` that takes at most `tokens`, and says that it is one."""
    if tokens <= 0:
        return ""
    if len(text) <= tokens * 16 and count(text) <= tokens:
        return text
    fits, over = 0, min(len(text), tokens * 16) + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        if count(text[:middle] + _ELLIPSIS) <= tokens:
            fits = middle
        else:
            over = middle
    return text[:fits] + _ELLIPSIS if fits else ""
