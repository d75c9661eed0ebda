"""The insides of hidden blocks: where each kind ends. Nothing hidden is kept here, however long it is."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.brackets import BracketReader
from fingerpost.choose.guard.forms import TOKEN_CLOSER
from fingerpost.choose.guard.verdicts import HiddenMode

_MAX_CLOSER_LENGTH: Final = 200
_MAX_HEAD_LENGTH: Final = 240
_MAX_GAP_LENGTH: Final = 200
# What may stand between a marker and the JSON of its call: a name, other markers, an opened fence.
_BODY_HEAD: Final = re.compile(
    r"(?:[\s\w.\-/:=\"'`,✿]|<\|(?!\s*(?:/|end\b|call\b))(?![^|<>\n]{0,60}[\s_](?:end"
    r"|סוף))[^|<>\n]{1,60}\|>|\[(?:ARGS|CALL_ID)\])*",
    re.IGNORECASE,
)
_BODY_GAP: Final = re.compile(r"[\s,;]*")
_TURN_ROLE: Final = re.compile(r"\s{0,4}([^\W\d][\w.]{0,60})")
_ASSISTANT_ROLES: Final = frozenset({"assistant", "model", "bot", "chatbot", "ai"})
TURN_CLOSER: Final = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|end_of_text|endoftext|end|return|call)\|>"
    r"|(?=<\|(?:im_start|start_header_id|start_of_role|start|assistant)\|>)",
    re.IGNORECASE,
)
_ANALYSIS_CLOSER: Final = re.compile(r"<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)", re.IGNORECASE)


class UntilCloser:
    """Hidden up to and with the closing marker, or to the end."""

    def __init__(self, closer: re.Pattern[str]) -> None:
        self._closer = closer

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        found = self._closer.search(text, at)
        # A closer that touches the end of what has come may still grow.
        if found is not None and (final or found.end() < len(text)):
            return found.end(), True
        if final:
            return len(text), True
        edge = found.start() if found is not None else len(text) - _MAX_CLOSER_LENGTH
        return max(at, edge), False


class MarkedCall:
    """A call behind its marker: JSON, ending with the JSON, or anything else up to the closing marker."""

    def __init__(self, closer: re.Pattern[str] | None) -> None:
        self._until = UntilCloser(closer or TOKEN_CLOSER)
        self._brackets: BracketReader | None = None
        self._phase = self._skip_head

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        while True:
            phase = self._phase
            at, done = phase(text, at, final=final)
            if done or self._phase == phase:
                return at, done

    def _skip_head(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        found = _BODY_HEAD.match(text, at, at + _MAX_HEAD_LENGTH)
        stop = found.end() if found is not None else at
        if stop == len(text) and stop < at + _MAX_HEAD_LENGTH and not final:
            return at, False
        if not final and _is_half_marker(text, stop):
            return at, False
        if text[stop : stop + 1] in ("{", "["):
            self._phase = self._skip_value
            return stop, False
        self._phase = self._skip_to_closer
        return at, False

    def _skip_value(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        brackets = self._brackets = self._brackets or BracketReader()
        end = brackets.find_end(text, at, final=final)
        if end is None:
            return brackets.at, final
        self._brackets = None
        if brackets.broken:
            return end, True
        self._phase = self._skip_gap
        return end, False

    def _skip_gap(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """More JSON belongs to the same block, and so does the end of a fence; prose does not."""
        found = _BODY_GAP.match(text, at, at + _MAX_GAP_LENGTH)
        stop = found.end() if found is not None else at
        seen = text[stop : stop + 3]
        if len(seen) < 3 and stop < at + _MAX_GAP_LENGTH and not final:
            return at, False
        if seen.startswith("{") or re.match(r"\[\s*\{", seen):
            self._phase = self._skip_value
            return stop, False
        return (stop + 3 if seen == "```" else at), True

    def _skip_to_closer(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        return self._until.step(text, at, final=final)


def _is_half_marker(text: str, at: int) -> bool:
    """Whether a marker has begun here and not all of it has come."""
    rest = text[at : at + _MAX_HEAD_LENGTH]
    if rest.startswith("<"):
        return len(rest) < _MAX_HEAD_LENGTH and ">" not in rest
    return rest.startswith("[") and any(word.startswith(rest.upper()) for word in ("[ARGS]", "[CALL_ID]"))


class ConversationTurn:
    """A turn of a conversation: somebody else's is hidden, of the assistant's own only the heading."""

    def __init__(self) -> None:
        self._until: UntilCloser | None = None

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        if self._until is None:
            role = _TURN_ROLE.match(text, at)
            if role is None:
                rest = text[at : at + 5]
                return at, final or len(rest) > 4 or bool(rest.strip())
            if role.end() == len(text) and not final:
                return at, False
            if role[1].casefold() in _ASSISTANT_ROLES:
                return role.end(), True
            self._until = UntilCloser(TURN_CLOSER)
        return self._until.step(text, at, final=final)


_CHANNEL_HEADER_END: Final = re.compile(r"<\|message\|>", re.IGNORECASE)


class ChannelMessage:
    """A message whose header says whether it is a call, a thought, or for the reader."""

    def __init__(self) -> None:
        self._mode: HiddenMode | None = None

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        if self._mode is None:
            end = _CHANNEL_HEADER_END.search(text, at, at + _MAX_HEAD_LENGTH)
            if end is None and len(text) - at < _MAX_HEAD_LENGTH and not final:
                return at, False
            header = text[at : end.start()] if end is not None else text[at : at + 40]
            stop = end.end() if end is not None else at
            if re.search(r"\bto=(?!assistant|user|all)", header):
                self._mode = MarkedCall(None)
            elif re.match(r"\s*analysis", header, re.IGNORECASE):
                self._mode = UntilCloser(_ANALYSIS_CLOSER)
            else:
                word = re.match(r"\s*(?:final|commentary)?", header)
                return (stop if end is not None else at + (word.end() if word else 0)), True
            at = stop
        return self._mode.step(text, at, final=final)
