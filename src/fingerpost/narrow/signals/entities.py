"""Entities in a request: paths, addresses, dates, times, ids, amounts and quoted texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Entity, EntityKind

# One or two Hebrew letters joined to a Latin name by a hyphen are a preposition: `ב-main.py`.
GLUED_PREFIXES: Final = re.compile(r"^[א-ת]{1,3}-(?=[\w~/.])")
TRAILING_PUNCTUATION: Final = ".,;:!?)]}>״\"'"

_FILE_ENDINGS: Final = (
    "pdf|txt|md|rst|csv|tsv|json|jsonl|ya?ml|toml|xml|html?|css|js|jsx|ts|tsx|py|ipynb|rb|go|rs|java|kt|c|cc|cpp|h"
    "|hpp|cs|php|swift|sh|sql|db|sqlite|log|ini|cfg|conf|env|lock|docx?|xlsx?|pptx?|odt|rtf|png|jpe?g|gif|svg|webp"
    "|bmp|tiff?|mp[34]|wav|flac|ogg|mov|avi|mkv|webm|zip|tar|gz|tgz|7z|rar|parquet|exe|dmg|iso|bak|tmp|eml|ics"
)
_FRAMEWORKS: Final = r"(?:node|next|vue|react|nuxt|three|d3|express|discord|chart)\.js\b"
_DOMAINS: Final = "com|org|net|io|dev|ai|app|gov|edu|co|il|uk|de|fr|eu|us|info|me|tv|xyz"
_ROOTS: Final = "tmp|etc|home|usr|var|opt|data|mnt|root|Users|srv|app|workspace|dev|proc|media|Volumes"
_PATH_REST: Final = r"[^\s\"'`<>|;,]"  # characters of a path or an address

_MONTHS: Final = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?"
)
_DAYS: Final = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_MONTHS_HE: Final = "ינואר|פברואר|מרץ|מרס|אפריל|מאי|יוני|יולי|אוגוסט|ספטמבר|אוקטובר|נובמבר|דצמבר"
_DAYS_HE: Final = "ראשון|שני|שלישי|רביעי|חמישי|שישי|שבת"
_SPAN: Final = "second|minute|hour|day|week|month|quarter|year"
_SPAN_HE: Final = "שניות|דקות|שעות|שעה|ימים|יום|שבועות|שבוע|חודשים|חודש|שנים|שנה"

_UNITS: Final = (
    "%|°[CF]?|km/h|mph|kmh|km|cm|mm|kg|mg|ml|gb|mb|kb|tb|ghz|mhz|hz|kwh|kw|ms|usd|eur|gbp|ils|nis|btc|eth|inches"
    "|inch|feet|foot|ft|miles?|meters?|metres?|kilometers?|grams?|kilograms?|pounds?|lbs?|ounces?|oz|liters?|litres?"
    "|gallons?|degrees?|celsius|fahrenheit|kelvin|percent|dollars?|euros?|shekels?|bytes?|seconds?|minutes?|hours?"
    "|days?|weeks?|months?|years?|people|items?|tokens?|watts?|volts?|m|g|l|h|s|c|f|k"
)
_UNITS_HE: Final = (
    'ק["״]מ|ס["״]מ|מ["״]מ|ק["״]ג|מ["״]ג|מ["״]ל|מ["״]ר|קמ["״]ש|ש["״]ח|אחוזים|אחוז|קילומטרים|קילומטר'
    "|קילו|קילוגרם|גרם|ליטרים|ליטר|מטרים|מטר|מיילים|מייל|מעלות|שקלים|שקל|דולרים|דולר|אירו|יורו|שניות|דקות|שעות"
    "|ימים|שבועות|חודשים|שנים|אנשים|יחידות|טון"
)
_NUMBER: Final = r"\d{1,30}(?:,\d{3}){0,8}(?:\.\d{1,20})?"


def _compile_alternatives(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


@frozen(kw_only=False)
class EntityPattern:
    """One kind of entity, its pattern, and a cheap check that a lower-case text must pass first."""

    kind: EntityKind
    pattern: re.Pattern[str]
    prefilter: re.Pattern[str]


_DIGIT: Final = re.compile(r"\d")
_LETTER_HE: Final = re.compile("[א-ת]")
_DOT: Final = re.compile(r"\.\w|://")
_SLASH: Final = re.compile(r"\.\w|[/\\]")
_AT: Final = re.compile("@")
# Every date in words contains one of these.
_DATE_WORD: Final = re.compile("day|night|tomorrow|week|month|quarter|year|hour|minute|second")

# In order of precedence: a match of an earlier pattern is not split by a later one.
ENTITY_PATTERNS: Final[tuple[EntityPattern, ...]] = (
    EntityPattern(
        EntityKind.URL,
        prefilter=_DOT,
        pattern=_compile_alternatives(
            rf"\b(?:https?|ftp|file|wss?|s3|gs)://{_PATH_REST}{{1,2000}}",
            rf"\bwww\.{_PATH_REST}{{3,500}}",
            rf"(?<![\w@.-])(?:[a-z0-9-]{{1,63}}\.){{1,4}}(?:{_DOMAINS})(?:/{_PATH_REST}{{0,500}}|(?![\w@-]|\.\w))",
        ),
    ),
    EntityPattern(
        EntityKind.EMAIL,
        prefilter=_AT,
        pattern=_compile_alternatives(
            r"(?<![a-z0-9._%+])[a-z0-9][a-z0-9._%+-]{0,63}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,5}"
        ),
    ),
    EntityPattern(
        EntityKind.PATH,
        prefilter=_SLASH,
        pattern=_compile_alternatives(
            rf"(?<![a-z0-9])[a-z]:[\\/]{_PATH_REST}{{0,400}}",
            rf"(?<![\\\w])\\\\[\w.-]{{1,100}}\\{_PATH_REST}{{0,300}}",
            rf"(?<![\w/.:~\\])~[\\/]{_PATH_REST}{{0,400}}",
            rf"(?<![\w/.:~\\])\.{{1,2}}[\\/]{_PATH_REST}{{1,400}}",
            rf"(?<![\w/.:~<\\])/(?:{_ROOTS})(?![\w-])(?:/{_PATH_REST}{{0,400}})?",
            r"(?<![\w/.:~<\\])/[\w.@+-]{1,100}/[^\s\"'`<>|;,]{0,400}",
            rf"(?<![\w/.\\-])(?!{_FRAMEWORKS})"
            r"[\w.-]{1,100}(?:/[\w.-]{1,100}){0,20}\.(?:" + _FILE_ENDINGS + r")(?![\w/-])",
        ),
    ),
    EntityPattern(
        EntityKind.DATE,
        prefilter=_DIGIT,
        pattern=_compile_alternatives(
            r"(?<![\w-])\d{4}-\d{2}-\d{2}"
            r"(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?)?(?![\w-])",
            r"(?<![\w./])\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})(?![\w/])",
            rf"\b(?:{_MONTHS})\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b",
            rf"\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTHS})(?:,? \d{{4}})?\b",
            rf"\b(?:{_MONTHS}) \d{{4}}\b",
        ),
    ),
    EntityPattern(
        EntityKind.DATE,
        prefilter=_DATE_WORD,
        pattern=_compile_alternatives(
            rf"\b(?:(?:next|last|this|coming|on|every) )?(?:{_DAYS})s?\b",
            rf"\b(?:next|last|this|coming|past|previous) (?:{_SPAN}|weekend)\b",
            rf"\bin (?:\d{{1,4}}|an?|two|three|few) (?:{_SPAN})s?\b",
            rf"\b(?:\d{{1,4}}|an?|two|three|few) (?:{_SPAN})s? ago\b",
            r"\b(?:the )?day (?:after tomorrow|before yesterday)\b",
            r"\b(?:today|tomorrow|yesterday|tonight)\b",
        ),
    ),
    EntityPattern(
        EntityKind.DATE,
        prefilter=_LETTER_HE,
        pattern=_compile_alternatives(
            rf"(?<![\w])\d{{1,2}} [בל]?(?:{_MONTHS_HE})(?: \d{{4}})?(?![א-ת])",
            rf"(?<![א-ת])[ולמבהש]{{0,2}}((?:{_MONTHS_HE}) \d{{4}})(?!\d)",
            rf"(?<![א-ת])[ולמבהש]{{0,2}}(יום (?:{_DAYS_HE})(?: הבא| הקרוב| שעבר)?)(?![א-ת])",
            r"(?<![א-ת])[ולמבהש]{0,2}"
            r"((?:שבוע|חודש|רבעון|שנה) ה(?:בא|באה|קרוב|קרובה|נוכחי|אחרון|אחרונה))(?![א-ת])",
            r"(?<![א-ת])[ולמבהש]{0,2}((?:שבוע|חודש|שנה) ש(?:עבר|עברה))(?![א-ת])",
            r"(?<![א-ת])[ולמבהש]{0,2}(סוף ה?שבוע|סופ[\"״]?ש)(?![א-ת])",
            rf"(?<![א-ת])((?:בעוד|לפני|עוד) (?:\d{{1,4}} )?(?:{_SPAN_HE}))(?![א-ת])",
            r"(?<![א-ת])[ולמבש]{0,2}(מחרתיים|מחר|היום|אתמול|שלשום|הלילה|הערב)(?![א-ת])",
        ),
    ),
    EntityPattern(
        EntityKind.TIME,
        prefilter=_DIGIT,
        pattern=_compile_alternatives(
            r"(?<![\w:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?: ?[ap]\.?m\b\.?)?(?![\w:])",
            r"(?<![\w:.])\d{1,2} ?[ap]\.?m\b\.?",
            r"(?<![א-ת])((?:ב|ל|מ)שעה \d{1,2}(?::\d{2})?)(?!\d)",
            r"(?<![א-ת])(\d{1,2} ב(?:בוקר|צהריים|ערב|לילה))(?![א-ת])",
        ),
    ),
    EntityPattern(
        EntityKind.TIME,
        prefilter=re.compile("noon|midnight"),
        pattern=_compile_alternatives(r"\b(?:noon|midnight)\b"),
    ),
    EntityPattern(
        EntityKind.ID,
        prefilter=_DIGIT,
        pattern=_compile_alternatives(
            r"(?<![\w-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w-])",
            r"(?<!\w)10\.\d{4,9}/[\w.()/:;-]{1,200}",
            r"(?<![\w#&])#\d{1,12}(?!\w)",
            r"(?<![\w-])(?-i:[A-Z][A-Z0-9]{1,9}-\d{1,9})(?![\w-])",
            r"(?<!\w)[a-z]{2,10}_(?=[a-z]{0,40}\d)[a-z0-9]{6,64}(?!\w)",
            r"(?<!\w)(?=[a-f]{0,40}\d)(?=\d{0,40}[a-f])[0-9a-f]{7,64}(?!\w)",
            r"(?<!\w)(?-i:(?=[A-Z]{0,40}\d)(?=\d{0,40}[A-Z])[A-Z0-9]{5,40})(?!\w)",
        ),
    ),
    EntityPattern(
        EntityKind.NUMBER,
        prefilter=_DIGIT,
        pattern=_compile_alternatives(
            rf"[$€£₪¥] ?{_NUMBER}[kmb]?(?!\w)",
            rf"(?<![\w.])-?{_NUMBER} ?(?:{_UNITS})(?![\w])",
            rf"(?<![\w.])-?{_NUMBER} ?(?:{_UNITS_HE}|[$€£₪¥])(?![א-ת])",
            rf"(?<![\w.])-?{_NUMBER}(?![\w])",
        ),
    ),
)

QUOTED_TEXT: Final = _compile_alternatives(
    r'(?<!\w)"([^"\n]{1,300})"(?!\w)',
    r"(?<!\w)'([^'\n]{1,300})'(?!\w)",
    r"“([^”\n]{1,300})”",
    r"‘([^’\n]{1,300})’",
    r"«([^»\n]{1,300})»",
    r"„([^”“\n]{1,300})[”“]",
    r"`([^`\n]{1,300})`",
)


MAX_ENTITIES: Final = 40
_OPEN_ENDED_KINDS: Final = frozenset(
    {EntityKind.URL, EntityKind.PATH}
)  # their patterns may include trailing punctuation

TextSpan = tuple[int, int]


def find_entities(text: str) -> tuple[Entity, ...]:
    """Return paths, addresses, dates, times, ids, amounts and quoted texts, in text order."""
    found: list[tuple[TextSpan, Entity]] = []
    taken: list[TextSpan] = []
    lowered = text.lower()
    for entity_pattern in ENTITY_PATTERNS:
        if entity_pattern.prefilter.search(lowered) is None:
            continue
        new = [
            item
            for item in _iterate_matches(entity_pattern.kind, entity_pattern.pattern, text)
            if _is_free(item[0], taken)
        ]
        found.extend(new)
        taken.extend(span for span, _ in new)
    # A quoted text is an entity even if it contains another: "save it as 'notes.txt'".
    found.extend(_iterate_matches(EntityKind.QUOTED, QUOTED_TEXT, text))
    found.sort(key=lambda item: item[0])
    return tuple(entity for _, entity in found[:MAX_ENTITIES])


def _iterate_matches(
    kind: EntityKind, pattern: re.Pattern[str], text: str
) -> Iterator[tuple[TextSpan, Entity]]:
    for count, match in enumerate(pattern.finditer(text)):
        if count >= MAX_ENTITIES:
            return
        start, end = match.span(match.lastindex or 0)
        if glued := GLUED_PREFIXES.match(text[start:end]):
            start += glued.end()
        if kind in _OPEN_ENDED_KINDS:
            end -= len(text[start:end]) - len(text[start:end].rstrip(TRAILING_PUNCTUATION))
        if start < end:
            yield (start, end), Entity(kind=kind, text=text[start:end])


def _is_free(span: TextSpan, taken: list[TextSpan]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in taken)
