"""Patterns of JSON Schema, translated from ECMAScript to RE2 and run within limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Final, cast

from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re

_FLAGS: Final = prepare_re(r"\(\?([ims]{1,3})\)")
_GROUP: Final = prepare_re(r"\((?:\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>))?(?![?*])")
_QUANTIFIER: Final = prepare_re(r"[*+?]\??|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}\??")
_UNCERTAIN_BRACE: Final = prepare_re(r"\{[0-9]*,?[0-9]*\}")  # dialects read these differently
_CODE_POINT: Final = prepare_re(
    r"\\(?:x(?P<two>[0-9A-Fa-f]{2})|u\{(?P<any>[0-9A-Fa-f]{1,6})\}"
    r"|u(?P<high>[Dd][89ABab][0-9A-Fa-f]{2})\\u(?P<low>[Dd][C-Fc-f][0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4}))"
)
_PROPERTY: Final = prepare_re(r"\\([pP])\{(?:(?:Script|sc)=)?([A-Z][A-Za-z_]{0,30})\}")
_SET_OPERATORS: Final = ("[:", "[.", "[=", "&&", "--", "~~", "||")  # set operations in some dialects
_CONTROL_CODES: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

# What each escape means inside a class. In ASCII text, all dialects agree.
_ASCII_ESCAPES: Final = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r"\x{9}-\x{d}\x{1c}-\x{20}",
    "D": r"\x{0}-/:-\x{ff}",
    "W": r"\x{0}-/:-@\[-\^`{-\x{ff}",
    "S": r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{ff}",
}
# In other text: the widest meaning.
_WIDE_ESCAPES: Final = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{M}\p{N}\p{Pc}\x{200c}\x{200d}",
    "s": r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\p{Z}\x{feff}",
    "D": r"\x{0}-/:-\x{10ffff}",
    "W": r"\x{0}-/:-@\[-\^`{-\x{10ffff}",
    "S": r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{10ffff}",
}
# In other text: the narrowest meaning, for negated classes.
_NARROW_ESCAPES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\x{9}-\x{d}\x{20}"}
_NON_ASCII_CODE: Final = 0xFF  # represents all non-ASCII characters


@frozen(kw_only=False)
class TranslatedPattern:
    """A pattern in RE2 syntax. `unambiguous`: it means the same in every dialect, for any text."""

    text: str
    unambiguous: bool
    ascii_only: bool  # not valid for other text


class _UntranslatablePattern(Exception):
    """The pattern contains something ambiguous."""


def translate_pattern(source: str, *, wide: bool) -> TranslatedPattern | None:
    """Translate the pattern to RE2, or return None. It is for ASCII text (bytes) unless `wide`."""
    scanner = _PatternScanner(source, wide=wide)
    try:
        return TranslatedPattern(
            "".join(scanner.translate_pieces()), not scanner.ambiguous, scanner.ascii_only
        )
    except _UntranslatablePattern:
        return None


class _PatternScanner:
    """A scanner that translates one pattern from left to right."""

    def __init__(self, source: str, *, wide: bool) -> None:
        self._source = source
        self._wide = wide
        self._escapes = _WIDE_ESCAPES if wide else _ASCII_ESCAPES
        self._position = 0
        self._repeatable = False  # whether a quantifier may follow
        self.ambiguous = False
        self.ascii_only = False

    def translate_pieces(self) -> list[str]:
        made: list[str] = []
        if (flags := self._take(_FLAGS)) is not None:
            made.append(flags[0])
            self.ascii_only = "i" in flags[1]  # case folding differs between dialects
        while self._position < len(self._source):
            character = self._source[self._position]
            made.append(_TRANSLATORS.get(character, _PatternScanner._translate_literal)(self))
        return made

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._source, self._position)
        if found is not None:
            self._position = found.end()
        return found

    def _take_next(self) -> str:
        if self._position >= len(self._source):
            raise _UntranslatablePattern
        self._position += 1
        return self._source[self._position - 1]

    def _translate_literal(self) -> str:
        self._repeatable = True
        return self._quote_character(ord(self._take_next()))

    def _translate_unrepeatable(self) -> str:
        self._repeatable = False
        return self._take_next()

    def _translate_any(self) -> str:
        self._repeatable = True
        self.ambiguous = True  # JavaScript has four line terminators, Python has one
        return self._take_next()

    def _translate_group_start(self) -> str:
        if self._take(_GROUP) is None:
            raise _UntranslatablePattern
        self._repeatable = False
        return "(?:"

    def _translate_group_end(self) -> str:
        self._repeatable = True
        return self._take_next()

    def _translate_quantifier(self) -> str:
        found = self._take(_QUANTIFIER)
        if found is None:
            if self._source[self._position] != "{" or self._take(_UNCERTAIN_BRACE) is not None:
                raise _UntranslatablePattern
            return self._translate_literal()
        if not self._repeatable:
            raise _UntranslatablePattern
        self._repeatable = False  # `a**`, `a{2}+`: an error in some dialects, a new meaning in others
        return found[0]

    def _translate_escape(self) -> str:
        self._repeatable = True
        if (code := self._read_code_point()) is not None:
            return self._quote_character(code)
        if (named := self._take(_PROPERTY)) is not None:
            return f"\\{named[1]}{{{named[2]}}}"
        self._position += 1
        letter = self._take_next()
        if letter in self._escapes:
            self.ambiguous = True
            return f"[{self._escapes[letter]}]"
        if letter == "b":
            self._repeatable = False
            self.ascii_only = True
            return r"\b"
        return self._quote_character(self._read_escaped_character(letter))

    def _read_code_point(self) -> int | None:
        """Read a character that is written as a number."""
        found = self._take(_CODE_POINT)
        if found is None:
            return None
        if found["high"] is not None:
            high, low = int(found["high"], 16), int(found["low"], 16)
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        code = int(found["two"] or found["any"] or found["four"], 16)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise _UntranslatablePattern
        return code

    def _read_escaped_character(self, letter: str) -> int:
        """Return the character that an escape stands for, inside or outside a class."""
        if letter in _CONTROL_CODES:
            return _CONTROL_CODES[letter]
        following = self._source[self._position : self._position + 1]
        if letter == "0" and not ("0" <= following <= "9"):
            return 0
        if letter.isalnum() or letter == "_":
            raise _UntranslatablePattern
        return ord(letter)

    def _translate_class(self) -> str:
        self._position += 1
        negated = self._source.startswith("^", self._position)
        self._position += negated
        if self._source.startswith("]", self._position):
            raise _UntranslatablePattern  # an empty class in JavaScript, a bracket in Python
        parts: list[str] = []
        while not self._source.startswith("]", self._position):
            parts.append(self._translate_range(negated=negated))
        self._position += 1
        self._repeatable = True
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _translate_range(self, *, negated: bool) -> str:
        first = self._read_class_member(negated=negated)
        following = self._source[self._position : self._position + 2]
        if not following.startswith("-") or following == "-]":
            return first if isinstance(first, str) else self._quote_character(first)
        self._position += 1
        last = self._read_class_member(negated=negated)
        if isinstance(first, str) or isinstance(last, str) or last < first:
            raise _UntranslatablePattern
        return f"{self._quote_character(first)}-{self._quote_character(last)}"

    def _read_class_member(self, *, negated: bool) -> int | str:
        """Read one character of a class, or the translation of an escape for several characters."""
        if self._source.startswith(_SET_OPERATORS, self._position):
            raise _UntranslatablePattern
        if (code := self._read_code_point()) is not None:
            return code
        if (named := self._take(_PROPERTY)) is not None:
            return f"\\{named[1]}{{{named[2]}}}"
        character = self._take_next()
        if character != "\\":
            return ord(character)
        letter = self._take_next()
        if letter == "b":
            return 8
        if letter in self._escapes:
            self.ambiguous = True
            if not negated or not self._wide:
                return self._escapes[letter]
            if letter not in _NARROW_ESCAPES:
                raise _UntranslatablePattern
            return _NARROW_ESCAPES[letter]
        return self._read_escaped_character(letter)

    def _quote_character(self, code: int) -> str:
        """Return the RE2 syntax of a literal character."""
        if code > 0x7F and not self._wide:
            if self.ascii_only:
                raise _UntranslatablePattern  # may be another case of an ASCII letter
            code = _NON_ASCII_CODE
        character = chr(code)
        return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"


_TRANSLATORS: Final[dict[str, Callable[[_PatternScanner], str]]] = {
    "\\": _PatternScanner._translate_escape,  # pyright: ignore[reportPrivateUsage] - a table of the class's methods
    "[": _PatternScanner._translate_class,  # pyright: ignore[reportPrivateUsage]
    "(": _PatternScanner._translate_group_start,  # pyright: ignore[reportPrivateUsage]
    ")": _PatternScanner._translate_group_end,  # pyright: ignore[reportPrivateUsage]
    ".": _PatternScanner._translate_any,  # pyright: ignore[reportPrivateUsage]
    **dict.fromkeys("^$|", _PatternScanner._translate_unrepeatable),  # pyright: ignore[reportPrivateUsage]
    **dict.fromkeys("*+?{", _PatternScanner._translate_quantifier),  # pyright: ignore[reportPrivateUsage]
}


MAX_PATTERN_LENGTH: Final = 500
MAX_TEXT_LENGTH: Final = 100_000
# Pattern size times text bytes: a few hundredths of a second in the worst case.
MAX_MATCH_STEPS: Final = 10_000_000
# Bytes for one compiled pattern: about two thousand instructions, compiled in a millisecond.
MAX_MEMORY: Final = 1 << 16


@frozen(kw_only=False)
class _CompiledPattern:
    """A pattern compiled for ASCII text or for any text."""

    search: Callable[[bytes], object]
    size: int  # instructions
    unambiguous: bool  # means the same in every dialect
    ascii_only: bool


@frozen(kw_only=False)
class SchemaPattern:
    """A pattern that can be run, though not on every text."""

    source: str
    plain: _CompiledPattern

    def is_mismatch(self, text: str) -> bool:
        """Return whether the text certainly does not match."""
        return self._search_widely(text) is False

    def is_match(self, text: str) -> bool:
        """Return whether the text certainly matches."""
        certain = self.plain.unambiguous or (text.isascii() and text.isprintable())
        return certain and self._search_widely(text) is True

    def estimate_cost(self, text: str) -> int:
        """Return the maximum number of steps to run the pattern on this text."""
        return self.plain.size * len(text) if len(text) <= MAX_TEXT_LENGTH else 0

    def _search_widely(self, text: str) -> bool | None:
        """Return whether the text matches in the widest reading, or None if that cannot be determined."""
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
    """Compile the pattern. Return None if it is not supported or too large."""
    plain = _compile(source, wide=False) if len(source) <= MAX_PATTERN_LENGTH else None
    return None if plain is None else SchemaPattern(source, plain)


@lru_cache(maxsize=1024)
def _compile(source: str, *, wide: bool) -> _CompiledPattern | None:
    made = translate_pattern(source, wide=wide)
    if made is None:
        return None
    engine = import_module("re2")
    options = engine.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    if not wide:
        # One byte per character needs a tenth of the instructions.
        options.encoding = engine.Options.Encoding.LATIN1
    try:
        compiled = engine.compile(made.text.encode(), options)
    except engine.error:
        return None
    size = max(1, cast("int", compiled.programsize))
    return _CompiledPattern(
        cast("Callable[[bytes], object]", compiled.search), size, made.unambiguous, made.ascii_only
    )


def _encode(text: str) -> bytes | None:
    """Encode the text for RE2. Return None for lone surrogates, which have no UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
