"""What kind of sentence a request is: whether it only asks, and whether it asks for what was written down.

"Did I get an email from the bank?" wants something to be looked at; "Can you delete the event?" has the
form of a question and wants something to be done.
"""

from __future__ import annotations

import re
from typing import Final

MAX_MOOD_LENGTH: Final = 2000

_POLITE: Final = r"^\W{0,5}(?:(?:please|and|so|ok|okay|hey|hi|then|now|also|but|well|ו?בבקשה|אז)\W+){0,3}"
# A question by its first word.
_QUESTION_START: Final = re.compile(
    _POLITE + r"(?:what|which|who|whose|whom|when|where|how|why|is|are|am|was|were|does|do|did|has|have|had"
    r"|isn't|aren't|don't|doesn't|didn't|any|anything"
    r"|ו?(?:מה|איזה|איזו|אילו|מי|מתי|איפה|היכן|כמה|האם|למה|מדוע|איך|יש))(?!\w)",
    re.IGNORECASE,
)
# A request in the form of a question.
_REQUEST_START: Final = re.compile(
    _POLITE + r"(?:(?:can|could|would|will|won't|can't|couldn't|may|might|shall|should) (?:you|i|we|u)\b"
    r"|(?:why don't|why not|what if|how about|do you mind|would you mind|is it possible"
    r"|is there (?:a|any) way|are you able|am i able|how (?:do|can|could|should|would) (?:i|we|you)|how to)\b"
    r"|ו?(?:אפשר|ניתן|תוכלי?|תוכלו|אתה יכול|את יכולה|האם (?:אפשר|תוכלי?|ניתן|אתה יכול)|אולי ת|בא לך"
    r"|ת[א-ת]{3,}(?: |\?)))",
    re.IGNORECASE,
)
_WHETHER_QUESTION: Final = re.compile(
    _POLITE + r"(?:did|do|does|have|has|had|is|are|was|were|any|anything|how many)(?!\w)"
    r"|^\W*(?:האם|יש|כמה|(?!מה|מי|מתי|איפה|איזה|איזו|אילו|איך|למה)[א-ת])",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"[.!?]\s+\S")
_CHANGE_VERB: Final = (
    r"(?:delete|remove|erase|write|create|make|add|append|move|rename|copy|send|forward|reply|post|update"
    r"|change|edit|replace|save|insert|drop|set|commit|push|reset|overwrite|cancel|book|buy|order|schedule"
    r"|put|store|upload|mark|turn|start|stop|restart|install|run|email|mail|remind|tell|notify|block)"
)
_HEBREW_CHANGE_VERB: Final = (
    r"(?:ת?מחקי?|ת?כתו?בי?|צרי?|ת?צורי?|הוסיפי?|תוסיפי?|העבירי?|תעבירי?|שלחי?|תשלחי?|תשנה|שנה|ת?עדכני?"
    r"|תשמו?רי?|שמו?רי?|תבטלי?|בטלי?|תזמיני?|תקבעי?|קבעי?|תעתיקי?|תריצי?|תפעילי?)"
)
# "… and send it to Ruth": behind the question something is to be done.
_LATER_CHANGE: Final = re.compile(
    rf"(?:\b(?:and|then|to|please)|[,;.!?])\s+(?:please |then |also |just )*{_CHANGE_VERB}\b"
    rf"|(?:^|\s)ו{_HEBREW_CHANGE_VERB}(?!\w)|[,;.]\s*{_HEBREW_CHANGE_VERB}(?!\w)",
    re.IGNORECASE,
)
# An instruction to look; not where it goes on to change something ("find the old ones and delete them").
_LOOK_VERB: Final = re.compile(
    _POLITE + r"(?:(?:can|could|would|will) you (?:please )?)?"
    r"(?:show|list|read|open|find|search|look|tell me|give me|print|display|count|summari[sz]e)\b"
    r"|"
    + _POLITE
    + r"(?:הצגי?|הראי|תראי|הראה|תראה|תציגי?|קראי?|תקראי?|ת?פתחי?|חפשי?|תחפשי?|מצאי?|תמצאי?)(?!\w)",
    re.IGNORECASE,
)
_ANY_CHANGE_VERB: Final = re.compile(
    rf"\b{_CHANGE_VERB}\b(?<!\btell)|(?:^|\s)ו?{_HEBREW_CHANGE_VERB}(?!\w)", re.IGNORECASE
)

_NOTE_WORDS: Final = (
    r"(?:write|wrote|written|note|noted|jot|jotted|record|recorded|decide|decided|agree|agreed|conclude|concluded"
    r"|settle on|settled on|say|said|document|documented|save|saved|put|keep|kept|store|stored)"
)
_RECORD_WORDS: Final = (
    r"(?:notes?|minutes|documentation|docs|wiki|handbook|guide|guidelines?|manual|polic(?:y|ies)"
    r"|knowledge base|journal|diary|records|memory|memories)"
)
_RECALL_REQUEST: Final = re.compile(
    rf"\bwhat (?:did|have|had) (?:i|we) (?:ever |just |already )?{_NOTE_WORDS}\b"
    rf"|\b(?:did|have|had) (?:i|we) (?:ever |already |not )?{_NOTE_WORDS} (?:\w+ ){{0,3}}"
    r"(?:about|on|for|who|what|how|why|that|down)\b"
    rf"|\bwhere (?:did|have) (?:i|we) (?:ever )?(?:write|note|jot|record|put down|keep|noted|written)\b"
    rf"|\b(?:is|are|was|were) there (?:an?|any|anything|something|some)\b[^?.]{{0,40}}"
    rf"\b(?:my |our |the )?{_RECORD_WORDS}\b"
    rf"|\bdo (?:i|we) have (?:a|an|any|some)?\s?(?:\w+ )?"
    rf"(?:{_RECORD_WORDS}|convention|rule|agreement|decision|process)\b"
    rf"|\b(?:my|our|the team's|the) {_RECORD_WORDS} (?:say|says|said|mention|mentions|about|on)\b"
    rf"|\b(?:in|from|through) (?:my|our) {_RECORD_WORDS}\b"
    r"|\b(?:do you (?:still )?(?:remember|know)|what do you (?:remember|know)) "
    r"(?:about )?(?:me\b|my\b|our\b|what i\b)"
    r"|\bwhat did (?:i|we) tell you\b"
    r"|(?<!\w)ו?(?:מה|איפה|מתי|איך|האם) (?:כבר )?"
    r"(?:כתבתי|כתבנו|רשמתי|רשמנו|החלטנו|החלטתי|סיכמנו|קבענו|תיעדנו|שמרתי|סיפרתי לך)"
    r"|(?<!\w)(?:כתבתי|כתבנו|רשמתי|רשמנו|החלטנו|סיכמנו) (?:משהו|פעם|כבר)"
    r"|(?<!\w)יש (?:לי |לנו )?(?:איזה )?(?:פתק|פתקים|רשומה|הערה|הערות|סיכום|פרוטוקול|מסמך|נוהל)(?!\w)"
    r"|(?<!\w)(?:מה )?(?:אתה|את) (?:זוכר|זוכרת|יודע|יודעת) (?:על |עליי|את ה)"
    r"|(?<!\w)ב?(?:פתקים|הערות|רשימות|סיכומים) של(?:י|נו)",
    re.IGNORECASE,
)


def is_only_asking(text: str) -> bool:
    """Whether the request wants something to be looked at, and nothing to be changed."""
    said = text[:MAX_MOOD_LENGTH].strip()
    if _LOOK_VERB.match(said) is not None:
        return _ANY_CHANGE_VERB.search(said) is None
    if _REQUEST_START.match(said) is not None or _LATER_CHANGE.search(said) is not None:
        return False
    if _QUESTION_START.match(said) is not None:
        return True
    return said.endswith("?") and _SENTENCE_END.search(said) is None


def is_asking_whether(text: str) -> bool:
    """Whether the request asks if something is there, or how much of it: no one thing is known yet."""
    return is_only_asking(text) and _WHETHER_QUESTION.match(text.strip()) is not None


def is_asking_to_recall(text: str) -> bool:
    """Whether the request asks for what was written down, decided or remembered before."""
    return _RECALL_REQUEST.search(text[:MAX_MOOD_LENGTH].replace("’", "'")) is not None
