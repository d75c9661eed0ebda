"""The families of invented tool syntax, as tables.

Three kinds of marker carry nearly all of them: tokens in pipes (`<|tool_call|>`), tags
(`<tool_call>`) and words in square brackets (`[TOOL_CALLS]`). Each marker either opens a
block, which is hidden with what it holds, or stands for itself and is taken out alone.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from fingerpost.choose.guard.vocabulary import split_words
from fingerpost.frozen import frozen

_CALL_WORD_PATTERN: Final = (
    r"(?:tools?|functions?|actions?|plugin|api|mcp|python|recipient|invoke|interpreter|ipython|observation"
    r"|כלי|כלים|פונקציה|פעולה|תוסף)"
)
_END_WORD_PATTERN: Final = (
    r"(?:end|ends|ended|stop|close|closed|suffix|finish|finished|done|complete|eom|eot|סוף|סיום|סגירה)"
)


class MarkerKind(Enum):
    """What a marker does to the text behind it."""

    BLOCK = auto()  # opens a call
    SPAN = auto()  # opens something that is hidden up to its closer: thinking aloud, mostly
    TURN = auto()  # opens somebody's turn: the role stands behind it
    CHANNEL = auto()  # opens a message whose header says for whom it is
    ALONE = auto()  # nothing


@frozen
class SyntaxMarker:
    """One marker: its family, what it does, and how the block it opens ends."""

    syntax: str
    kind: MarkerKind
    closer: re.Pattern[str] | None = None
    is_result: bool = False  # of what a tool is said to have answered


def _build_closer(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


# Tokens in pipes, by what stands between the pipes. The first that fits counts.
_TOKEN_TABLE: Final = tuple(
    (re.compile(words, re.IGNORECASE), syntax, kind)
    for words, syntax, kind in (
        (r"im_start", "chatml", MarkerKind.TURN),
        (r"im_end|im_sep|endoftext", "chatml", MarkerKind.ALONE),
        (r"python_tag|python_start", "llama", MarkerKind.BLOCK),
        (r"start_header_id|header_start", "llama", MarkerKind.TURN),
        (
            r"(?:e|b)o[tms]_id|end_header_id|header_end|eo[tms]|begin_of_text|end_of_text|python_end",
            "llama",
            MarkerKind.ALONE,
        ),
        (r"start_of_role", "granite", MarkerKind.TURN),
        (r"end_of_role", "granite", MarkerKind.ALONE),
        (r"start_thinking|thinking|think|thought|begin_of_thought|reasoning", "thought", MarkerKind.SPAN),
        (r"/?(?:end_thinking|end_of_thought|/think|/thinking|/thought)", "thought", MarkerKind.ALONE),
        (r"start_action|start_tool_results?", "command-r", MarkerKind.BLOCK),
        (
            r"(?:start|end)_(?:response|action|tool_results?|of_turn_token|text)|chatbot_token",
            "command-r",
            MarkerKind.ALONE,
        ),
        (r"channel", "harmony", MarkerKind.CHANNEL),
        (r"start", "harmony", MarkerKind.TURN),
        (r"message|constrain|call|return|end", "harmony", MarkerKind.ALONE),
        (r"recipient", "functionary", MarkerKind.BLOCK),
        (r"from|content|stop", "functionary", MarkerKind.ALONE),
        (r"pad|unk|bos|eos|eod|eop|sep|cls|mask|fim_\w+|endofprompt", "marker", MarkerKind.ALONE),
        (r"open", "kimi", MarkerKind.SPAN),
        (r"close|sep", "kimi", MarkerKind.ALONE),
        (r"tool_calls?_section_begin|tool_call_argument_begin", "kimi", MarkerKind.BLOCK),
        (r"action_start|plugin|interpreter", "internlm", MarkerKind.BLOCK),
        (r"tools_prefix", "apertus", MarkerKind.BLOCK),
        (r"tool_call_start", "lfm", MarkerKind.BLOCK),
        (
            r"(?:dsml\|?)?(?:tool_?calls?_?begin|tool_?outputs?_?begin|tool_sep|function_calls|invoke|dsml)",
            "deepseek",
            MarkerKind.BLOCK,
        ),
        (r"begin_?of_?sentence|end_?of_?sentence", "deepseek", MarkerKind.ALONE),
        (
            r"user|system|developer|human|tool|function|ipython|observation|environment",
            "chatml",
            MarkerKind.TURN,
        ),
        (r"assistant|bot|model", "chatml", MarkerKind.ALONE),
        (r"tool_calls?", "granite", MarkerKind.BLOCK),
        (r"/tool_calls?", "phi", MarkerKind.ALONE),
    )
)
_RESULT_NAME: Final = re.compile(r"result|output|response|observation|תוצא", re.IGNORECASE)
_HEBREW_MARKER: Final = re.compile(r"[א-ת]")
_TOKEN_SPELLING: Final = re.compile(r"[\s_\-]+")
_ENDING_TOKEN: Final = re.compile(rf"(?:\A/|(?:\A|_){_END_WORD_PATTERN}(?:_|\Z))", re.IGNORECASE)
_CALLING_TOKEN: Final = re.compile(rf"(?:\A|_){_CALL_WORD_PATTERN}(?:_|\Z|calls?)", re.IGNORECASE)
# Any next token in pipes that is an end, or the written-out end of the older relatives.
TOKEN_CLOSER: Final = _build_closer(
    rf"<\|\s*(?:/[^|<>\n]{{1,60}}|(?:[^|<>\n]{{0,60}}[\s_])?{_END_WORD_PATTERN}(?:[\s_][^|<>\n]{{0,60}}|_id)?|call|im_end|endoftext)\s*\|>"
    r"|<[^|<>\n]{1,40}\|>"
)
_THOUGHT_CLOSER: Final = _build_closer(
    r"<\|?\s*/?\s*(?:end_thinking|end_of_thought|/?think|/?thinking|/?thought|/?reasoning)\s*\|?>"
    r"|<\|start_(?:response|action)\|>"
)

_SPAN_CLOSERS: Final = {
    "thought": _THOUGHT_CLOSER,
    "kimi": _build_closer(r"<\|close\|>(?:tools|message)\w{0,20}<\|sep\|>"),
}
_DSML_TOKEN: Final = re.compile(r"/?dsml\|(/?\w+)", re.IGNORECASE)


def build_token_marker(inner: str) -> SyntaxMarker:
    """The marker `<|inner|>`: every such token is one, known or not."""
    if dsml := _DSML_TOKEN.match(inner):
        closing = inner.startswith("/") or dsml[1].startswith("/")
        return SyntaxMarker(
            syntax="deepseek",
            kind=MarkerKind.ALONE if closing else MarkerKind.BLOCK,
            closer=_build_closer(rf"<\|?\s*/\s*\|?dsml\|{dsml[1].lstrip('/')}>"),
        )
    plain = _TOKEN_SPELLING.sub("_", inner.strip())
    for pattern, syntax, kind in _TOKEN_TABLE:
        if pattern.fullmatch(plain):
            closer = _SPAN_CLOSERS.get(syntax, TOKEN_CLOSER)
            return SyntaxMarker(syntax=syntax, kind=kind, closer=closer, is_result=is_result_name(plain))
    syntax = "hebrew" if _HEBREW_MARKER.search(plain) else "marker"
    opens = _CALLING_TOKEN.search(plain) and not _ENDING_TOKEN.search(plain)
    kind = MarkerKind.BLOCK if opens else MarkerKind.ALONE
    return SyntaxMarker(syntax=syntax, kind=kind, closer=TOKEN_CLOSER, is_result=is_result_name(plain))


def is_result_name(name: str) -> bool:
    """Whether a marker of this name opens what a tool is said to have answered."""
    return _RESULT_NAME.search(name) is not None


def is_sure_token(inner: str) -> bool:
    """Whether the words between the pipes are a marker's even with spaces around them, or cut short."""
    plain = _TOKEN_SPELLING.sub("_", inner.strip())
    return any(pattern.fullmatch(plain) for pattern, _, _ in _TOKEN_TABLE) or bool(
        _CALLING_TOKEN.search(plain)
    )


_ROLE_FOLLOWS: Final = frozenset({"im_start", "start_header_id", "header_start", "start_of_role", "start"})
_TOKEN_WORDS: Final = split_words(
    "im_start im_end im_sep endoftext python_tag python_start start_header_id end_header_id"
    " header_start eot_id eom_id begin_of_text end_of_text start_of_role end_of_role start_thinking"
    " end_thinking start_action end_action start_tool_result start_response channel message constrain"
    " recipient content tool_call tool_calls_section_begin tool_calls_begin tool_call_begin tool_sep"
    " action_start plugin tools_prefix tool_call_start begin_of_sentence end_of_sentence assistant"
    " system function_calls start_of_tool_call start_of_memory_helper_tool_call"
)


def is_role_expected(inner: str) -> bool:
    return _TOKEN_SPELLING.sub("_", inner.strip()).casefold() in _ROLE_FOLLOWS


def is_unfinished_token(rest: str) -> bool:
    """Whether a text that ends here ended within a token: what stands so far is the start of one."""
    plain = _TOKEN_SPELLING.sub("_", rest.rstrip("|").strip()).casefold()
    if len(plain) < 3:
        return False
    return any(word.startswith(plain) or plain.startswith(word) for word in _TOKEN_WORDS) or bool(
        _CALLING_TOKEN.search(plain)
    )
