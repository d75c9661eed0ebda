"""Replies without a model: tool results, greetings and exact arithmetic."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from fingerpost.choose.keyless.choice import to_short_line
from fingerpost.choose.keyless.tables import get_pairs, get_phrases
from fingerpost.records import Entity, Narrowing, Step
from fingerpost.regex import prepare_re

MAX_EXPRESSION_LENGTH: Final = 200
_MAX_DIGITS: Final = 60
_MAX_EXPONENT: Final = 200

_EXPRESSION_LEAD = prepare_re(
    r"^(?:please )?(?:what(?:'s| is| are)?|how much is|calculate|compute|work out|evaluate"
    r"|כמה (?:זה|הם|יוצא)|כמה|חשבי?|תחשבי?)[: ]+",
    re.IGNORECASE,
)
_EXPRESSION_TAIL = prepare_re(r"(?: (?:please|equals?|בבקשה))?[ ?!.=]*$", re.IGNORECASE)
_OPERATOR_WORDS: Final = (
    (prepare_re(r"\bdivided by\b", re.IGNORECASE), "/"),
    (prepare_re(r"\b(?:times|multiplied by)\b|(?<=\d) ?[x×] ?(?=\d)|כפול", re.IGNORECASE), "*"),
    (prepare_re(r"\bplus\b|ועוד|פלוס", re.IGNORECASE), "+"),
    (prepare_re(r"\bminus\b|פחות|מינוס|[−–]", re.IGNORECASE), "-"),
    (prepare_re(r"\bto the power of\b|\*\*", re.IGNORECASE), "^"),
    (prepare_re(r"חלקי|÷"), "/"),
    (prepare_re(r"·"), "*"),
)
_NUMBER = prepare_re(r"(\d{1,40}(?:,\d{3})*)(\.\d{1,40})?")
_EXPRESSION = prepare_re(r"[\s\d.,+*/^%()-]+")
_OPERATION = prepare_re(r"\d\s{0,3}[-+*/^%]\s{0,3}[-(]{0,3}\d|\)\s{0,3}[-+*/^%]|[-+*/^%]\s{0,3}\(")
_DATE_OR_ID = prepare_re(r"^\s*\d{1,4}([-/])\d{1,2}\1\d{1,4}\s*$")


_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda one, other: one / other,
    ast.Mod: operator.mod,
}


class _NotComputable(Exception):
    """The text is not an arithmetic expression, or its result is too large."""


def evaluate_expression(text: str) -> str | None:
    """Return the exact result if the request is one arithmetic expression, else None."""
    expression = _EXPRESSION_TAIL.sub("", _EXPRESSION_LEAD.sub("", text[: MAX_EXPRESSION_LENGTH + 1].strip()))
    if len(text) > MAX_EXPRESSION_LENGTH or _DATE_OR_ID.match(expression):
        return None
    for pattern, sign in _OPERATOR_WORDS:
        expression = pattern.sub(sign, expression)
    if not _EXPRESSION.fullmatch(expression) or not _OPERATION.search(expression):
        return None
    source = " ".join(_NUMBER.sub(_write_number, expression).replace("^", "**").split())
    try:
        return _format_fraction(_evaluate(ast.parse(source, mode="eval").body, source))
    except (_NotComputable, ZeroDivisionError, SyntaxError):
        return None


def _write_number(match: re.Match[str]) -> str:
    """Return the number as Python reads it. Spaces keep it apart from digits beside it."""
    return f" {int(match[1].replace(',', ''))}{match[2] or ''} "


def _evaluate(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant():
            return Fraction(ast.get_source_segment(source, node) or "")
        case ast.UnaryOp(op=sign, operand=inner):
            value = _evaluate(inner, source)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            value = _compute_power(_evaluate(left, source), _evaluate(right, source))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            value = _OPERATORS[type(sign)](_evaluate(left, source), _evaluate(right, source))
        case _:
            raise _NotComputable
    if len(str(abs(value.numerator))) > _MAX_DIGITS or len(str(value.denominator)) > _MAX_DIGITS:
        raise _NotComputable
    return value


def _compute_power(base: Fraction, exponent: Fraction) -> Fraction:
    digits = len(str(base.numerator)) + len(str(base.denominator))
    if exponent.denominator != 1 or abs(exponent) > _MAX_EXPONENT:
        raise _NotComputable
    if digits * abs(exponent) > 4 * _MAX_DIGITS and abs(base) != 1:
        raise _NotComputable
    return base ** int(exponent)


def _format_fraction(value: Fraction) -> str:
    """Format a fraction as an integer, a finite decimal, or about twelve digits."""
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


MAX_REPLY_LENGTH: Final = 20_000
MAX_LISTED_ITEMS: Final = 6
MAX_REASON_LENGTH: Final = 300

# The format of the call path. The marker cannot occur in the text between.
_DATA_FENCE = prepare_re(
    r'^<data-([0-9a-f]{8,64}) from="[^"\n]{0,400}">\n[^\n]{0,300}\n(.*)\n</data-\1>$', re.DOTALL
)
_FEW_WORDS: Final = r"(?:\W{1,5}\w{1,20}){0,3}\W{0,5}$"  # a longer text is not only a greeting
_SMALL_TALK: Final = tuple(
    (prepare_re(rf"^\W{{0,5}}(?:{words})\b{_FEW_WORDS}", re.IGNORECASE), reply)
    for reply, words in get_pairs("small_talk")
)
_MAX_GREETING_LENGTH: Final = 80


def build_keyless_answer(
    steps: Sequence[Step],
    language: str = "en",
    *,
    unused_entities: Sequence[Entity] = (),
    undone_needs: Sequence[str] = (),
    configured: bool = False,
) -> str:
    """Build the answer from the tool results, each under the tool's name.

    `unused_entities` are values of the request that no argument used. `undone_needs` are parts of the request
    that could not be done. `configured` means that there is a model but it did not answer.
    """
    phrases = get_phrases(language)
    parts = [_format_step(step, phrases) for step in steps]
    if unused_entities:
        values = (to_short_line(entity.text) for entity in unused_entities[:MAX_LISTED_ITEMS])
        parts.append(phrases["unused"].format(things=", ".join(dict.fromkeys(values))))
    if undone_needs:
        things = "; ".join(map(to_short_line, undone_needs[:MAX_LISTED_ITEMS]))
        parts.append(phrases["undone"].format(things=things))
    if any(step.ran for step in steps):
        own = phrases["own" if len(steps) == 1 else "owns"]
        parts.append(f"{phrases['silent' if configured else 'none']}; {own}")
    return "\n\n".join(parts)


def build_direct_reply(
    narrowing: Narrowing,
    text: str,
    language: str | None = None,
    *,
    abilities: Sequence[str] = (),
    down: Mapping[str, str] = MappingProxyType({}),
    denied_by: Sequence[str] = (),
) -> str:
    """Build the reply to a request that needs no tool. `abilities` describes what the tools can do.

    `down` maps unreachable servers to the reason. `denied_by` are the reasons why no tool may be used.
    """
    phrases = get_phrases(language or narrowing.signals.language)
    if denied_by and not abilities:
        reasons = "; ".join(to_short_line(one) for one in denied_by[:MAX_LISTED_ITEMS])
        offer = phrases["denied"].format(reasons=reasons)
    else:
        offer = _describe_abilities(abilities, down, phrases)
    if (known := find_known_reply(text, phrases)) is not None:
        return f"{known}\n{offer}" if known == phrases["hello"] else known
    if (down or denied_by) and not abilities:  # one of these tools may be the right one
        return f"{offer} {phrases['none']}."
    return f"{phrases['needs_model']}\n{offer}"


def build_routing_off_reply(text: str, language: str) -> str:
    """Build the reply when there is no model and tool routing is disabled."""
    phrases = get_phrases(language)
    known = find_known_reply(text, phrases)
    return phrases["off"] if known is None else phrases["greeting"] if known == phrases["hello"] else known


def find_known_reply(text: str, phrases: dict[str, str]) -> str | None:
    """Return the reply to a greeting, thanks, a farewell or an arithmetic expression, or None."""
    stripped = text.strip()
    if len(stripped) <= _MAX_GREETING_LENGTH:
        for pattern, reply in _SMALL_TALK:
            if pattern.match(stripped):
                return phrases[reply]
    result = evaluate_expression(stripped)
    return None if result is None else phrases["sum"].format(result=result)


def remove_fence(text: str) -> str:
    """Remove the lines that mark a tool result as data for a model."""
    found = _DATA_FENCE.match(text.strip())
    return found[2] if found is not None else text


def _format_step(step: Step, phrases: dict[str, str]) -> str:
    tool = to_short_line(step.tool)
    if not step.success:
        return phrases["failed"].format(tool=tool)
    reply = remove_fence(step.text).strip()
    if not step.ran:
        return f"{phrases['dry']}\n{reply}"
    if not reply:
        return phrases["empty"].format(tool=tool)
    if len(reply) > MAX_REPLY_LENGTH:
        reply = f"{reply[:MAX_REPLY_LENGTH].rstrip()}\n{phrases['cut']}"
    return f"{phrases['from'].format(tool=tool)}\n{reply}"


def _describe_abilities(abilities: Sequence[str], down: Mapping[str, str], phrases: dict[str, str]) -> str:
    if not abilities and down:
        servers = (
            f"{to_short_line(name)} ({to_short_line(reason, MAX_REASON_LENGTH)})"
            for name, reason in list(down.items())[:MAX_LISTED_ITEMS]
        )
        return phrases["down"].format(servers=", ".join(servers))
    if not abilities:
        return phrases["no_tools"]
    return phrases["can"].format(tools=", ".join(to_short_line(one) for one in abilities[:MAX_LISTED_ITEMS]))
