"""Hebrew words for the values tools list most often, and values that are ordinary words.

`high` in "the fan speed is high" is no priority: a value that is an ordinary word
counts only right beside a word of its parameter.
"""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set

_HEBREW_OPTIONS: Final = """
celsius צלזיוס
fahrenheit פרנהייט
metric מטרי מטרית
daily יומי יומית
weekly שבועי שבועית
monthly חודשי חודשית
yearly שנתי שנתית
high גבוהה גבוה
medium בינונית בינוני
low נמוכה נמוך
critical קריטית קריטי
open פתוח פתוחה פתוחים פתוחות
closed סגור סגורה סגורים סגורות
all כל
kitchen מטבח
bedroom שינה
red אדום אדומה
green ירוק ירוקה
blue כחול כחולה
male גברי
female נשי
error שגיאה
success הצלחה
"""
HEBREW_OPTION_WORDS: Final = {
    line.split()[0]: tuple(line.split()[1:]) for line in _HEBREW_OPTIONS.strip().splitlines()
}

ORDINARY_WORDS: Final = STOP_WORDS | parse_word_set(
    """
    name size date time title text open opened closed close done high low medium normal new old first
    last next day week month year hour minute second today all any both full short long big small large
    simple auto public private local remote up down left right start end in out on off yes no good best
    top bottom main file files folder image video audio number count value key day light dark fast slow
    hot cold read write run stop active present general standard basic advanced free paid work home user
    group team page line word message note body head raw table column row order state status price cost
    amount money market point level class test tests critical urgent important man woman child children
    people person ascending descending relevance resource
    """
)
