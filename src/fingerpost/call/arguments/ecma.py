"""A pattern of JSON Schema in the words of RE2, or not at all.

Schemas write patterns as JavaScript does (ECMA-262), and many a server reads them as
Python or Rust does. What means the same to all of them is put in other words for RE2;
where they differ (`\\w` and letters beyond ASCII), the widest meaning is taken, so that a
text is refused only when every one of them would refuse it. What only a backtracking
engine can do (look-around, back-references), and what one of them would not read or
read otherwise, is not translated: such a pattern is the server's to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fingerpost.frozen import frozen

_FLAGS: Final = re.compile(r"\(\?([ims]{1,3})\)")
_GROUP: Final = re.compile(r"\((?:\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>))?(?![?*])")
_TIMES: Final = re.compile(r"[*+?]\??|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}\??")
_UNSURE_BRACE: Final = re.compile(r"\{[0-9]*,?[0-9]*\}")  # not one of the above: read otherwise elsewhere
_CODE: Final = re.compile(
    r"\\(?:x(?P<two>[0-9A-Fa-f]{2})|u\{(?P<any>[0-9A-Fa-f]{1,6})\}"
    r"|u(?P<high>[Dd][89ABab][0-9A-Fa-f]{2})\\u(?P<low>[Dd][C-Fc-f][0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4}))"
)
_PROPERTY: Final = re.compile(r"\\([pP])\{(?:(?:Script|sc)=)?([A-Z][A-Za-z_]{0,30})\}")
_SET_WORDS: Final = ("[:", "[.", "[=", "&&", "--", "~~", "||")  # operations on sets, to some
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

# What each escape stands for, as the inside of a class: in ASCII text, where all agree...
_ASCII: Final = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r"\x{9}-\x{d}\x{1c}-\x{20}",
    "D": r"\x{0}-/:-\x{ff}",
    "W": r"\x{0}-/:-@\[-\^`{-\x{ff}",
    "S": r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{ff}",
}
# ...in other text, at the widest...
_WIDE: Final = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{M}\p{N}\p{Pc}\x{200c}\x{200d}",
    "s": r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\p{Z}\x{feff}",
    "D": r"\x{0}-/:-\x{10ffff}",
    "W": r"\x{0}-/:-@\[-\^`{-\x{10ffff}",
    "S": r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{10ffff}",
}
# ...and at the narrowest, for a class that says what is *not* meant.
_NARROW: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\x{9}-\x{d}\x{20}"}
_BEYOND: Final = 0xFF  # stands for every character that no ASCII text holds


@frozen(kw_only=False)
class Translated:
    """A pattern as RE2 reads it. `settled`: it means the same to everybody, for any text."""

    text: str
    settled: bool
    ascii_only: bool  # says nothing about other text


class _Untranslatable(Exception):
    """The pattern holds something that is not certain."""


def translated(source: str, *, wide: bool) -> Translated | None:
    """The pattern for RE2, or None. It is for ASCII text (as bytes) unless it is `wide`."""
    scanner = _Scanner(source, wide=wide)
    try:
        return Translated("".join(scanner.pieces()), not scanner.unsettled, scanner.ascii_only)
    except _Untranslatable:
        return None


class _Scanner:
    """One walk over a pattern, from left to right."""

    def __init__(self, source: str, *, wide: bool) -> None:
        self._source = source
        self._wide = wide
        self._means = _WIDE if wide else _ASCII
        self._place = 0
        self._repeatable = False  # whether a repetition may stand here
        self.unsettled = False
        self.ascii_only = False

    def pieces(self) -> list[str]:
        made: list[str] = []
        if (flags := self._take(_FLAGS)) is not None:
            made.append(flags[0])
            self.ascii_only = "i" in flags[1]  # which letters are each other's case is told differently
        while self._place < len(self._source):
            made.append(self._piece())
        return made

    def _piece(self) -> str:
        character = self._source[self._place]
        return _PIECES.get(character, _Scanner._literal)(self)

    def _take(self, shape: re.Pattern[str]) -> re.Match[str] | None:
        found = shape.match(self._source, self._place)
        if found is not None:
            self._place = found.end()
        return found

    def _next(self) -> str:
        if self._place >= len(self._source):
            raise _Untranslatable
        self._place += 1
        return self._source[self._place - 1]

    def _literal(self) -> str:
        self._repeatable = True
        return self._quoted(ord(self._next()))

    def _anchor(self) -> str:
        self._repeatable = False
        return self._next()

    def _choice(self) -> str:
        self._repeatable = False
        return self._next()

    def _any(self) -> str:
        self._repeatable = True
        self.unsettled = True  # four characters end a line in JavaScript, one in Python
        return self._next()

    def _opening(self) -> str:
        if self._take(_GROUP) is None:
            raise _Untranslatable
        self._repeatable = False
        return "(?:"

    def _closing(self) -> str:
        self._repeatable = True
        return self._next()

    def _times(self) -> str:
        found = self._take(_TIMES)
        if found is None:
            if self._source[self._place] != "{" or self._take(_UNSURE_BRACE) is not None:
                raise _Untranslatable
            return self._literal()
        if not self._repeatable:
            raise _Untranslatable
        self._repeatable = False  # `a**`, `a{2}+`: an error to some, and to others something new
        return found[0]

    def _escape(self) -> str:
        self._repeatable = True
        if (code := self._code()) is not None:
            return self._quoted(code)
        if (named := self._take(_PROPERTY)) is not None:
            return f"\\{named[1]}{{{named[2]}}}"
        self._place += 1
        letter = self._next()
        if letter in self._means:
            self.unsettled = True
            return f"[{self._means[letter]}]"
        if letter == "b":
            self._repeatable = False
            self.ascii_only = True
            return r"\b"
        return self._quoted(self._plain(letter))

    def _code(self) -> int | None:
        """The character that is written as its number here."""
        found = self._take(_CODE)
        if found is None:
            return None
        if found["high"] is not None:
            high, low = int(found["high"], 16), int(found["low"], 16)
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        code = int(found["two"] or found["any"] or found["four"], 16)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise _Untranslatable
        return code

    def _plain(self, letter: str) -> int:
        """The character that an escaped one stands for, in a class or not."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        following = self._source[self._place : self._place + 1]
        if letter == "0" and not ("0" <= following <= "9"):
            return 0
        if letter.isalnum() or letter == "_":
            raise _Untranslatable
        return ord(letter)

    # Classes

    def _class(self) -> str:
        self._place += 1
        negated = self._source.startswith("^", self._place)
        self._place += negated
        if self._source.startswith("]", self._place):
            raise _Untranslatable  # nothing to JavaScript, a bracket to Python
        parts: list[str] = []
        while not self._source.startswith("]", self._place):
            parts.append(self._range(negated=negated))
        self._place += 1
        self._repeatable = True
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _range(self, *, negated: bool) -> str:
        first = self._member(negated=negated)
        dash = self._source.startswith("-", self._place) and not self._source.startswith("-]", self._place)
        if not dash:
            return first if isinstance(first, str) else self._quoted(first)
        self._place += 1
        last = self._member(negated=negated)
        if isinstance(first, str) or isinstance(last, str) or last < first:
            raise _Untranslatable
        return f"{self._quoted(first)}-{self._quoted(last)}"

    def _member(self, *, negated: bool) -> int | str:
        """One character of a class, or what an escape for several means there."""
        if self._source.startswith(_SET_WORDS, self._place):
            raise _Untranslatable
        if (code := self._code()) is not None:
            return code
        if (named := self._take(_PROPERTY)) is not None:
            return f"\\{named[1]}{{{named[2]}}}"
        character = self._next()
        if character != "\\":
            return ord(character)
        letter = self._next()
        if letter == "b":
            return 8
        return self._several(letter, negated=negated) if letter in self._means else self._plain(letter)

    def _several(self, letter: str, *, negated: bool) -> str:
        self.unsettled = True
        if not negated or not self._wide:
            return self._means[letter]
        if letter not in _NARROW:
            raise _Untranslatable
        return _NARROW[letter]

    def _quoted(self, code: int) -> str:
        """One character that means itself."""
        if code > 0x7F and not self._wide:
            if self.ascii_only:
                raise _Untranslatable  # it may be another case of an ASCII letter
            code = _BEYOND
        character = chr(code)
        return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"


_PIECES: Final[dict[str, Callable[[_Scanner], str]]] = {
    "\\": _Scanner._escape,  # pyright: ignore[reportPrivateUsage] - a table of the class's own steps
    "[": _Scanner._class,  # pyright: ignore[reportPrivateUsage]
    "(": _Scanner._opening,  # pyright: ignore[reportPrivateUsage]
    ")": _Scanner._closing,  # pyright: ignore[reportPrivateUsage]
    "|": _Scanner._choice,  # pyright: ignore[reportPrivateUsage]
    ".": _Scanner._any,  # pyright: ignore[reportPrivateUsage]
    **dict.fromkeys("^$", _Scanner._anchor),  # pyright: ignore[reportPrivateUsage]
    **dict.fromkeys("*+?{", _Scanner._times),  # pyright: ignore[reportPrivateUsage]
}
