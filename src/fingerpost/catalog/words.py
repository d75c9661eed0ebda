"""Splits names and descriptions into words and assigns one of twelve categories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from fingerpost.frozen import frozen

MAX_TEXT_LENGTH: Final = 4000

# Capitals before a word (`HTTPServer`), a word, capitals, a number, a word in another script.
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


def parse_word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


STOP_WORDS: Final = parse_word_set(
    """
    a about above after all allow allows also an and any are as at be been before being below
    between both but by can cannot could current data default describe description do does each
    either else etc example false following for from given has have here how id ids if in include
    including info information input into is it its itself just like list may more most must name
    named names need needs new no none not null object of off on once one only optional or other our
    out output over param parameter parameters per provide provided provides request required
    response result results return returned returns s same see set should so some specific specified
    string such supports than that the their them then there these they this those through to tool
    tools true type under up us use used user uses using value values via want was what when where
    whether which while who will with within without you your get gets fetch retrieve
    """
)


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a name or text in lower case, in order."""
    return _split_cached(text[:MAX_TEXT_LENGTH])


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[str, ...]:
    """Split with a small cache, because a card splits the same text several times."""
    return tuple(map(str.lower, _WORD.findall(text)))


@lru_cache(maxsize=4096)
def to_singular(word: str) -> str:
    """Return a singular form for comparison only: `files` → `file`, `queries` → `query`."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def take_distinct(items: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the first `limit` distinct items, in order."""
    found: dict[str, None] = {}
    for item in items:
        found.setdefault(item)
        if len(found) >= limit:
            break
    return tuple(found)


GENERAL: Final = "general"

# A word in the tool's name counts more than one in its description.
_NAME_WEIGHT: Final = 4
_SERVER_WEIGHT: Final = 3
_TEXT_WEIGHT: Final = 1
_MIN_SCORE: Final = 2
_MAX_TEXT_WORDS: Final = 60

# Words that occur in many categories. They add weight but never decide alone.
_COMMON: Final = parse_word_set(
    "account ask answer call contact extract fetch frame generate index post query search tag user"
)


@frozen
class Category:
    """One purpose and the words that indicate it."""

    name: str
    about: str
    english: frozenset[str]
    hebrew: frozenset[str]


def _build_category(name: str, about: str, english: str, hebrew: str) -> Category:
    return Category(name=name, about=about, english=parse_word_set(english), hebrew=parse_word_set(hebrew))


CATEGORIES: Final = (
    _build_category(
        "files",
        "files and folders",
        "file filesystem folder directory path drive dropbox pdf zip archive upload download glob",
        "קובץ קבצים תיקייה תיקיות מסמך",
    ),
    _build_category(
        "code",
        "source code, repositories, reviews",
        "git github gitlab bitbucket repo repository commit branch pull merge diff code symbol lint "
        "gist fork workflow issue refactor codebase release pr blame stash checkout rebase tag",
        "קוד מאגר ענף קומיט",
    ),
    _build_category(
        "system",
        "commands, machines, containers, cloud, monitoring",
        "shell bash command terminal process exec execute script sandbox docker container kubernetes "
        "k8s kubectl pod deployment deploy cluster aws azure gcp cloud lambda server host log metric "
        "alert monitor sentry grafana incident terraform ssh env environment cpu dns worker instance "
        "vm namespace helm",
        "פקודה טרמינל שרת תהליך מערכת ענן",
    ),
    _build_category(
        "web_search",
        "finding things out on the web",
        "search web internet research tavily perplexity brave exa google bing duckduckgo news answer "
        "ask serp",
        "חיפוש חפש אינטרנט מחקר חדשות",
    ),
    _build_category(
        "web_page",
        "reading pages and driving a browser",
        "url page browser navigate click screenshot puppeteer playwright scrape crawl crawler html "
        "website fetch selector tab hover form firecrawl extract http markdown dom",
        "דף אתר דפדפן קישור",
    ),
    _build_category(
        "data",
        "databases, tables, open data, analysis",
        "sql database db table query row column schema postgres postgresql mysql sqlite mongodb mongo "
        "redis bigquery snowflake spreadsheet sheet cell csv dataset datagov record airtable "
        "aggregate collection index chart statistic warehouse dataframe",
        "נתונים טבלה מאגרי מסד שאילתה סטטיסטיקה ממשלתי",
    ),
    _build_category(
        "communication",
        "mail, chat, messages, posts",
        "email mail gmail message slack channel chat discord telegram whatsapp sms thread reply inbox "
        "tweet twitter post reaction teams recipient linkedin phone call notification user workspace",
        "מייל דואל הודעה הודעות צ׳אט ערוץ",
    ),
    _build_category(
        "planning",
        "calendars, tasks, tickets, projects",
        "calendar event meeting schedule reminder task todo project ticket jira linear asana trello "
        "board card sprint attendee availability milestone epic deadline backlog cycle appointment",
        "יומן פגישה אירוע משימה תזכורת פרויקט לוח",
    ),
    _build_category(
        "knowledge",
        "notes, documents, memory, reasoning",
        "memory note knowledge document doc wiki notion obsidian confluence entity relation graph "
        "remember recall observation thought thinking embedding vector block paragraph library",
        "זיכרון ידע הערה הערות מסמכים ויקי",
    ),
    _build_category(
        "media",
        "pictures, sound, video, design",
        "image picture photo video audio speech voice music song figma design generate draw "
        "transcribe transcript youtube spotify playlist track svg icon frame canvas render camera",
        "תמונה וידאו שמע מוזיקה קול עיצוב",
    ),
    _build_category(
        "commerce",
        "payments, customers, orders, finance",
        "payment stripe customer invoice price product order refund subscription coupon balance "
        "charge checkout cart shop shopify paypal crm hubspot salesforce deal lead contact stock "
        "currency account dispute",
        "תשלום לקוח חשבונית מחיר הזמנה מניה מטבע",
    ),
    _build_category(
        "time_place",
        "time, weather, maps, travel",
        "time timezone clock date now weather forecast temperature map place geocode location "
        "direction distance elevation route travel flight hotel coordinate latitude longitude transit",
        "שעה זמן תאריך מזג אוויר מפה מיקום מסלול",
    ),
)

CATEGORY_NAMES: Final = tuple(category.name for category in CATEGORIES)
OFFICIAL_DATA: Final = "official_data"  # a purpose narrower than a category; no tool is classified by it


def _index_by_word() -> dict[str, tuple[int, ...]]:
    places: dict[str, list[int]] = {}
    for index, category in enumerate(CATEGORIES):
        for word in sorted(category.english | category.hebrew):
            places.setdefault(to_singular(word), []).append(index)
    return {word: tuple(indexes) for word, indexes in places.items()}


_WORD_CATEGORIES: Final = _index_by_word()


def classify(server: str, tool: str, description: str) -> tuple[str, tuple[str, ...]]:
    """Return the category with the most matching words, and these words."""
    scores = [0] * len(CATEGORIES)
    evidence: dict[int, dict[str, None]] = {}
    for weight, words in (
        (_NAME_WEIGHT, split_words(tool)),
        (_SERVER_WEIGHT, split_words(server)),
        (_TEXT_WEIGHT, split_words(description)[:_MAX_TEXT_WORDS]),
    ):
        for word in _iterate_unique(words):
            for index in _WORD_CATEGORIES.get(word, ()):
                scores[index] += _TEXT_WEIGHT if word in _COMMON else weight
                evidence.setdefault(index, {})[word] = None
    best = scores.index(max(scores))
    if scores[best] < _MIN_SCORE:
        return GENERAL, ()
    return CATEGORIES[best].name, tuple(evidence[best])[:3]


def _iterate_unique(words: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(map(to_singular, words))
