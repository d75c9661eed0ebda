"""Several wishes in one request, taken apart.

"Find the flight and put it in my calendar" needs two tools that have nothing in
common; looked for as one sentence, the louder wish drowns the other. Each wish
is a *need* and is looked for by itself.

A wrong cut costs more than a missed one, so this is conservative: a request is
cut at the end of a sentence, at the items of a list, at words that only ever
join two wishes ("and then", "ואז"), and at "and" or a comma only where a verb
that asks for something follows ("and send …", never "salt and pepper"). What is
background ("I am off to Paris next week.") is no need. A request that holds
fewer than two wishes stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from fingerpost.catalog import verbs
from fingerpost.catalog.words import STOP_WORDS, parse_word_set

MAX_NEEDS: Final = 4
MAX_SPLIT_LENGTH: Final = 5000  # characters looked at
_MIN_NEED_WORDS: Final = 2
_MIN_NEED_LETTERS: Final = 8

# What people ask an assistant to do, beside what tools call themselves.
_EVERYDAY_VERBS: Final = parse_word_set(
    """
    arrange bring brief call cancel chart check collect contact deliver determine draw email ensure
    evaluate figure gather give grab help highlight identify inform investigate keep let look mail message
    name organise organize outline pick plan plot point prepare propose provide pull recommend remind rank
    see sort tell text turn
    """
)
_ASKING_VERBS: Final = (
    verbs.READ_VERBS | verbs.WRITE_VERBS | verbs.AMBIGUOUS_VERBS | verbs.DESTROY_VERBS | _EVERYDAY_VERBS
) - parse_word_set("has is exists head help info command script shell bash sudo cmd")
# Words that are as often nouns ("a movie and book list"): a verb only when something follows to act on.
_DOUBTFUL_VERBS: Final = (
    verbs.NOUN_LIKE
    | parse_word_set(
        """
    address archive balance bookmark chart check click close contact count diff display draft echo email
    estimate fix follow forecast format help input invite issue join launch list mail map mark message move
    name note open order outline pause pick plan plot preview press process purchase query rank reason
    report research reset resolve roll run scale schedule score search seed sort stop summary test text
    train translate trim turn type view wait watch
    """
    )
) & _ASKING_VERBS
_OBJECT: Final = (
    r"(?:an?|the|my|our|your|his|her|its|their|me|us|him|them|it|this|that|these|those|all|any|each|every|"
    r"some|both|one|two|three|four|five|for|to|in|on|at|up|out|if|how|what|when|where|which|who|whether|"
    r"about|with|from|by|\d\S*|[\"'“‘«]\S*|(?-i:[A-Z])\S*)\b"
)
_CERTAIN_VERB: Final = (
    r"(?:" + "|".join(sorted(_ASKING_VERBS - _DOUBTFUL_VERBS, key=len, reverse=True)) + r")\b"
)
_DOUBTFUL_VERB: Final = (
    r"(?:" + "|".join(sorted(_DOUBTFUL_VERBS, key=len, reverse=True)) + r")\s+(?=" + _OBJECT + ")"
)
_ANY_VERB: Final = r"(?:" + "|".join(sorted(_ASKING_VERBS, key=len, reverse=True)) + r")\b"
_POLITE_OPENING: Final = (
    r"(?:please\s+|kindly\s+|also\s+|finally\s+|lastly\s+|next\s+|then\s+|just\s+|maybe\s+)*"
)
_VERB: Final = rf"{_POLITE_OPENING}(?:{_CERTAIN_VERB}|{_DOUBTFUL_VERB})"

_QUESTION_WORD: Final = (
    r"(?:what(?:'s|\s+\w+)|which\s+\w+|how\s+(?:much|many|long|far|old|do|does|can|to|is|are)\b|"
    r"(?:who|where|when|why)(?:'s|\s+(?:is|are|was|were|do|does|did|can|could|will|would|should))\b)"
)

_ENGLISH_JOINT: Final = re.compile(
    r"[,;]?\s+(?:and|but)\s+(?:then|also|finally|lastly|after\s+that|afterwards)\b,?\s+"
    r"|[,;]\s+(?:then|after\s+that|afterwards|plus)\s+"
    rf"|,\s+(?:and\s+)?(?={_VERB})"
    rf"|\s+(?:and|then)\s+(?={_VERB})"
    rf"|,?\s+and\s+(?={_QUESTION_WORD})",
    re.IGNORECASE,
)
_HEBREW_VERBS: Final = (
    "אתר|בדוק|בטל|בצע|הבא|הוסף|הורד|הזמן|הסר|העבר|העלה|העתק|הפעל|הצג|הראה|השווה|חפש|חשב|כתוב|מחק|מצא|סכם|"
    "סגור|עדכן|פתח|צור|קבע|קרא|שלח|שמור|תרגם|תזכיר|תאתר|תבדוק|תבדקי|תבטל|תבצע|תביא|תגיד|תודיע|תוסיף|תוסיפי|"
    "תוריד|תזמין|תזמיני|תחפש|תחפשי|תחשב|תחשבי|תכתוב|תכתבי|תמחק|תמחקי|תמצא|תמצאי|תסכם|תסגור|תעביר|תעדכן|"
    "תעלה|תעתיק|תפעיל|תפתח|תצור|תיצור|תציג|תקבע|תקבעי|תקרא|תראה|תשווה|תשלח|תשלחי|תשמור|תשמרי|תתרגם|תן|תני"
)
_HEBREW_JOINT: Final = re.compile(
    r",?\s+(?:ואז|וגם|ואחר\s+כך|ואחרי\s+זה|ואחרי\s+כן|ולאחר\s+מכן|ובנוסף|ולבסוף|וכן)\s+"
    rf"|,?\s+(?=ו(?:{_HEBREW_VERBS})\b)"
)
_OTHER_JOINT: Final = re.compile(
    r"[,;，]?\s*(?:然后|接着|并且|同时|另外|此外|最后再|それから|そして|그리고|그런\s다음)"
    r"|,?\s+(?:y\s+luego|y\s+después|et\s+ensuite|et\s+puis|und\s+dann|und\s+danach|e\s+poi|e\s+depois|en\s+dan|"
    r"а\s+затем|и\s+затем|и\s+потом)\s+",
    re.IGNORECASE,
)
_JOINTS: Final = {"en": _ENGLISH_JOINT, "he": _HEBREW_JOINT}

# Not after one letter ("J.K. Rowling", "10 a.m.").
_SENTENCE_END: Final = re.compile(
    r"(?<=\w\w[.!?])\s+|(?<=[!?])\s+|(?<=[\d)\]\"'”’][.!?])\s+(?=[A-Z])|(?<=[;。！？；])\s*|\n+"
)
_LIST_ITEM: Final = re.compile(r"^\s*(?:\(?\d{1,2}[.):]|[-*•–])\s+(?=\S)", re.MULTILINE)
_INLINE_LIST_ITEM: Final = re.compile(r"(?:^|(?<=[\s:;,.]))\(?[1-9][).]\s+(?=\S)")

_NEED_OPENING: Final = (
    r"(?:and|also|additionally|furthermore|moreover|besides|finally|lastly|then|next|first|firstly|secondly|"
    r"second|third|afterwards|after\s+that|oh|hey|hi|hello|ok|okay|so|now|plus|lastly|moreover|in\s+addition)"
    r"\b,?\s*"
)
_ASKS_SOMETHING: Final = re.compile(
    rf"^(?:{_NEED_OPENING})*{_POLITE_OPENING}(?:{_ANY_VERB}|what|which|who|whose|when|where|how|is|are|"
    r"does|do|did|will|has|have|show|let's)\b"
    r"|\b(?:can|could|would|will)\s+(?:you|u|we)\b"
    r"|\b(?:please|pls|kindly)\b"
    r"|\bI(?:\s+(?:also|just|really|still))?(?:'d|’d|\s+would)?(?:\s+(?:also|really))?\s+(?:like|love|want|need|wish)\b"
    r"|\b(?:looking\s+for|wondering|curious|tell\s+me|let\s+me\s+know|give\s+me|show\s+me|help\s+me)\b"
    r"|\?",
    re.IGNORECASE,
)

# Words of asking and pointing: a piece made of these alone ("can you help me with that?") wants nothing new.
_EMPTY_PIECE: Final = STOP_WORDS | parse_word_set(
    """
    able additional additionally advance again also am and appreciate appreciated assist assistance be can
    certain complete could d detail details ensure exactly find findings fine finally get give great hard help
    helpful hey hi i im just know ll lastly let ll love m make many me much my need now ok okay please
    possible provide re really show so solid some soon specific sure t task tasks tell thank thanks them
    things this those to ve want way we well wish wonder wondering would you your back evidence numbers
    number generalizations generic real actual concrete kindly
    """
)
_SPLIT_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_WIDE_GAP: Final = re.compile(r"[^\S\n]{20,}")  # a joint would be tried at each blank, each time to the end


def split_needs(text: str, language: str = "en", most: int = MAX_NEEDS) -> tuple[str, ...]:
    """The wishes of a request, in its own words and order; the request itself when it holds but one."""
    whole = text.strip()
    if not whole:
        return ()
    looked_at = _WIDE_GAP.sub(" ", whole[:MAX_SPLIT_LENGTH])
    wishes = [piece for piece in _split_pieces(looked_at, language) if _is_need(piece, language)]
    return _merge_shortest(most, wishes) if len(wishes) > 1 else (whole,)


def _split_pieces(text: str, language: str) -> Iterator[str]:
    joint = _JOINTS.get(language, _OTHER_JOINT)
    for item in _split_list_items(text):
        for sentence in _SENTENCE_END.split(item):
            yield from _join_small_parts(joint.split(sentence))


def _split_list_items(text: str) -> list[str]:
    """The items of a list; before the first one stands an introduction."""
    for mark in (_LIST_ITEM, _INLINE_LIST_ITEM):
        if len(mark.findall(text)) > 1:
            return mark.split(text)
    return [text]


def _join_small_parts(parts: Iterable[str]) -> Iterator[str]:
    """Parts too small to be a wish of their own go back to the one before ("find it, read, send")."""
    kept = ""
    for part in parts:
        piece = part.strip(" ,;:\t")
        if not piece:
            continue
        if kept and _is_too_small(piece):
            kept = f"{kept}, {piece}"
            continue
        if kept:
            yield kept
        kept = piece
    if kept:
        yield kept


def _is_too_small(piece: str) -> bool:
    spaced = piece.isascii() or " " in piece
    return len(piece.split()) < _MIN_NEED_WORDS if spaced else len(piece) < _MIN_NEED_LETTERS // 2


def _is_need(piece: str, language: str) -> bool:
    if _is_too_small(piece) or len(piece) < _MIN_NEED_LETTERS // 2:
        return False
    if language != "en":
        return True
    return _ASKS_SOMETHING.search(piece) is not None and _has_content(piece)


def _has_content(piece: str) -> bool:
    return any(word.lower() not in _EMPTY_PIECE for word in _SPLIT_WORD.findall(piece))


def _merge_shortest(most: int, needs: list[str]) -> tuple[str, ...]:
    """Neighbours joined, the shortest first, until there are few enough."""
    joined = list(needs)
    while len(joined) > most:
        lengths = [len(joined[i]) + len(joined[i + 1]) for i in range(len(joined) - 1)]
        at = lengths.index(min(lengths))
        joined[at : at + 2] = [f"{joined[at]}; {joined[at + 1]}"]
    return tuple(joined)
