"""Is somebody waiting?

`Urgent` is often only a word: an urgent care clinic, the tickets marked urgent,
something that is not urgent. Those are taken out before the rest is believed.
"""

from __future__ import annotations

import re
from typing import Final

_URGENT_THINGS: Final = (
    "care|tickets?|issues?|e-?mails?|mails?|messages?|tasks?|todos?|items?|cases?|requests?|orders?"
    "|bugs?|matters?|alerts?|reminders?|flags?|labels?|priority|ones?"
)
# Said about something else, or denied.
_NOT_URGENT: Final = re.compile(
    rf"\burgent (?:{_URGENT_THINGS})\b"
    r"|\b(?:mark|marked|label|labell?ed|tag|tagged|flag|flagged|priority|severity)(?: it| them)?(?: as)?"
    r"[:=]? ['\"]?urgent\b"
    r"|\b(?:not|isn't|non|nothing|no longer)[ -](?:so |that |very |really )?urgent\b"
    r"|\bno (?:rush|hurry)\b|\bnot in a (?:rush|hurry)\b|\bimmediately (?:after|before|following|preceding)\b"
    r"|(?<![א-ת])(?:לא|אינו|אינה) (?:כל כך |ממש |מאוד )?(?:דחוף|דחופה|בוער|ממהר|ממהרת)(?![א-ת])"
    r"|(?<![א-ת])[והל]{0,2}רפואה ה?דחופה"
    r"|(?<![א-ת])(?:כ|בתור )(?:דחוף|דחופה|דחופים|דחופות)(?![א-ת])"
    r"|(?<![א-ת])מיד (?:אחרי|לאחר|לפני)(?![א-ת])|(?<![א-ת])יד מיד",
    re.IGNORECASE,
)
_URGENT_WORDS: Final = re.compile(
    r"\b(?:urgent|urgently|asap|a\.s\.a\.p|immediately|hurry|quickly|time[- ](?:critical|sensitive))\b"
    r"|\bas (?:soon|fast|quickly|quick) as (?:possible|you can|u can)\b"
    r"|\b(?:right away|straight away|without delay|at once|no time to (?:lose|waste)|in a (?:rush|hurry))\b"
    r"|\b(?:need|needs|want|do|fix|send|call|stop|answer|now)\b[^.?!\n]{0,60}\bright now\b(?! *\?)"
    r"|\bthis is (?:an emergency|critical)\b|\b(?:production|prod) is down\b"
    r"|(?<![א-ת])[ובה]?(?:דחוף|דחופה|בדחיפות|דחיפות גבוהה|מיידית|מידית|באופן מיי?די|בהקדם|בבהילות)(?![א-ת])"
    r"|(?<![א-ת])(?:מיד|מייד|תיכף ומיד|ברגע זה|בלי דיחוי|ללא דיחוי|ללא שיהוי)(?![א-ת])"
    r"|(?<![א-ת])(?:זה בוער|אני ממהרת?)(?![א-ת])"
    r"|(?<![א-ת])(?:כמה שיותר|הכי) מהר(?![א-ת])|(?<![א-ת])מהר(?: בבקשה|!|$)|(?<![א-ת])במהירות האפשרית",
    re.IGNORECASE,
)


# No pattern matches without one of these in the text, and looking for them costs nothing.
_URGENCY_CUES: Final = (
    "urgent", "asap", "a.s.a.p", "immediately", "hurry", "quick", "time", "as soon", "as fast", "away",
    "delay", "at once", "rush", "right now", "this is", "is down",
    "דחו", "דחיפו", "מיד", "מייד", "בהקדם", "בהיל", "ברגע זה", "דיחוי", "שיהוי", "בוער", "ממהר", "מהר",
    "במהירות",
)  # fmt: skip


def is_urgent(text: str) -> bool:
    """Whether the request says that it cannot wait."""
    lowered = text.lower()
    if not any(cue in lowered for cue in _URGENCY_CUES):
        return False
    return _URGENT_WORDS.search(_NOT_URGENT.sub(" ", text)) is not None
