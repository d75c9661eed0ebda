"""Markers in angle brackets: which kind the `<` begins, and the tokens in pipes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.forms import Kind, Marker
from fingerpost.choose.guard.modes import TURN_CLOSER, Body
from fingerpost.choose.guard.opening import opened, quoted_alone
from fingerpost.choose.guard.tagging import examine_tag
from fingerpost.choose.guard.tags import STRONG, tag_name
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict

_PIPES: Final = re.compile(r"<\|([^|<>\n]{1,80})\|>|<\|(/?DSML\|[^<>\n]{1,200}|/?[^\W\d]\w{2,40})>")
_PIPES_BEGUN: Final = re.compile(r"<\|(?:[^|<>\n]{0,80}\|?|/?DSML\|[^<>\n]{0,200})\Z", re.IGNORECASE)
# An unknown token: two words or a long one. Physicists and F# write short ones between such signs.
_UNKNOWN: Final = re.compile(r"(?=[^|<>\n]*[\w][ _][\w]|[^|<>\n]{10})[\w/][^|<>\n]*[\w.!?)]\Z")


def examine_marker(place: Place) -> Verdict:
    """What the `<` at this place begins."""
    second, complete = place.ahead(place.at + 1, 1)
    if not second:
        return Show(place.at + 1) if complete else WAIT
    if second == "<":
        return _double(place)
    return _pipes(place) if second == "|" else examine_tag(place)


_DOUBLE: Final = re.compile(r"<<\s?(/?)\s?([^\W\d][\w \-]{1,40})>>")
_DOUBLE_BEGUN: Final = re.compile(r"<<\s?/?\s?[\w \-]{0,41}>?\Z")


def _double(place: Place) -> Verdict:
    """`<<tool_call>>`"""
    rest, complete = place.ahead(place.at, 50)
    found = _DOUBLE.match(rest)
    if found is None:
        return WAIT if _DOUBLE_BEGUN.match(rest) and not complete else Show(place.at + 1)
    end = place.at + found.end()
    if tag_name(found[2]) not in STRONG or place.about:
        return Show(end)
    closer = re.compile(rf"<<\s?/\s?{re.escape(found[2])}\s?>>", re.IGNORECASE)
    return Hide(end, "marker", None if found[1] else Body(closer), alone=bool(found[1]))


def _pipes(place: Place) -> Verdict:
    found = _PIPES.match(place.text, place.at)
    if found is None:
        rest, complete = place.ahead(place.at, 300)
        if _PIPES_BEGUN.match(rest):
            if not complete:
                return WAIT
            if place.final and forms.token_begun(rest[2:]):
                return Hide(len(place.text), forms.token(rest[2:].rstrip("|")).syntax)
        return Show(place.at + 2)
    inner = found[1] or found[2]
    if not (forms.sure_token(inner) or _UNKNOWN.match(inner)):
        return Show(place.at + 2)
    quoted = quoted_alone(place, found.end())
    if quoted is not False:
        return WAIT if quoted is None else Show(found.end())
    return opened(place, found.end(), _with_turn(forms.token(inner), inner))


def _with_turn(marker: Marker, inner: str) -> Marker:
    """`<|user|>` names the role itself; behind `<|im_start|>` it still has to come."""
    if marker.kind is Kind.TURN and not forms.expects_role(inner):
        return replace(marker, closer=TURN_CLOSER)
    return replace(marker, closer=None) if marker.kind is Kind.TURN else marker
