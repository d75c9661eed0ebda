"""Who says what to whom, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.builtin.assets.diagrams.flow import build_arrow_head
from fingerpost.builtin.assets.diagrams.records import DiagramEdge, SequenceDiagram
from fingerpost.builtin.assets.drawing.shapes import (
    AXIS_COLOUR,
    INK_COLOUR,
    LineStroke,
    OutlineShape,
    Picture,
    PictureMark,
    TextLine,
    build_box,
    estimate_width,
    shorten_text,
    wrap_text,
)

_SEQUENCE_PADDING: Final = 24.0
_HEAD_HEIGHT: Final = 40.0
_MESSAGE_STEP: Final = 46.0
_SEQUENCE_TEXT_SIZE: Final = 13.0
_SEQUENCE_TITLE_SIZE: Final = 18.0
_MESSAGE_TEXT_SIZE: Final = 12.0


def draw_sequence(sequence: SequenceDiagram) -> Picture:
    """The whole diagram: participants side by side, time downwards."""
    names = [node.key for node in sequence.participants]
    widths = [
        min(170.0, estimate_width(node.text, _SEQUENCE_TEXT_SIZE) + 32) for node in sequence.participants
    ]
    places = _compute_columns(sequence, names, widths)
    above = 36.0 if sequence.title else 0.0
    top = _SEQUENCE_PADDING + above
    ends = top + _HEAD_HEIGHT + 26 + _MESSAGE_STEP * len(sequence.messages)
    own = [message for message in sequence.messages if message.start == message.end]
    beyond = (
        max((estimate_width(message.label, _MESSAGE_TEXT_SIZE) for message in own), default=0.0) + 40
        if own
        else 0.0
    )
    width = max(places[-1] + max(widths[-1] / 2, beyond) + _SEQUENCE_PADDING, 240.0)
    marks: list[PictureMark] = []
    if sequence.title:
        title = shorten_text(sequence.title, _SEQUENCE_TITLE_SIZE, width - 2 * _SEQUENCE_PADDING)
        marks.append(
            TextLine(
                text=title,
                at=(_SEQUENCE_PADDING, _SEQUENCE_PADDING + 8),
                size=_SEQUENCE_TITLE_SIZE,
                bold=True,
            )
        )
    for node, x, wide in zip(sequence.participants, places, widths, strict=True):
        marks.append(
            LineStroke(
                points=((x, top + _HEAD_HEIGHT), (x, ends)), colour=AXIS_COLOUR, width=1.2, dashed=True
            )
        )
        rim = build_box(x - wide / 2, top, wide, _HEAD_HEIGHT)
        marks.append(OutlineShape(points=rim, fill="#e8f1f8", stroke="#0072b2", width=1.6, corner=6))
        text = shorten_text(node.text, _SEQUENCE_TEXT_SIZE, wide - 16)
        marks.append(
            TextLine(
                text=text,
                at=(x, top + _HEAD_HEIGHT / 2 + 4.5),
                size=_SEQUENCE_TEXT_SIZE,
                anchor="middle",
                bold=True,
            )
        )
    at = dict(zip(names, places, strict=True))
    for number, message in enumerate(sequence.messages):
        y = top + _HEAD_HEIGHT + 40 + _MESSAGE_STEP * number
        marks += _draw_message(message, at[message.start], at[message.end], y)
    return Picture(
        width=width,
        height=ends + _SEQUENCE_PADDING,
        title=sequence.title or "Sequence diagram",
        marks=tuple(marks),
    )


def _compute_columns(sequence: SequenceDiagram, names: list[str], widths: list[float]) -> list[float]:
    """Far enough apart for what neighbours say to each other."""
    places = [_SEQUENCE_PADDING + widths[0] / 2]
    for number in range(1, len(names)):
        pair = {names[number - 1], names[number]}
        said = [
            estimate_width(message.label, _MESSAGE_TEXT_SIZE) + (40 if message.start == message.end else 0)
            for message in sequence.messages
            if {message.start, message.end} == pair or message.start == message.end == names[number - 1]
        ]
        room = max((widths[number - 1] + widths[number]) / 2 + 30, min(260.0, max(said, default=0.0)) + 34)
        places.append(places[-1] + room)
    return places


def _draw_message(message: DiagramEdge, start: float, end: float, y: float) -> Iterator[PictureMark]:
    if start == end:
        loop = ((start, y - 8), (start + 28, y - 8), (start + 28, y + 10), (start + 2, y + 10))
        yield LineStroke(points=loop, colour=INK_COLOUR, width=1.6, dashed=message.dashed)
        yield build_arrow_head(loop[-2], loop[-1], INK_COLOUR)
        yield TextLine(text=message.label[:60], at=(start + 36, y + 5), size=_MESSAGE_TEXT_SIZE)
        return
    yield LineStroke(points=((start, y), (end, y)), colour=INK_COLOUR, width=1.6, dashed=message.dashed)
    yield build_arrow_head((start, y), (end, y), INK_COLOUR)
    for line in wrap_text(message.label, _MESSAGE_TEXT_SIZE, abs(end - start) - 20, 1):
        yield TextLine(text=line, at=((start + end) / 2, y - 7), size=_MESSAGE_TEXT_SIZE, anchor="middle")
