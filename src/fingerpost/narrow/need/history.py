"""What the conversation does to the question whether a tool is needed.

Three things: what was said already is answered from there ("what was my lucky
number?"); a wish about the last answer's wording needs the answer alone
("shorter, please"); and a fragment of a request needs a tool when the request it
continues did ("and in Paris?", "yes, go ahead").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.narrow.followups import Dependence, classify_dependence
from fingerpost.narrow.need.reading import NeedFeatures, cut_middle, extract_features
from fingerpost.records import Message, Signals

_LOOK_BACK_MESSAGES: Final = 40  # messages searched for what was said
_SHORT_REQUEST_WORDS: Final = 9  # words
_MIN_REQUEST_WORDS: Final = 3  # words; a shorter turn says less than what it follows
_MAX_REPLY_WORDS: Final = 3  # words
_MAX_RECALL_WORDS: Final = 30  # words; nobody asks longer for what was said
_MAX_YES_LENGTH: Final = 60  # characters

_ALREADY_SAID: Final = re.compile(
    r"\b(?:did (?:i|you|we) (?:just )?(?:say|tell|mention|decide|agree|call|write|suggest|recommend)"
    r"|(?:i|you|we) (?:just )?(?:said|told|mentioned|decided|agreed|suggested|recommended|called)"
    r"|remind me (?:what|which|who|where|when|how)|what (?:was|were) (?:my|our|the|your)"
    r"|(?:which|who|what) (?:of (?:them|the two|these|those)|was the (?:first|second|last|other|cheaper))"
    r"|earlier|as i said)\b"
    r"|(?<!\w)(?:אמרתי|אמרת|אמרנו|סיפרתי|הזכרתי|החלטנו|סיכמנו)"
    r"|(?<!\w)(?:מה הי(?:ה|תה|יתה)|מי מהם|מי מהן|איזה מהם|איזו מהן)"
)
_OWN_FACT: Final = re.compile(
    r"\b(?:what(?:'s| is| was| were| are| do i)|who(?:'s| is)|where(?:'s| is| do i| am i)|which"
    r"|when(?:'s| is)|how old) .*\b(?:my|our|i)\b|\bwhere do (?:i|we) \w+|\bwhen do (?:i|we) \w+"
    r"|(?<!\w)(?:איך קוראים ל|מה השם של|מה שמ[וה]|במה אני|איפה אני)"
    r"|(?<!\w)(?:מה|מי|איפה|מתי) ה.*(?:שלי|שלנו)(?!\w)"
)
_REWORDING: Final = re.compile(
    r"\b(?:shorter|longer|simpler|more simply|clearer|rephrase|reword|rhyme|funnier|nicer|pronounce"
    r"|(?:more|less) (?:formal|friendly|casual|detail|polite|funny)|say (?:that|it) (?:again|more|in)"
    r"|what do you mean|why(?: not| is that)?\s*\?*$|in other words|half of (?:that|it)"
    r"|explain (?:that|this|it)|you mean|tell me why)\b"
    r"|(?<!\w)(?:יותר (?:פשוט|קצר|ארוך|רשמי|מצחיק|ברור)|קצר יותר|פשוט יותר|למה\s*\?*$|מה הכוונה)"
    r"|(?<!\w)(?:תסביר (?:את זה|שוב)|ו?חצי מזה|במילים אחרות|תקצר)"
)
_CONSENT: Final = re.compile(
    r"(?:yes|yeah|yep|yup|sure|ok|okay|go ahead|do it|do that|please do|proceed|go for it|send it|confirmed?"
    r"|sounds good|correct|right|absolutely|why not|please|then|thanks|👍|✅"
    r"|כן|בטח|קדימה|סבבה|אוקיי|תעשה(?: את זה)?|בבקשה|מאשר|מאשרת|יאללה|בסדר|תשלח)(?!\w)",
    re.IGNORECASE,
)
_OFFER: Final = re.compile(
    r"\b(?:shall i|should i|do you want me to|would you like me to|want me to|may i|can i go ahead|ok to"
    r"|confirm)\b"
    r"|(?<!\w)(?:האם ל|לשלוח|להמשיך|למחוק|להזמין|לקבוע|לבצע|לעשות|שא\w+|רוצה ש|מאשר|לאשר)",
    re.IGNORECASE,
)
_CONTENTLESS_WORDS: Final = parse_word_set(
    """
    a an the is are was were be what what's which who who's where when how do does did i me my our we
    you your it of in on at to for and or again please remind tell say said told mention mentioned
    called name's that this them two first second last one was about decided decide earlier just cheaper
    living am any anything something there do called
    למה איזה שאני האהוב האהובה עליי
    מה מי איפה מתי איך היה היתה הייתה של שלי שלנו את אני אמרתי אמרת הוא היא זה שוב קוראים ל עם על
    מהם מהן יותר
    """
)


def is_already_answered(reading: NeedFeatures, text: str, history: Sequence[Message]) -> bool:
    """Whether the request asks for what an earlier message holds."""
    if len(reading.spoken_words) > _MAX_RECALL_WORDS or reading.cues.get("act", "remind") != "remind":
        return False
    lowered = text.lower()
    said = _ALREADY_SAID.search(lowered) is not None
    if not said and not (_OWN_FACT.search(lowered) and "current" not in reading.cues):
        return False
    asked = [_get_root(word) for word in reading.spoken_words if word not in _CONTENTLESS_WORDS]
    if not asked:
        return said
    # Of what was said to be said most must be there; of a fact of the person, all of it.
    wanted = len(asked) / 2 if said else len(asked)
    return any(
        sum(root in told for root in asked) >= wanted
        for told in (
            {_get_root(word) for word in _tokenize_history(message.text)}
            for message in history[-_LOOK_BACK_MESSAGES:]
        )
    )


def is_about_wording(reading: NeedFeatures, text: str, history: Sequence[Message]) -> bool:
    """Whether the request only wants the last answer put differently."""
    answered = any(message.role == "assistant" for message in history[-2:])
    return (
        answered
        and len(reading.spoken_words) <= _SHORT_REQUEST_WORDS
        and _REWORDING.search(text.lower()) is not None
    )


def is_accepting_offer(text: str, history: Sequence[Message]) -> bool:
    """Whether the request says yes to something the assistant offered to do."""
    last = next((message for message in reversed(history[-3:]) if message.role == "assistant"), None)
    if last is None or len(text) > _MAX_YES_LENGTH or _OFFER.search(cut_middle(last.text)) is None:
        return False
    return _CONSENT.search(text) is not None and not any(char.isalnum() for char in _CONSENT.sub("", text))


def find_continued_request(text: str, history: Sequence[Message]) -> str | None:
    """The earlier request of which this one is a fragment, or to whose question it is the reply."""
    if classify_dependence(text) is not Dependence.FRAGMENT and not _is_reply_to_question(text, history):
        return None
    return find_referred_request(history)


def find_referred_request(history: Sequence[Message]) -> str | None:
    """The latest request of the person that can be understood by itself."""
    asked = [message.text for message in history[-_LOOK_BACK_MESSAGES:] if message.role == "user"]
    whole = (
        said
        for said in reversed(asked)
        if len(said.split()) >= _MIN_REQUEST_WORDS and classify_dependence(said) is not Dependence.FRAGMENT
    )
    return next(whole, asked[0] if asked else None)


def _is_reply_to_question(text: str, history: Sequence[Message]) -> bool:
    """Whether it is but a few words, said when the assistant had asked something back."""
    last = next((message for message in reversed(history[-2:]) if message.role == "assistant"), None)
    if last is None or not last.text.rstrip().endswith(("?", "？")) or "?" in text:
        return False
    words = _tokenize_history(text)
    return (
        0 < len(words) <= _MAX_REPLY_WORDS
        and not extract_features(text, Signals()).cues.keys() & _SELF_CONTAINED_CUES
    )


# A few words with one of these cues are no reply: they say what they want, or that nothing is wanted.
_SELF_CONTAINED_CUES: Final = frozenset(
    ("act", "command", "seek", "make", "write", "explain", "fact", "opinion", "chat", "role", "live", "sum")
)
_HISTORY_WORD: Final = re.compile(r"[a-z']+|[א-ת]+|\d+")


def _tokenize_history(text: str) -> list[str]:
    return _HISTORY_WORD.findall(cut_middle(text).lower())


def _get_root(word: str) -> str:
    """Close enough to see that "cats" and "cat's", "מספר" and "המספר" are the same."""
    word = word.removesuffix("'s").removesuffix("s")
    if "א" <= word[:1] <= "ת":
        while len(word) > 3 and word[0] in "והבלמשכ":
            word = word[1:]
    return word
