"""Sums that can be worked out exactly, read from a request: "what is (3 + 4) * 12?".

A small reader of our own: nothing of the request is ever evaluated as code. Numbers are
fractions, so that 0.1 + 0.2 is 0.3; sizes and steps are bounded, so that 9^9^9 is no answer
rather than a day's work.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

LONGEST: Final = 200
_MOST_TOKENS: Final = 100
_DEEPEST: Final = 20
_MOST_DIGITS: Final = 60
_LARGEST_POWER: Final = 200

_LEAD = re.compile(
    r"^(?:please )?(?:what(?:'s| is| are)?|how much is|calculate|compute|work out|evaluate"
    r"|כמה (?:זה|הם|יוצא)|כמה|חשבי?|תחשבי?)[: ]+",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?: (?:please|equals?|בבקשה))?[ ?!.=]*$", re.IGNORECASE)
_WORDS: Final = (
    (re.compile(r"\bdivided by\b", re.IGNORECASE), "/"),
    (re.compile(r"\b(?:times|multiplied by)\b|(?<=\d) ?[x×] ?(?=\d)|כפול", re.IGNORECASE), "*"),
    (re.compile(r"\bplus\b|ועוד|פלוס", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b|פחות|מינוס|[−–]", re.IGNORECASE), "-"),
    (re.compile(r"\bto the power of\b|\*\*", re.IGNORECASE), "^"),
    (re.compile(r"חלקי|÷"), "/"),
    (re.compile(r"·"), "*"),
)
_TOKEN = re.compile(r"\s*(\d{1,40}(?:,\d{3})*(?:\.\d{1,40})?|[-+*/^%()])")
_SUM = re.compile(r"\d\s{0,3}[-+*/^%]\s{0,3}[-(]{0,3}\d|\)\s{0,3}[-+*/^%]|[-+*/^%]\s{0,3}\(")
_DATE_OR_ID = re.compile(r"^\s*\d{1,4}([-/])\d{1,2}\1\d{1,4}\s*$")


class _CannotTell(Exception):
    """Not a sum, or too large a one."""


def reckon(text: str) -> str | None:
    """The exact result of the one sum the request consists of; None when it is anything else."""
    said = _TAIL.sub("", _LEAD.sub("", text[: LONGEST + 1].strip()))
    if len(text) > LONGEST or _DATE_OR_ID.match(said):
        return None
    for pattern, sign in _WORDS:
        said = pattern.sub(sign, said)
    tokens = _tokens(said)
    if tokens is None or not _SUM.search(said):
        return None
    try:
        reader = _Reader(tokens)
        result = reader.sum(0)
    except (_CannotTell, ZeroDivisionError):
        return None
    return _written(result) if reader.done else None


def _tokens(said: str) -> list[str] | None:
    found: list[str] = []
    place = 0
    while place < len(said.rstrip()):
        match = _TOKEN.match(said, place)
        if match is None or len(found) >= _MOST_TOKENS:
            return None
        found.append(match[1].replace(",", ""))
        place = match.end()
    return found


class _Reader:
    """Reads a sum from left to right, the way it is taught at school."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def done(self) -> bool:
        return self._place == len(self._tokens)

    def sum(self, depth: int) -> Fraction:
        if depth > _DEEPEST:
            raise _CannotTell
        total = self._product(depth)
        while (sign := self._next("+-")) is not None:
            other = self._product(depth)
            total = _bounded(total + other if sign == "+" else total - other)
        return total

    def _product(self, depth: int) -> Fraction:
        total = self._signed(depth)
        while (sign := self._next("*/%")) is not None:
            other = self._signed(depth)
            if sign == "*":
                total = _bounded(total * other)
            else:
                total = _bounded(total / other if sign == "/" else total % other)
        return total

    def _signed(self, depth: int) -> Fraction:
        signs = 0
        while (sign := self._next("+-")) is not None:
            signs += sign == "-"
        value = self._power(depth)
        return -value if signs % 2 else value

    def _power(self, depth: int) -> Fraction:
        if depth > _DEEPEST:
            raise _CannotTell
        base = self._one(depth)
        if self._next("^") is None:
            return base
        exponent = self._signed(depth + 1)
        if exponent.denominator != 1 or abs(exponent) > _LARGEST_POWER:
            raise _CannotTell
        digits = len(str(base.numerator)) + len(str(base.denominator))
        if digits * abs(exponent) > 4 * _MOST_DIGITS and abs(base) != 1:
            raise _CannotTell
        return _bounded(base ** int(exponent))

    def _one(self, depth: int) -> Fraction:
        if self._next("(") is not None:
            value = self.sum(depth + 1)
            if self._next(")") is None:
                raise _CannotTell
            return value
        if self.done or not self._tokens[self._place][0].isdigit():
            raise _CannotTell
        self._place += 1
        return Fraction(self._tokens[self._place - 1])

    def _next(self, signs: str) -> str | None:
        if self.done or self._tokens[self._place] not in signs:
            return None
        self._place += 1
        return self._tokens[self._place - 1]


def _bounded(value: Fraction) -> Fraction:
    if len(str(abs(value.numerator))) > _MOST_DIGITS or len(str(value.denominator)) > _MOST_DIGITS:
        raise _CannotTell
    return value


def _written(value: Fraction) -> str:
    """A whole number, a finite decimal, or about twelve digits of an endless one."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return _decimal(value, 60)
    return f"≈ {_decimal(value, 12)}"


def _decimal(value: Fraction, places: int) -> str:
    scaled = round(abs(value) * 10**places)
    whole, part = divmod(scaled, 10**places)
    sign = "-" if value < 0 else ""
    decimals = f"{part:0{places}}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"
