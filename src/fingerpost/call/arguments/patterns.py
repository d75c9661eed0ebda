"""Which regular expressions of strangers we are willing to run, and on how much text.

The pattern is the server's choice and the text the model's, and an engine that
backtracks (Python's does) can be kept busy for years by thirty characters of each. So
they are run by RE2, which takes a step for each character and each piece of the pattern
and never goes back. What it cannot run, or what is too large, is not checked: the server
will check it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, cast

from fingerpost.call.arguments.ecma import translate_pattern
from fingerpost.frozen import frozen

MAX_PATTERN_LENGTH: Final = 500
MAX_TEXT_LENGTH: Final = 100_000
# Pieces of the pattern times bytes of text: a few hundredths of a second at the very worst.
MAX_MATCH_STEPS: Final = 10_000_000
# Bytes for one compiled pattern: some two thousand pieces, made in a millisecond.
MAX_MEMORY: Final = 1 << 16


@frozen(kw_only=False)
class _CompiledPattern:
    """A pattern for one kind of text: ASCII or any."""

    search: Callable[[bytes], object]
    size: int  # its pieces
    unambiguous: bool  # means the same in every dialect
    ascii_only: bool


@frozen(kw_only=False)
class SchemaPattern:
    """A pattern that can be run, if not on every text."""

    source: str
    plain: _CompiledPattern

    def is_mismatch(self, text: str) -> bool:
        """Whether the text surely does not match."""
        return self._search_widely(text) is False

    def is_match(self, text: str) -> bool:
        """Whether the text surely matches."""
        certain = self.plain.unambiguous or (text.isascii() and text.isprintable())
        return certain and self._search_widely(text) is True

    def estimate_cost(self, text: str) -> int:
        """The steps that running it may take."""
        return self.plain.size * len(text) if len(text) <= MAX_TEXT_LENGTH else 0

    def _search_widely(self, text: str) -> bool | None:
        """Whether the text matches at the widest; None when that is not found out."""
        if len(text) > MAX_TEXT_LENGTH:
            return None
        data = _encode(text)
        compiled = self._choose_compiled(text)
        if data is None or compiled is None or len(data) * compiled.size > MAX_MATCH_STEPS:
            return None
        return compiled.search(data) is not None

    def _choose_compiled(self, text: str) -> _CompiledPattern | None:
        if text.isascii():
            return self.plain
        return None if self.plain.ascii_only else _compile(self.source, wide=True)


@lru_cache(maxsize=1024)
def compile_pattern(source: str) -> SchemaPattern | None:
    """The pattern, or None when it cannot be run here or would be too large."""
    plain = _compile(source, wide=False) if len(source) <= MAX_PATTERN_LENGTH else None
    return None if plain is None else SchemaPattern(source, plain)


@lru_cache(maxsize=1024)
def _compile(source: str, *, wide: bool) -> _CompiledPattern | None:
    made = translate_pattern(source, wide=wide)
    if made is None:
        return None
    engine = _load_engine()
    options = engine.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    if not wide:
        options.encoding = engine.Options.Encoding.LATIN1  # a byte is a character: a tenth of the pieces
    try:
        compiled = engine.compile(made.text.encode(), options)
    except engine.error:
        return None
    size = max(1, cast("int", compiled.programsize))
    return _CompiledPattern(
        cast("Callable[[bytes], object]", compiled.search), size, made.unambiguous, made.ascii_only
    )


def _load_engine() -> Any:
    """RE2, loaded for the first pattern there is. It comes without types."""
    return import_module("re2")


def _encode(text: str) -> bytes | None:
    """The text as RE2 reads it; None for half a character, which has no UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
