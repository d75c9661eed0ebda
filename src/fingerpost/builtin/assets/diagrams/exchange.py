"""Who says what to whom, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.builtin.assets.diagrams.flow import head_at
from fingerpost.builtin.assets.diagrams.records import Edge, Sequence
from fingerpost.builtin.assets.drawing.shapes import (
    AXIS,
    INK,
    Mark,
    Picture,
    Shape,
    Stroke,
    Words,
    box,
    in_lines,
    shortened,
    width_of,
)

_PAD: Final = 24.0
_HEAD: Final = 40.0
_STEP: Final = 46.0
_SIZE: Final = 13.0
_TITLE: Final = 18.0
_WORDS: Final = 12.0


def draw_sequence(sequence: Sequence) -> Picture:
    """The whole diagram: participants side by side, time downwards."""
    names = [node.key for node in sequence.participants]
    widths = [min(170.0, width_of(node.text, _SIZE) + 32) for node in sequence.participants]
    places = _places(sequence, names, widths)
    above = 36.0 if sequence.title else 0.0
    top = _PAD + above
    ends = top + _HEAD + 26 + _STEP * len(sequence.messages)
    own = [message for message in sequence.messages if message.start == message.end]
    beyond = max((width_of(message.label, _WORDS) for message in own), default=0.0) + 40 if own else 0.0
    width = max(places[-1] + max(widths[-1] / 2, beyond) + _PAD, 240.0)
    marks: list[Mark] = []
    if sequence.title:
        title = shortened(sequence.title, _TITLE, width - 2 * _PAD)
        marks.append(Words(text=title, at=(_PAD, _PAD + 8), size=_TITLE, bold=True))
    for node, x, wide in zip(sequence.participants, places, widths, strict=True):
        marks.append(Stroke(points=((x, top + _HEAD), (x, ends)), colour=AXIS, width=1.2, dashed=True))
        rim = box(x - wide / 2, top, wide, _HEAD)
        marks.append(Shape(points=rim, fill="#e8f1f8", stroke="#0072b2", width=1.6, corner=6))
        text = shortened(node.text, _SIZE, wide - 16)
        marks.append(Words(text=text, at=(x, top + _HEAD / 2 + 4.5), size=_SIZE, anchor="middle", bold=True))
    at = dict(zip(names, places, strict=True))
    for number, message in enumerate(sequence.messages):
        y = top + _HEAD + 40 + _STEP * number
        marks += _said(message, at[message.start], at[message.end], y)
    return Picture(
        width=width, height=ends + _PAD, title=sequence.title or "Sequence diagram", marks=tuple(marks)
    )


def _places(sequence: Sequence, names: list[str], widths: list[float]) -> list[float]:
    """Far enough apart for what neighbours say to each other."""
    places = [_PAD + widths[0] / 2]
    for number in range(1, len(names)):
        pair = {names[number - 1], names[number]}
        said = [
            width_of(message.label, _WORDS) + (40 if message.start == message.end else 0)
            for message in sequence.messages
            if {message.start, message.end} == pair or message.start == message.end == names[number - 1]
        ]
        room = max((widths[number - 1] + widths[number]) / 2 + 30, min(260.0, max(said, default=0.0)) + 34)
        places.append(places[-1] + room)
    return places


def _said(message: Edge, start: float, end: float, y: float) -> Iterator[Mark]:
    if start == end:
        loop = ((start, y - 8), (start + 28, y - 8), (start + 28, y + 10), (start + 2, y + 10))
        yield Stroke(points=loop, colour=INK, width=1.6, dashed=message.dashed)
        yield head_at(loop[-2], loop[-1], INK)
        yield Words(text=message.label[:60], at=(start + 36, y + 5), size=_WORDS)
        return
    yield Stroke(points=((start, y), (end, y)), colour=INK, width=1.6, dashed=message.dashed)
    yield head_at((start, y), (end, y), INK)
    for line in in_lines(message.label, _WORDS, abs(end - start) - 20, 1):
        yield Words(text=line, at=((start + end) / 2, y - 7), size=_WORDS, anchor="middle")
