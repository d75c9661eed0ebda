"""The families of invented tool syntax, as tables.

Three kinds of marker carry nearly all of them: tokens in pipes (`<|tool_call|>`), tags
(`<tool_call>`) and words in square brackets (`[TOOL_CALLS]`). Each marker either opens a
block, which is hidden with what it holds, or stands for itself and is taken out alone.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from fingerpost.choose.guard.vocabulary import words
from fingerpost.frozen import frozen

_CALLING: Final = (
    r"(?:tools?|functions?|actions?|plugin|api|mcp|python|recipient|invoke|interpreter|ipython|observation"
    r"|כלי|כלים|פונקציה|פעולה|תוסף)"
)
_ENDING: Final = (
    r"(?:end|ends|ended|stop|close|closed|suffix|finish|finished|done|complete|eom|eot|סוף|סיום|סגירה)"
)


class Kind(Enum):
    """What a marker does to the text behind it."""

    BLOCK = auto()  # opens a call
    SPAN = auto()  # opens something that is hidden up to its closer: thinking aloud, mostly
    TURN = auto()  # opens somebody's turn: the role stands behind it
    CHANNEL = auto()  # opens a message whose header says for whom it is
    ALONE = auto()  # nothing


@frozen
class Marker:
    """One marker: its family, what it does, and how the block it opens ends."""

    syntax: str
    kind: Kind
    closer: re.Pattern[str] | None = None
    result: bool = False  # of what a tool is said to have answered


def _closer(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


# Tokens in pipes, by what stands between the pipes. The first that fits counts.
_TOKEN_TABLE: Final = tuple(
    (re.compile(words, re.IGNORECASE), syntax, kind)
    for words, syntax, kind in (
        (r"im_start", "chatml", Kind.TURN),
        (r"im_end|im_sep|endoftext", "chatml", Kind.ALONE),
        (r"python_tag|python_start", "llama", Kind.BLOCK),
        (r"start_header_id|header_start", "llama", Kind.TURN),
        (
            r"(?:e|b)o[tms]_id|end_header_id|header_end|eo[tms]|begin_of_text|end_of_text|python_end",
            "llama",
            Kind.ALONE,
        ),
        (r"start_of_role", "granite", Kind.TURN),
        (r"end_of_role", "granite", Kind.ALONE),
        (r"start_thinking|thinking|think|thought|begin_of_thought|reasoning", "thought", Kind.SPAN),
        (r"/?(?:end_thinking|end_of_thought|/think|/thinking|/thought)", "thought", Kind.ALONE),
        (r"start_action|start_tool_results?", "command-r", Kind.BLOCK),
        (
            r"(?:start|end)_(?:response|action|tool_results?|of_turn_token|text)|chatbot_token",
            "command-r",
            Kind.ALONE,
        ),
        (r"channel", "harmony", Kind.CHANNEL),
        (r"start", "harmony", Kind.TURN),
        (r"message|constrain|call|return|end", "harmony", Kind.ALONE),
        (r"recipient", "functionary", Kind.BLOCK),
        (r"from|content|stop", "functionary", Kind.ALONE),
        (r"pad|unk|bos|eos|eod|eop|sep|cls|mask|fim_\w+|endofprompt", "marker", Kind.ALONE),
        (r"open", "kimi", Kind.SPAN),
        (r"close|sep", "kimi", Kind.ALONE),
        (r"tool_calls?_section_begin|tool_call_argument_begin", "kimi", Kind.BLOCK),
        (r"action_start|plugin|interpreter", "internlm", Kind.BLOCK),
        (r"tools_prefix", "apertus", Kind.BLOCK),
        (r"tool_call_start", "lfm", Kind.BLOCK),
        (
            r"(?:dsml\|?)?(?:tool_?calls?_?begin|tool_?outputs?_?begin|tool_sep|function_calls|invoke|dsml)",
            "deepseek",
            Kind.BLOCK,
        ),
        (r"begin_?of_?sentence|end_?of_?sentence", "deepseek", Kind.ALONE),
        (r"user|system|developer|human|tool|function|ipython|observation|environment", "chatml", Kind.TURN),
        (r"assistant|bot|model", "chatml", Kind.ALONE),
        (r"tool_calls?", "granite", Kind.BLOCK),
        (r"/tool_calls?", "phi", Kind.ALONE),
    )
)
_RESULT: Final = re.compile(r"result|output|response|observation|תוצא", re.IGNORECASE)
_HEBREW: Final = re.compile(r"[א-ת]")
_SPELLING: Final = re.compile(r"[\s_\-]+")
_IS_ENDING: Final = re.compile(rf"(?:\A/|(?:\A|_){_ENDING}(?:_|\Z))", re.IGNORECASE)
_IS_CALLING: Final = re.compile(rf"(?:\A|_){_CALLING}(?:_|\Z|calls?)", re.IGNORECASE)
# Any next token in pipes that is an end, or the written-out end of the older relatives.
TOKEN_CLOSER: Final = _closer(
    rf"<\|\s*(?:/[^|<>\n]{{1,60}}|(?:[^|<>\n]{{0,60}}[\s_])?{_ENDING}(?:[\s_][^|<>\n]{{0,60}}|_id)?|call|im_end|endoftext)\s*\|>"
    r"|<[^|<>\n]{1,40}\|>"
)
_THOUGHT_CLOSER: Final = _closer(
    r"<\|?\s*/?\s*(?:end_thinking|end_of_thought|/?think|/?thinking|/?thought|/?reasoning)\s*\|?>"
    r"|<\|start_(?:response|action)\|>"
)

_SPAN_CLOSERS: Final = {
    "thought": _THOUGHT_CLOSER,
    "kimi": _closer(r"<\|close\|>(?:tools|message)\w{0,20}<\|sep\|>"),
}
_DSML: Final = re.compile(r"/?dsml\|(/?\w+)", re.IGNORECASE)


def token(inner: str) -> Marker:
    """The marker `<|inner|>`: every such token is one, known or not."""
    if dsml := _DSML.match(inner):
        closing = inner.startswith("/") or dsml[1].startswith("/")
        return Marker(
            syntax="deepseek",
            kind=Kind.ALONE if closing else Kind.BLOCK,
            closer=_closer(rf"<\|?\s*/\s*\|?dsml\|{dsml[1].lstrip('/')}>"),
        )
    plain = _SPELLING.sub("_", inner.strip())
    for pattern, syntax, kind in _TOKEN_TABLE:
        if pattern.fullmatch(plain):
            closer = _SPAN_CLOSERS.get(syntax, TOKEN_CLOSER)
            return Marker(syntax=syntax, kind=kind, closer=closer, result=is_result(plain))
    syntax = "hebrew" if _HEBREW.search(plain) else "marker"
    opens = _IS_CALLING.search(plain) and not _IS_ENDING.search(plain)
    kind = Kind.BLOCK if opens else Kind.ALONE
    return Marker(syntax=syntax, kind=kind, closer=TOKEN_CLOSER, result=is_result(plain))


def is_result(name: str) -> bool:
    """Whether a marker of this name opens what a tool is said to have answered."""
    return _RESULT.search(name) is not None


def sure_token(inner: str) -> bool:
    """Whether the words between the pipes are a marker's even with spaces around them, or cut short."""
    plain = _SPELLING.sub("_", inner.strip())
    return any(pattern.fullmatch(plain) for pattern, _, _ in _TOKEN_TABLE) or bool(_IS_CALLING.search(plain))


_ROLE_FOLLOWS: Final = frozenset({"im_start", "start_header_id", "header_start", "start_of_role", "start"})
_TOKEN_WORDS: Final = words(
    "im_start im_end im_sep endoftext python_tag python_start start_header_id end_header_id"
    " header_start eot_id eom_id begin_of_text end_of_text start_of_role end_of_role start_thinking"
    " end_thinking start_action end_action start_tool_result start_response channel message constrain"
    " recipient content tool_call tool_calls_section_begin tool_calls_begin tool_call_begin tool_sep"
    " action_start plugin tools_prefix tool_call_start begin_of_sentence end_of_sentence assistant"
    " system function_calls start_of_tool_call start_of_memory_helper_tool_call"
)


def expects_role(inner: str) -> bool:
    return _SPELLING.sub("_", inner.strip()).casefold() in _ROLE_FOLLOWS


def token_begun(rest: str) -> bool:
    """Whether a text that ends here ended within a token: what stands so far is the start of one."""
    plain = _SPELLING.sub("_", rest.rstrip("|").strip()).casefold()
    if len(plain) < 3:
        return False
    return any(word.startswith(plain) or plain.startswith(word) for word in _TOKEN_WORDS) or bool(
        _IS_CALLING.search(plain)
    )
