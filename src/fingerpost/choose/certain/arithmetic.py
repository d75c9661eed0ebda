"""Sums that can be worked out exactly, read from a request: "what is (3 + 4) * 12?".

A small reader of our own: nothing of the request is ever evaluated as code. Numbers are
fractions, so that 0.1 + 0.2 is 0.3; sizes and steps are bounded, so that 9^9^9 is no answer
rather than a day's work.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

MAX_EXPRESSION_LENGTH: Final = 200
_MAX_TOKENS: Final = 100
_MAX_DEPTH: Final = 20
_MAX_DIGITS: Final = 60
_MAX_EXPONENT: Final = 200

_EXPRESSION_LEAD = re.compile(
    r"^(?:please )?(?:what(?:'s| is| are)?|how much is|calculate|compute|work out|evaluate"
    r"|כמה (?:זה|הם|יוצא)|כמה|חשבי?|תחשבי?)[: ]+",
    re.IGNORECASE,
)
_EXPRESSION_TAIL = re.compile(r"(?: (?:please|equals?|בבקשה))?[ ?!.=]*$", re.IGNORECASE)
_OPERATOR_WORDS: Final = (
    (re.compile(r"\bdivided by\b", re.IGNORECASE), "/"),
    (re.compile(r"\b(?:times|multiplied by)\b|(?<=\d) ?[x×] ?(?=\d)|כפול", re.IGNORECASE), "*"),
    (re.compile(r"\bplus\b|ועוד|פלוס", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b|פחות|מינוס|[−–]", re.IGNORECASE), "-"),
    (re.compile(r"\bto the power of\b|\*\*", re.IGNORECASE), "^"),
    (re.compile(r"חלקי|÷"), "/"),
    (re.compile(r"·"), "*"),
)
_EXPRESSION_TOKEN = re.compile(r"\s*(\d{1,40}(?:,\d{3})*(?:\.\d{1,40})?|[-+*/^%()])")
_OPERATION = re.compile(r"\d\s{0,3}[-+*/^%]\s{0,3}[-(]{0,3}\d|\)\s{0,3}[-+*/^%]|[-+*/^%]\s{0,3}\(")
_DATE_OR_ID = re.compile(r"^\s*\d{1,4}([-/])\d{1,2}\1\d{1,4}\s*$")


class _NotComputable(Exception):
    """Not a sum, or too large a one."""


def evaluate_expression(text: str) -> str | None:
    """The exact result of the one sum the request consists of; None when it is anything else."""
    said = _EXPRESSION_TAIL.sub("", _EXPRESSION_LEAD.sub("", text[: MAX_EXPRESSION_LENGTH + 1].strip()))
    if len(text) > MAX_EXPRESSION_LENGTH or _DATE_OR_ID.match(said):
        return None
    for pattern, sign in _OPERATOR_WORDS:
        said = pattern.sub(sign, said)
    tokens = _tokenize(said)
    if tokens is None or not _OPERATION.search(said):
        return None
    try:
        reader = _ExpressionParser(tokens)
        result = reader.parse_sum(0)
    except (_NotComputable, ZeroDivisionError):
        return None
    return _format_fraction(result) if reader.is_done else None


def _tokenize(text: str) -> list[str] | None:
    found: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        match = _EXPRESSION_TOKEN.match(text, place)
        if match is None or len(found) >= _MAX_TOKENS:
            return None
        found.append(match[1].replace(",", ""))
        place = match.end()
    return found


class _ExpressionParser:
    """Reads a sum from left to right, the way it is taught at school."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def is_done(self) -> bool:
        return self._place == len(self._tokens)

    def parse_sum(self, depth: int) -> Fraction:
        if depth > _MAX_DEPTH:
            raise _NotComputable
        total = self._parse_product(depth)
        while (sign := self._accept("+-")) is not None:
            other = self._parse_product(depth)
            total = _check_size(total + other if sign == "+" else total - other)
        return total

    def _parse_product(self, depth: int) -> Fraction:
        total = self._parse_signed(depth)
        while (sign := self._accept("*/%")) is not None:
            other = self._parse_signed(depth)
            if sign == "*":
                total = _check_size(total * other)
            else:
                total = _check_size(total / other if sign == "/" else total % other)
        return total

    def _parse_signed(self, depth: int) -> Fraction:
        signs = 0
        while (sign := self._accept("+-")) is not None:
            signs += sign == "-"
        value = self._parse_power(depth)
        return -value if signs % 2 else value

    def _parse_power(self, depth: int) -> Fraction:
        if depth > _MAX_DEPTH:
            raise _NotComputable
        base = self._parse_operand(depth)
        if self._accept("^") is None:
            return base
        exponent = self._parse_signed(depth + 1)
        if exponent.denominator != 1 or abs(exponent) > _MAX_EXPONENT:
            raise _NotComputable
        digits = len(str(base.numerator)) + len(str(base.denominator))
        if digits * abs(exponent) > 4 * _MAX_DIGITS and abs(base) != 1:
            raise _NotComputable
        return _check_size(base ** int(exponent))

    def _parse_operand(self, depth: int) -> Fraction:
        if self._accept("(") is not None:
            value = self.parse_sum(depth + 1)
            if self._accept(")") is None:
                raise _NotComputable
            return value
        if self.is_done or not self._tokens[self._place][0].isdigit():
            raise _NotComputable
        self._place += 1
        return Fraction(self._tokens[self._place - 1])

    def _accept(self, signs: str) -> str | None:
        if self.is_done or self._tokens[self._place] not in signs:
            return None
        self._place += 1
        return self._tokens[self._place - 1]


def _check_size(value: Fraction) -> Fraction:
    if len(str(abs(value.numerator))) > _MAX_DIGITS or len(str(value.denominator)) > _MAX_DIGITS:
        raise _NotComputable
    return value


def _format_fraction(value: Fraction) -> str:
    """A whole number, a finite decimal, or about twelve digits of an endless one."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return _format_decimal(value, 60)
    return f"≈ {_format_decimal(value, 12)}"


def _format_decimal(value: Fraction, places: int) -> str:
    scaled = round(abs(value) * 10**places)
    whole, part = divmod(scaled, 10**places)
    sign = "-" if value < 0 else ""
    decimals = f"{part:0{places}}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"
