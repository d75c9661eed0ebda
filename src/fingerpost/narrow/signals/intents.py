"""Intents of a request: its categories, whether it only asks, and whether it is urgent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.catalog.words import CATEGORIES, OFFICIAL_DATA, to_singular
from fingerpost.data_files import read_sections, read_word_sets
from fingerpost.narrow.gloss.gloss import Gloss
from fingerpost.narrow.gloss.hebrew import fold_word, split_prefixes
from fingerpost.records import Entity, EntityKind, IntentMatch
from fingerpost.regex import prepare_re

_CATEGORY_WORDS: Final = read_word_sets("fingerpost.narrow", "words/categories.txt")
_WEAK_WORDS: Final = _CATEGORY_WORDS["weak"]  # they count little and never decide alone


_INTENT_WORD: Final = prepare_re(r"[a-z0-9]+")
_STRONG_WEIGHT: Final = 1.0
_WEAK_WEIGHT: Final = 0.35
_PHRASE_WEIGHT: Final = 1.5
_MAX_EVIDENCE: Final = 6
_MAX_EVIDENCE_LENGTH: Final = 60

# Categories suggested by an entity. Dates and numbers suggest none.
_CATEGORY_BY_ENTITY: Final = {
    EntityKind.PATH: ("files", 0.8),
    EntityKind.URL: ("web_page", 0.8),
    EntityKind.EMAIL: ("communication", 0.6),
}

IntentVote = tuple[str, float, str]  # category, weight, the words


def find_intents(text: str, glossed: Gloss, found: Iterable[Entity]) -> tuple[IntentMatch, ...]:
    """Return the categories of the request, best first, each with a score from 0 to 1."""
    weights: dict[str, dict[str, float]] = {}
    for category, weight, words in (
        *_vote_by_words(text),
        *_vote_by_gloss(glossed),
        *_vote_by_entities(found),
    ):
        word_weights = weights.setdefault(category, {})
        word_weights[words] = max(word_weights.get(words, 0.0), weight)
    matches = [
        IntentMatch(
            category=category,
            score=round(1 - 0.5 ** sum(word_weights.values()), 3),
            words=tuple(sorted(word_weights, key=lambda words: -word_weights[words]))[:_MAX_EVIDENCE],
        )
        for category, word_weights in weights.items()
    ]
    return tuple(sorted(matches, key=lambda match: (-match.score, match.category)))


def _vote_by_words(text: str) -> Iterator[IntentVote]:
    words = [found.group() for found in _INTENT_WORD.finditer(text.lower())]
    for word in dict.fromkeys(words):
        yield from _vote_for_word(word, word)
    # Phrases are indexed by their first word, so that their number does not matter.
    for place, word in enumerate(words):
        for category, phrase in _build_phrase_index().get(word, ()):
            if tuple(words[place : place + len(phrase)]) == phrase:
                yield category, _PHRASE_WEIGHT, " ".join(phrase)


def _vote_by_gloss(glossed: Gloss) -> Iterator[IntentVote]:
    """Vote by Hebrew words that a category lists, and by their English translations."""
    for word, english in glossed:
        if not english or english == (word,):
            continue
        own = [(name, word) for name in _find_hebrew_categories(word)]
        yield from ((name, _STRONG_WEIGHT, spoken) for name, spoken in own)
        # The first English word is the most likely; later ones count less.
        for place, meaning in enumerate(english):
            yield from (
                (name, weight / (place + 1), word) for name, weight, _ in _vote_for_word(meaning, word)
            )


def _find_hebrew_categories(word: str) -> tuple[str, ...]:
    for _, rest in split_prefixes(fold_word(word)):
        if rest in _build_hebrew_index():
            return _build_hebrew_index()[rest]
    return ()


def _vote_by_entities(found: Iterable[Entity]) -> Iterator[IntentVote]:
    for entity in found:
        if entity.kind in _CATEGORY_BY_ENTITY:
            category, weight = _CATEGORY_BY_ENTITY[entity.kind]
            yield category, weight, entity.text[:_MAX_EVIDENCE_LENGTH]


def _vote_for_word(word: str, evidence: str) -> Iterator[IntentVote]:
    categories = _build_english_index().get(to_singular(word), ())
    for category in categories:
        yield (
            category,
            (_WEAK_WEIGHT if word in _WEAK_WORDS else _STRONG_WEIGHT) / len(categories) ** 0.5,
            evidence,
        )


@lru_cache(maxsize=1)
def _build_english_index() -> dict[str, tuple[str, ...]]:
    listed = ((category.name, category.english | _CATEGORY_WORDS[category.name]) for category in CATEGORIES)
    return _invert_lists((name, map(to_singular, words)) for name, words in listed)


@lru_cache(maxsize=1)
def _build_hebrew_index() -> dict[str, tuple[str, ...]]:
    return _invert_lists((category.name, map(fold_word, category.hebrew)) for category in CATEGORIES)


@lru_cache(maxsize=1)
def _build_phrase_index() -> dict[str, Sequence[tuple[str, tuple[str, ...]]]]:
    by_first: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for category, phrases in read_sections("fingerpost.narrow", "words/category_phrases.txt").items():
        for phrase in phrases.strip().splitlines():
            words = tuple(phrase.split())
            by_first.setdefault(words[0], []).append((category, words))
    return dict(by_first)


def _invert_lists(lists: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    by_word: dict[str, dict[str, None]] = {}
    for category, words in lists:
        for word in words:
            by_word.setdefault(word, {}).setdefault(category)
    return {word: tuple(categories) for word, categories in by_word.items()}


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

_OFFICIAL_CUES: Final = prepare_re(
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
    """Return the intent for official data with the words that show it, if the request has it."""
    found = tuple(dict.fromkeys(match.group().strip() for match in _OFFICIAL_CUES.finditer(text)))
    return (IntentMatch(category=OFFICIAL_DATA, score=1.0, words=found[:4]),) if found else ()


MAX_MOOD_LENGTH: Final = 2000

_POLITE: Final = r"^\W{0,5}(?:(?:please|and|so|ok|okay|hey|hi|then|now|also|but|well|ו?בבקשה|אז)\W+){0,3}"
# A question, by its first word.
_QUESTION_START: Final = prepare_re(
    _POLITE + r"(?:what|which|who|whose|whom|when|where|how|why|is|are|am|was|were|does|do|did|has|have|had"
    r"|isn't|aren't|don't|doesn't|didn't|any|anything"
    r"|ו?(?:מה|איזה|איזו|אילו|מי|מתי|איפה|היכן|כמה|האם|למה|מדוע|איך|יש))(?!\w)",
    re.IGNORECASE,
)
# A request in the form of a question.
_REQUEST_START: Final = prepare_re(
    _POLITE + r"(?:(?:can|could|would|will|won't|can't|couldn't|may|might|shall|should) (?:you|i|we|u)\b"
    r"|(?:why don't|why not|what if|how about|do you mind|would you mind|is it possible"
    r"|is there (?:a|any) way|are you able|am i able|how (?:do|can|could|should|would) (?:i|we|you)|how to)\b"
    r"|ו?(?:אפשר|ניתן|תוכלי?|תוכלו|אתה יכול|את יכולה|האם (?:אפשר|תוכלי?|ניתן|אתה יכול)|אולי ת|בא לך"
    r"|ת[א-ת]{3,}(?: |\?)))",
    re.IGNORECASE,
)
_WHETHER_QUESTION: Final = prepare_re(
    _POLITE + r"(?:did|do|does|have|has|had|is|are|was|were|any|anything|how many)(?!\w)"
    r"|^\W*(?:האם|יש|כמה|(?!מה|מי|מתי|איפה|איזה|איזו|אילו|איך|למה)[א-ת])",
    re.IGNORECASE,
)
_SENTENCE_END: Final = prepare_re(r"[.!?]\s+\S")
_CHANGE_VERB: Final = (
    r"(?:delete|remove|erase|write|create|make|add|append|move|rename|copy|send|forward|reply|post|update"
    r"|change|edit|replace|save|insert|drop|set|commit|push|reset|overwrite|cancel|book|buy|order|schedule"
    r"|put|store|upload|mark|turn|start|stop|restart|install|run|email|mail|remind|tell(?! me)|notify|block)"
)
_HEBREW_CHANGE_VERB: Final = (
    r"(?:ת?מחקי?|ת?כתו?בי?|צרי?|ת?צורי?|הוסיפי?|תוסיפי?|העבירי?|תעבירי?|שלחי?|תשלחי?|תשנה|שנה|ת?עדכני?"
    r"|תשמו?רי?|שמו?רי?|תבטלי?|בטלי?|תזמיני?|תקבעי?|קבעי?|תעתיקי?|תריצי?|תפעילי?)"
)
# An action after the question: "… and send it to Ruth".
_LATER_CHANGE: Final = prepare_re(
    rf"(?:\b(?:and|then|to|please)|[,;.!?])\s+(?:please |then |also |just )*{_CHANGE_VERB}\b"
    rf"|(?:^|\s)ו{_HEBREW_CHANGE_VERB}(?!\w)|[,;.]\s*{_HEBREW_CHANGE_VERB}(?!\w)",
    re.IGNORECASE,
)
# An instruction to look, unless a change follows ("find the old ones and delete them").
_LOOK_VERB: Final = prepare_re(
    _POLITE + r"(?:(?:can|could|would|will) you (?:please )?)?"
    r"(?:show|list|read|open|find|search|look|tell me|give me|print|display|count|summari[sz]e)\b"
    r"|"
    + _POLITE
    + r"(?:הצגי?|הראי|תראי|הראה|תראה|תציגי?|קראי?|תקראי?|ת?פתחי?|חפשי?|תחפשי?|מצאי?|תמצאי?)(?!\w)",
    re.IGNORECASE,
)
# Of the verbs of change only those that hardly ever ask for a text or a calculation.
_CHANGE_START: Final = prepare_re(
    _POLITE + r"(?:(?:can|could|would|will) you (?:please )?)?"
    r"(?:delete|remove|erase|add|append|move|rename|send|forward|reply|post|update|edit|replace|save|insert"
    r"|store|upload|commit|push|overwrite|cancel|book|schedule|note|remember|record|log|jot|archive)\b"
    r"|" + _POLITE + rf"{_HEBREW_CHANGE_VERB}(?!\w)",
    re.IGNORECASE,
)
_NOTE_WORDS: Final = (
    r"(?:write|wrote|written|note|noted|jot|jotted|record|recorded|decide|decided|agree|agreed|conclude|concluded"
    r"|settle on|settled on|say|said|document|documented|save|saved|put|keep|kept|store|stored)"
)
_RECORD_WORDS: Final = (
    r"(?:notes?|minutes|documentation|docs|wiki|handbook|guide|guidelines?|manual|polic(?:y|ies)"
    r"|knowledge base|journal|diary|records|memory|memories)"
)
_RECALL_REQUEST: Final = prepare_re(
    rf"\bwhat (?:did|have|had) (?:i|we) (?:ever |just |already )?{_NOTE_WORDS}\b"
    rf"|\b(?:did|have|had) (?:i|we) (?:ever |already |not )?{_NOTE_WORDS} (?:\w+ ){{0,3}}"
    r"(?:about|on|for|who|what|how|why|that|down)\b"
    r"|\bwhere (?:is|are|was|were) [^?.\n]{2,80} "
    r"(?:described|documented|explained|written(?: down)?|noted|recorded)\b"
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
    """Return whether the request only reads and changes nothing."""
    beginning = text[:MAX_MOOD_LENGTH].strip()
    if _LOOK_VERB.match(beginning) is not None:
        return _LATER_CHANGE.search(beginning) is None
    if _REQUEST_START.match(beginning) is not None or _LATER_CHANGE.search(beginning) is not None:
        return False
    if _QUESTION_START.match(beginning) is not None:
        return True
    return beginning.endswith("?") and _SENTENCE_END.search(beginning) is None


def is_wishing_change(text: str) -> bool:
    """Return whether the request begins with an instruction to change something."""
    return _CHANGE_START.match(text[:MAX_MOOD_LENGTH].strip()) is not None


def is_asking_whether(text: str) -> bool:
    """Return whether the request asks if something exists or how much, so it names no item."""
    return is_only_asking(text) and _WHETHER_QUESTION.match(text.strip()) is not None


def is_asking_to_recall(text: str) -> bool:
    """Return whether the request asks for something written down, decided or remembered earlier."""
    return _RECALL_REQUEST.search(text[:MAX_MOOD_LENGTH].replace("’", "'")) is not None


_URGENT_THINGS: Final = (
    "care|tickets?|issues?|e-?mails?|mails?|messages?|tasks?|todos?|items?|cases?|requests?|orders?"
    "|bugs?|matters?|alerts?|reminders?|flags?|labels?|priority|ones?"
)
# Urgency of something else, or negated.
_NOT_URGENT: Final = prepare_re(
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
_URGENT_WORDS: Final = prepare_re(
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


# Every pattern needs one of these in the text, and this check is cheap.
_URGENCY_CUES: Final = (
    "urgent", "asap", "a.s.a.p", "immediately", "hurry", "quick", "time", "as soon", "as fast", "away",
    "delay", "at once", "rush", "right now", "this is", "is down",
    "דחו", "דחיפו", "מיד", "מייד", "בהקדם", "בהיל", "ברגע זה", "דיחוי", "שיהוי", "בוער", "ממהר", "מהר",
    "במהירות",
)  # fmt: skip


def is_urgent(text: str) -> bool:
    """Return whether the request is marked as urgent."""
    lowered = text.lower()
    if not any(cue in lowered for cue in _URGENCY_CUES):
        return False
    return _URGENT_WORDS.search(_NOT_URGENT.sub(" ", text)) is not None
