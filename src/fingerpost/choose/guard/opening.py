"""What an opened marker does: hide its block, or stay, when such syntax is what the talk is about."""

from __future__ import annotations

from typing import Final

from fingerpost.choose.guard.forms import MarkerKind, SyntaxMarker
from fingerpost.choose.guard.modes import ChannelMessage, ConversationTurn, MarkedCall, UntilCloser
from fingerpost.choose.guard.reading import parse_calls
from fingerpost.choose.guard.verdicts import (
    WAIT_FOR_MORE,
    HiddenMode,
    HideUntil,
    ScanPosition,
    ScanVerdict,
    ShowUntil,
)

_MAX_UNSEEN_LENGTH: Final = 4_000
_QUOTE_MARKS: Final = frozenset("\"'“”‘’«»״׳")


def _create_mode(marker: SyntaxMarker) -> HiddenMode | None:
    if marker.kind is MarkerKind.BLOCK:
        return MarkedCall(marker.closer)
    if marker.kind is MarkerKind.TURN:
        return UntilCloser(marker.closer) if marker.closer is not None else ConversationTurn()
    if marker.kind is MarkerKind.SPAN and marker.closer is not None:
        return UntilCloser(marker.closer)
    return ChannelMessage() if marker.kind is MarkerKind.CHANNEL else None


def examine_open_marker(position: ScanPosition, end: int, marker: SyntaxMarker) -> ScanVerdict:
    """A marker that certainly is one: hidden, unless syntax is the subject and no real tool is meant."""
    if position.is_about_syntax:
        return _examine_as_subject(position, end, marker)
    mute = marker.is_result or marker.kind is MarkerKind.TURN
    return HideUntil(
        end, marker.syntax, _create_mode(marker), is_stray=marker.kind is MarkerKind.ALONE, has_no_calls=mute
    )


def _examine_as_subject(position: ScanPosition, end: int, marker: SyntaxMarker) -> ScanVerdict:
    if marker.kind is not MarkerKind.BLOCK:
        return ShowUntil(end)
    mode = MarkedCall(marker.closer)
    text = position.text[: position.limit]
    at, done = end, False
    while not done:
        to, done = mode.step(text, at, final=position.is_closed)
        if to == at and not done:
            return WAIT_FOR_MORE
        at = to
    calls = parse_calls(text[position.at : at], position.names)
    if any(position.names.is_known(call.name) for call in calls):
        return HideUntil(at, marker.syntax)
    # What has no end is not shown unseen as a whole: there may be a call further on.
    return ShowUntil(at if at < position.limit or position.final else min(at, end + _MAX_UNSEEN_LENGTH))


def is_quoted_alone(position: ScanPosition, end: int) -> bool | None:
    """Whether the marker stands in quotation marks by itself; None: the closing one may still come."""
    if position.before[-1:] not in _QUOTE_MARKS or not position.before:
        return False
    behind, complete = position.look_ahead(end, 1)
    if not behind and not complete:
        return None
    return behind in _QUOTE_MARKS and bool(behind)
