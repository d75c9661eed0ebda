"""How far a request depends on what was said before.

A fragment ("and in Paris?", "what about tomorrow?", "do the same for Rome") cannot be
understood without the request it continues. A request that refers ("delete it", "what time
is it there?") says what it wants and not what it is about. Every other request is complete,
however short it is: what was said before must not decide about it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set

# How much an earlier turn may count beside the request, at most.
MAX_EARLIER_WEIGHT: Final = 0.4
_LATER_TURN_FACTOR: Final = 0.5  # each turn before the last counts this much of the one after it
_INDEPENDENT_WORDS: Final = 8  # content words with which a request speaks for itself
_COMPLETE_SENTENCE_WEIGHT: Final = (
    0.25  # of the weight a request of that length would have if it referred to something
)
_MAX_FRAGMENT_WORDS: Final = 6  # words behind what opens it
_MAX_NAME_WORDS: Final = 2  # words of a fragment that only names something: "Paris?"


class Dependence(Enum):
    """On what was said before."""

    COMPLETE = auto()
    REFERS = auto()
    FRAGMENT = auto()


# "and in Paris?": what opens a fragment, and the rest of it.
_FOLLOWUP_OPENING: Final = re.compile(
    r"^\W*(?:(?:(?:and|or|but|ok|okay|so|then|now)\s+)*(?:what|how)\s+about\b|(?:and|or|but)\b(?:\s+(?:now|then|also))?"
    r"|also\b|same\b|again\b|instead\b|ומה (?:עם|לגבי)|מה (?:עם|לגבי)|וגם|אותו הדבר|אותו דבר|שוב)",
    re.IGNORECASE,
)
# Hebrew writes "and" as a letter before the next word; before these it opens a clause, not a fragment.
_HEBREW_AND: Final = re.compile(r"^\W*ו(?=[א-ת]{2})(?!(?:ת|א|נ|י)[א-ת]{3})")
_AGAIN: Final = re.compile(
    r"\b(?:do|run|try|repeat|show|give|make|check) (?:it|that|this|them|the same|another|more)\b"
    r"(?: (?:again|once more|for|with|in|on|of)\b|\W*$)"
    r"|^\W*(?:the same|same|again|once more|one more|another|another one|next|more)\b"
    r"|(?<!\w)(?:עוד (?:אחד|אחת|פעם)|שוב|אותו (?:הדבר|דבר)|גם ל|תעשה (?:אותו|את אותו))",
    re.IGNORECASE,
)
# A clause of its own begins with one of these; behind them something is asked or told to be done.
_CLAUSE: Final = parse_word_set(
    """
    what what's which who who's whose whom where where's when when's why how how's is are am was were do does
    did has have had can could would will should may might must shall isn't aren't don't doesn't didn't i i'm
    i've i'd we we're you he she it they there there's let's please tell show give write make find
    מה מי איפה היכן מתי למה מדוע איך כמה איזה איזו אילו האם יש אין אני אנחנו אתה את הוא היא הם אפשר
    זה זאת זו אלה
    """
)
# Without an opening a fragment begins with one of these, or is but a word or a name.
_BEGINS_FRAGMENT: Final = parse_word_set(
    """
    in on at for to from with without by of about the this that these those another only just not tomorrow
    today tonight yesterday next last until since between before after during as into
    מחר היום אתמול מחרתיים שלשום הערב רק בלי עם אחרי לפני
    """
)
_POINTING: Final = re.compile(
    r"\b(?:it|its|that|this|those|these|them|they|he|she|him|her|there|one|ones|same|former|latter|previous|"
    r"above|again|instead|then|both|first|second|third|last one)\b"
    r"|(?<!\w)(?:אותו|אותה|אותם|אותן|זה|זאת|זו|אלה|אלו|שם|מהם|מהן|לו|לה|להם|הקודם|הקודמת|"
    r"הראשון|הראשונה|השני|השנייה|האחרון|האחרונה|באחרון|באחרונה|שוב)"
    r"(?!\w)",
    re.IGNORECASE,
)
# "there is", "is it raining", "what time is it": these words point at nothing.
_EXPLETIVES: Final = re.compile(
    r"\b(?:is|are|was|were) there\b|\bthere(?:'s| is| are| was| were)\b|\btime is it\b|\bit's \d"
    r"|\b(?:is|was|will) it (?:be )?(?:rain|snow|warm|cold|hot|sunny|windy|late|true|possible|safe|ok|worth)"
    r"|\b(?:that|this) (?:is|i|we|you|the|are|was)\b|\b(?:this|last|next) (?:week|month|year|morning|evening)"
    r"|\bwhat is (?:this|that) called\b|(?<!\w)מה (?:זה|זאת|זו|אלה|אלו)(?!\w)|(?<!\w)(?:כמה|האם) זה(?!\w)",
    re.IGNORECASE,
)
_FOLLOWUP_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
_NAMED: Final = re.compile(r"\S*[\w-]\.[a-z]{1,5}\b|\S*[/@\\]\S*|[\"“«]", re.IGNORECASE)
_SAYS_LITTLE: Final = STOP_WORDS | parse_word_set(
    """
    am again ahead and another back can check could do doing done else go give great help hey instead it
    just kindly know let like look lot make me mind more my now ok okay one please proceed really same see
    show sure tell thank thanks that them there thing things this those too try want we well what would yes
    אותו אותה אני את בבקשה גם האם הזה הזאת יש כן לא לי מה עוד על עם של שוב תודה
    """
)


def classify_dependence(text: str) -> Dependence:
    """How far the request needs what was said before to be understood."""
    if _is_fragment(text):
        return Dependence.FRAGMENT
    if _POINTING.search(_EXPLETIVES.sub(" ", text)) is not None:
        return Dependence.REFERS
    return Dependence.COMPLETE


def _is_fragment(text: str) -> bool:
    opening = _FOLLOWUP_OPENING.match(text) or _HEBREW_AND.match(text)
    rest = text[opening.end() :] if opening is not None else text
    words = [word.casefold() for word in _FOLLOWUP_WORD.findall(rest)[: _MAX_FRAGMENT_WORDS + 1]]
    if len(words) > _MAX_FRAGMENT_WORDS or _NAMED.search(text) is not None:
        return False
    if _AGAIN.search(text) is not None:
        return True
    if opening is not None:
        return not words or words[0] not in _CLAUSE
    if not words or words[0] in _CLAUSE:
        return False
    if words[0] in _BEGINS_FRAGMENT or len(words) == 1:
        return True
    return len(words) <= _MAX_NAME_WORDS and text.rstrip().endswith("?")


def compute_history_weight(text: str) -> float:
    """How much of what was said before belongs to the request: 0 nothing, up to 1."""
    content = sum(1 for word in _LETTERS.findall(text) if word.casefold() not in _SAYS_LITTLE)
    silence = max(0.0, 1 - content / _INDEPENDENT_WORDS)
    needs = classify_dependence(text)
    if needs is Dependence.FRAGMENT:
        return 1.0 if content <= 1 else silence
    if needs is Dependence.REFERS:
        return silence
    return 0.0 if _NAMED.search(text) is not None else _COMPLETE_SENTENCE_WEIGHT * silence


def compute_turn_weights(text: str, turns: int) -> tuple[float, ...]:
    """How much each earlier turn counts beside the request, the latest first."""
    first = MAX_EARLIER_WEIGHT * compute_history_weight(text)
    return tuple(first * _LATER_TURN_FACTOR**place for place in range(turns))
