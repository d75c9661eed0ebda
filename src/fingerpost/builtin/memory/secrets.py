"""What must not be remembered: keys, passwords, card numbers. Rather refused once too often than kept."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.redaction import scrub

MIN_CARD_DIGITS: Final = 13
MAX_CARD_DIGITS: Final = 19

_PREFIXES: Final = "[הובלכמש]{0,3}"  # the, and, in, to, as, from, that: Hebrew writes them with the word
_WORDS: Final = (
    r"pass(?:word|wd|phrase|code)?|pwd|pin(?:[ -]?code)?|secret(?:[ _-]?key)?|api[ _-]?key|access[ _-]?key|"
    r"(?:access|auth|api|bearer|refresh)[ _-]?token|cvv2?|cvc2?|otp|passwort|kennwort|mot de passe|"
    rf"contraseña|senha|wachtwoord|{_PREFIXES}סיסמ(?:ה|א|ת|ות|אות)"
)
# "the password for the router is hunter2", "PIN: 4711", "api key = …"; between the word and its value a few
# words may stand, but no end of a sentence.
_STATED_SECRET: Final = re.compile(
    rf"(?<!\w)(?:{_WORDS})s?(?!\w)[\"'`]?(?:[^\S\n]{{1,3}}[^\s.:=!?;,]{{1,30}}){{0,6}}?[^\S\n]{{0,3}}"
    r"(?:(?P<sign>[:=])|(?<!\w)(?:is|was|ist|lautet|est|es|é|הוא|היא)(?!\w))[^\S\n]{0,3}[\"'`]?(?P<value>\S{3,200})",
    re.IGNORECASE,
)
# "the code of the safe is 4711": codes are of many kinds, so what it opens must be told beside it.
_CODE: Final = re.compile(
    rf"(?<!\w)(?:codes?|combination|{_PREFIXES}קוד)(?!\w)"
    r"(?P<about>(?:[^\S\n]{1,3}[^\s.:=!?;,]{1,30}){0,6}?)[^\S\n]{0,3}"
    r"(?:[:=]|(?<!\w)(?:is|was|הוא|היה)(?!\w))[^\S\n]{0,3}[\"'`#]?\d(?:[ -]?\d){2,11}(?![\w-]|\.\d)",
    re.IGNORECASE,
)
_LOCK_WORDS: Final = re.compile(
    r"(?:(?:pad)?locks?|locker|lockbox|safe|vault|doors?|alarm|gate|garage|entry|entrance|access|security|"
    r"building|house|phone|sim|cards?|account|bank|bike|suitcase|unlock|voicemail)(?:['’]s)?"
    rf"|{_PREFIXES}(?:כספת|דלת|אזעקה|שער|כניסה|בניין|טלפון|כרטיס|חשבון|מנעול|חניה|לוקר)",
    re.IGNORECASE,
)
_HARMLESS_CODES: Final = re.compile(
    r"area|bar|booking|build|colou?r|country|dial(?:l?ing)?|discount|dress|error|exit|http|model|post(?:al)?|"
    r"product|qr|response|return|reason|source|status|swift|tax|voucher|zip",
    re.IGNORECASE,
)
_CONTEXT_LENGTH: Final = 60  # characters before the word, in which two words are looked for
_PIN: Final = re.compile(r"(?<!\w)PIN(?:[ -]?code)?[^\S\n]{1,3}#?\d{4,8}(?![\w-]|\.\d)")
_PLAIN_WORD: Final = re.compile(
    r"^[^\W\d_]{1,40}[\"'`.,;:!?)]{0,3}$"
)  # "the password is wrong": nobody's secret
_DIGITS: Final = re.compile(r"(?<![\w.])\d{1,19}(?:[ \u00a0-]\d{1,19}){0,40}(?!\w)")
_CARDS: Final = re.compile(
    r"^(?:4|5[1-5]|2[2-7]|3[47]|3[068]|6011|64[4-9]|65|62|35)"
)  # how their numbers begin


def find_secret(text: str) -> str | None:
    """What kind of secret the text holds, in words; None where none is seen."""
    if scrub(text) != text:
        return "a key, token or password"
    if any(_has_card_number(found[0]) for found in _DIGITS.finditer(text)):
        return "a card number"
    if any(_is_value(found) for found in _STATED_SECRET.finditer(text)):
        return "a password or code"
    if _PIN.search(text) or any(_is_lock_code(found) for found in _CODE.finditer(text)):
        return "a password or code"
    return None


def _is_value(found: re.Match[str]) -> bool:
    """Behind a sign anything is a value; behind "is", only what is no ordinary word."""
    return found["sign"] is not None or _PLAIN_WORD.match(found["value"]) is None


def _is_lock_code(found: re.Match[str]) -> bool:
    """Whether the words beside a code say what it is for, and that is nothing but a lock of some kind."""
    text, at = found.string, found.start()
    before = re.split(r"[.:=!?;,\n]", text[max(0, at - _CONTEXT_LENGTH) : at])[-1].split()[-2:]
    if before and _HARMLESS_CODES.fullmatch(before[-1]):
        return False
    return any(_LOCK_WORDS.fullmatch(word) for word in (*before, *found["about"].split()))


def _has_card_number(run: str) -> bool:
    """Whether some groups of digits that stand together are a card number: a year may stand before it."""
    groups = re.split(r"[ \u00a0-]", run)
    for first in range(len(groups)):
        number = ""
        for group in groups[first:]:
            number += group
            if len(number) > MAX_CARD_DIGITS:
                break
            if len(number) >= MIN_CARD_DIGITS and _is_card(number):
                return True
    return False


def _is_card(number: str) -> bool:
    if _CARDS.match(number) is None:
        return False
    digits = [int(sign) for sign in reversed(number)]
    doubled = [digit * 2 - 9 * (digit > 4) if at % 2 else digit for at, digit in enumerate(digits)]
    return sum(doubled) % 10 == 0
