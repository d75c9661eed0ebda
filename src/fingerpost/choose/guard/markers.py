"""Markers in angle brackets: which kind the `<` begins, and the tokens in pipes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.forms import MarkerKind, SyntaxMarker
from fingerpost.choose.guard.modes import TURN_CLOSER, MarkedCall
from fingerpost.choose.guard.opening import examine_open_marker, is_quoted_alone
from fingerpost.choose.guard.tagging import examine_tag
from fingerpost.choose.guard.tags import STRONG_TAGS, normalize_tag_name
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil

_PIPE_TOKEN: Final = re.compile(r"<\|([^|<>\n]{1,80})\|>|<\|(/?DSML\|[^<>\n]{1,200}|/?[^\W\d]\w{2,40})>")
_PIPE_TOKEN_START: Final = re.compile(r"<\|(?:[^|<>\n]{0,80}\|?|/?DSML\|[^<>\n]{0,200})\Z", re.IGNORECASE)
# An unknown token: two words or a long one. Physicists and F# write short ones between such signs.
_UNKNOWN_MARKER: Final = re.compile(r"(?=[^|<>\n]*[\w][ _][\w]|[^|<>\n]{10})[\w/][^|<>\n]*[\w.!?)]\Z")


def examine_marker(position: ScanPosition) -> ScanVerdict:
    """What the `<` at this place begins."""
    second, complete = position.look_ahead(position.at + 1, 1)
    if not second:
        return ShowUntil(position.at + 1) if complete else WAIT_FOR_MORE
    if second == "<":
        return _examine_double_brackets(position)
    return _examine_pipe_token(position) if second == "|" else examine_tag(position)


_DOUBLE_BRACKETS: Final = re.compile(r"<<\s?(/?)\s?([^\W\d][\w \-]{1,40})>>")
_DOUBLE_BRACKETS_START: Final = re.compile(r"<<\s?/?\s?[\w \-]{0,41}>?\Z")


def _examine_double_brackets(position: ScanPosition) -> ScanVerdict:
    """`<<tool_call>>`"""
    rest, complete = position.look_ahead(position.at, 50)
    found = _DOUBLE_BRACKETS.match(rest)
    if found is None:
        return (
            WAIT_FOR_MORE
            if _DOUBLE_BRACKETS_START.match(rest) and not complete
            else ShowUntil(position.at + 1)
        )
    end = position.at + found.end()
    if normalize_tag_name(found[2]) not in STRONG_TAGS or position.is_about_syntax:
        return ShowUntil(end)
    closer = re.compile(rf"<<\s?/\s?{re.escape(found[2])}\s?>>", re.IGNORECASE)
    return HideUntil(end, "marker", None if found[1] else MarkedCall(closer), is_stray=bool(found[1]))


def _examine_pipe_token(position: ScanPosition) -> ScanVerdict:
    found = _PIPE_TOKEN.match(position.text, position.at)
    if found is None:
        rest, complete = position.look_ahead(position.at, 300)
        if _PIPE_TOKEN_START.match(rest):
            if not complete:
                return WAIT_FOR_MORE
            if position.final and forms.is_unfinished_token(rest[2:]):
                return HideUntil(len(position.text), forms.build_token_marker(rest[2:].rstrip("|")).syntax)
        return ShowUntil(position.at + 2)
    inner = found[1] or found[2]
    if not (forms.is_sure_token(inner) or _UNKNOWN_MARKER.match(inner)):
        return ShowUntil(position.at + 2)
    quoted = is_quoted_alone(position, found.end())
    if quoted is not False:
        return WAIT_FOR_MORE if quoted is None else ShowUntil(found.end())
    return examine_open_marker(position, found.end(), _add_turn_role(forms.build_token_marker(inner), inner))


def _add_turn_role(marker: SyntaxMarker, inner: str) -> SyntaxMarker:
    """`<|user|>` names the role itself; behind `<|im_start|>` it still has to come."""
    if marker.kind is MarkerKind.TURN and not forms.is_role_expected(inner):
        return replace(marker, closer=TURN_CLOSER)
    return replace(marker, closer=None) if marker.kind is MarkerKind.TURN else marker
