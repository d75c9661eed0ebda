"""Whether a request asks for official data: what a government or a statistical office publishes.

`official` alone says little (an official website, the official documentation), and so does
`government`: both have to stand beside data, or a publisher of such data has to be named.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.categories import OFFICIAL_DATA
from fingerpost.records import IntentMatch

_DATA_WORDS: Final = (
    r"(?:data(?:sets?|bases?)?|statistics?|stats|figures?|numbers|records|registr(?:y|ies)|census)"
)
_PUBLISHER_WORDS: Final = "government|ministry|census bureau|statistics office"
_DATA_WORDS_HE: Final = (
    "(?:נתונ(?:ים|י)|מאגר(?:י)?(?: ה?(?:מידע|נתונים))?|סטטיסטיק(?:ה|ת|ות)|מידע|מרשם|רישומי(?:ם)?"
    "|מסד(?: ה?נתונים)?)"
)
_OFFICIAL_WORDS_HE: Final = "ה?(?:רשמי(?:ים|ות|ת)?|ממשלתי(?:ים|ות|ת)?|ממשלה)"
_PREFIX_HE: Final = "(?<![א-ת])[ובלכמשה]{0,3}"

_OFFICIAL_CUES: Final = re.compile(
    r"\b(?:official(?:ly)?|government(?:al)?|ministry|municipal) (?:open |public |published )?"
    rf"{_DATA_WORDS}\b(?! (?:cent(?:er|re)|structures?|types?))"
    rf"|\b{_DATA_WORDS} (?:from|of|by|published by) (?:the )?(?:\w+ )?(?:{_PUBLISHER_WORDS})\b"
    r"|\bopen government data(?:sets?)?\b|\bopen data portal\b|\bpublic sector data\b"
    r"|\bdata[. ]?gov(?:\.il|\.uk)?\b|\bcensus bureau\b|\bnational statistics\b"
    r"|\b(?:statistics office|bureau of statistics|statistical office|(?:government|population) registry)\b"
    rf"|{_PREFIX_HE}{_DATA_WORDS_HE} {_OFFICIAL_WORDS_HE}(?![א-ת])"
    rf"|{_PREFIX_HE}נתוני (?:ה?ממשלה|משרד(?:י)? |ה?למ[\"״']?ס)"
    rf"|{_PREFIX_HE}לשכה ה?מרכזית לסטטיסטיקה|{_PREFIX_HE}למ[\"״]ס(?![א-ת])"
    rf"|{_PREFIX_HE}(?:מידע|נתונים) (?:פתוח(?:ים)?|ציבורי(?:ים)?) של (?:ה?ממשלה|ה?מדינה|משרד)"
    rf"|{_PREFIX_HE}(?:מרשם האוכלוסין|מפקד האוכלוסין|דאטה ?גוב)(?![א-ת])",
    re.IGNORECASE,
)


def find_official_data_intent(text: str) -> tuple[IntentMatch, ...]:
    """The intent, with the words that say so, where the request has it."""
    found = tuple(dict.fromkeys(match.group().strip() for match in _OFFICIAL_CUES.finditer(text)))
    return (IntentMatch(category=OFFICIAL_DATA, score=1.0, words=found[:4]),) if found else ()
