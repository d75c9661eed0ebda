"""What an opened marker does: hide its block, or stay, when such syntax is what the talk is about."""

from __future__ import annotations

from typing import Final

from fingerpost.choose.guard.forms import Kind, Marker
from fingerpost.choose.guard.modes import Body, Channel, Turn, Until
from fingerpost.choose.guard.reading import read_calls
from fingerpost.choose.guard.verdicts import WAIT, Hide, Mode, Place, Show, Verdict

_UNSEEN: Final = 4_000
_QUOTES: Final = frozenset("\"'“”‘’«»״׳")


def _mode(marker: Marker) -> Mode | None:
    if marker.kind is Kind.BLOCK:
        return Body(marker.closer)
    if marker.kind is Kind.TURN:
        return Until(marker.closer) if marker.closer is not None else Turn()
    if marker.kind is Kind.SPAN and marker.closer is not None:
        return Until(marker.closer)
    return Channel() if marker.kind is Kind.CHANNEL else None


def opened(place: Place, end: int, marker: Marker) -> Verdict:
    """A marker that certainly is one: hidden, unless syntax is the subject and no real tool is meant."""
    if place.about:
        return _subject(place, end, marker)
    mute = marker.result or marker.kind is Kind.TURN
    return Hide(end, marker.syntax, _mode(marker), alone=marker.kind is Kind.ALONE, mute=mute)


def _subject(place: Place, end: int, marker: Marker) -> Verdict:
    if marker.kind is not Kind.BLOCK:
        return Show(end)
    mode = Body(marker.closer)
    text = place.text[: place.limit]
    at, done = end, False
    while not done:
        to, done = mode.step(text, at, final=place.closed)
        if to == at and not done:
            return WAIT
        at = to
    calls = read_calls(text[place.at : at], place.names)
    if any(place.names.knows(call.written) for call in calls):
        return Hide(at, marker.syntax)
    # What has no end is not shown unseen as a whole: there may be a call further on.
    return Show(at if at < place.limit or place.final else min(at, end + _UNSEEN))


def quoted_alone(place: Place, end: int) -> bool | None:
    """Whether the marker stands in quotation marks by itself; None: the closing one may still come."""
    if place.before[-1:] not in _QUOTES or not place.before:
        return False
    behind, complete = place.ahead(end, 1)
    if not behind and not complete:
        return None
    return behind in _QUOTES and bool(behind)
