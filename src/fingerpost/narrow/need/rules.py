"""Rules for clear cases: greetings, arithmetic, follow-ups, and requests only a tool can answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.catalog.words import split_words, to_singular
from fingerpost.data_files import read_patterns
from fingerpost.frozen import frozen
from fingerpost.narrow.gloss.gloss import get_english_text, gloss_words
from fingerpost.narrow.need.features import (
    NEED_WORDS,
    NeedFeatures,
    cut_middle,
    extract_features,
    extract_words,
)
from fingerpost.narrow.request import Dependence, classify_dependence
from fingerpost.records import EntityKind, Message, Signals, ToolCard
from fingerpost.regex import prepare_re

_LOOK_BACK_MESSAGES: Final = 40  # messages searched for the answer
_MAX_SHORT_REQUEST_WORDS: Final = 9
_MIN_REQUEST_WORDS: Final = 3  # a shorter turn depends on the turn before it
_MAX_REPLY_WORDS: Final = 3
_MAX_RECALL_WORDS: Final = 30  # a longer request is not a question about the conversation
_MAX_YES_LENGTH: Final = 60
_PATTERNS: Final = read_patterns("fingerpost.narrow", "words/rules.txt")

_REFERENCE_TO_EARLIER: Final = prepare_re(_PATTERNS["reference to earlier"])
_OWN_FACT: Final = prepare_re(_PATTERNS["own fact"])
_REWORDING: Final = prepare_re(_PATTERNS["rewording"])
_CONSENT: Final = prepare_re(_PATTERNS["consent"], re.IGNORECASE)
_OFFER: Final = prepare_re(_PATTERNS["offer"], re.IGNORECASE)


def is_already_answered(reading: NeedFeatures, text: str, history: Sequence[Message]) -> bool:
    """Return whether an earlier message contains the answer."""
    if len(reading.plain_words) > _MAX_RECALL_WORDS or reading.cues.get("act", "remind") != "remind":
        return False
    lowered = text.lower()
    refers_back = _REFERENCE_TO_EARLIER.search(lowered) is not None
    if not refers_back and not (_OWN_FACT.search(lowered) and "current" not in reading.cues):
        return False
    asked = [_get_root(word) for word in reading.plain_words if word not in NEED_WORDS["contentless"]]
    if not asked:
        return refers_back
    # At least half of the words must match; for a fact about the person, all of them.
    wanted = len(asked) / 2 if refers_back else len(asked)
    return any(
        sum(root in roots for root in asked) >= wanted
        for roots in (
            {_get_root(word) for word in _tokenize_history(message.text)}
            for message in history[-_LOOK_BACK_MESSAGES:]
        )
    )


def is_about_wording(reading: NeedFeatures, text: str, history: Sequence[Message]) -> bool:
    """Return whether the request only asks to rephrase the last answer."""
    answered = any(message.role == "assistant" for message in history[-2:])
    is_short = len(reading.plain_words) <= _MAX_SHORT_REQUEST_WORDS
    return answered and is_short and _REWORDING.search(text.lower()) is not None


def is_accepting_offer(text: str, history: Sequence[Message]) -> bool:
    """Return whether the request accepts an offer of the assistant."""
    last = next((message for message in reversed(history[-3:]) if message.role == "assistant"), None)
    if last is None or len(text) > _MAX_YES_LENGTH or _OFFER.search(cut_middle(last.text)) is None:
        return False
    return _CONSENT.search(text) is not None and not any(char.isalnum() for char in _CONSENT.sub("", text))


def find_continued_request(text: str, history: Sequence[Message]) -> str | None:
    """Return the earlier request that this one completes or answers a question about, or None."""
    if classify_dependence(text) is not Dependence.FRAGMENT and not _is_reply_to_question(text, history):
        return None
    return find_referred_request(history)


def find_referred_request(history: Sequence[Message]) -> str | None:
    """Return the latest user request that is complete by itself, or None."""
    asked = [message.text for message in history[-_LOOK_BACK_MESSAGES:] if message.role == "user"]
    whole = (
        text
        for text in reversed(asked)
        if len(text.split()) >= _MIN_REQUEST_WORDS and classify_dependence(text) is not Dependence.FRAGMENT
    )
    return next(whole, asked[0] if asked else None)


def _is_reply_to_question(text: str, history: Sequence[Message]) -> bool:
    """Return whether the text is a short reply to a question of the assistant."""
    last = next((message for message in reversed(history[-2:]) if message.role == "assistant"), None)
    if last is None or not last.text.rstrip().endswith(("?", "？")) or "?" in text:
        return False
    if not 0 < len(_tokenize_history(text)) <= _MAX_REPLY_WORDS:
        return False
    return not extract_features(text, Signals()).cues.keys() & _SELF_CONTAINED_CUES


# A short text with one of these cues is no reply: it is a request or needs nothing.
_SELF_CONTAINED_CUES: Final = frozenset(
    ("act", "command", "seek", "make", "write", "explain", "fact", "opinion", "chat", "role", "live", "sum")
)
_HISTORY_WORD: Final = prepare_re(r"[a-z']+|[א-ת]+|\d+")


def _tokenize_history(text: str) -> list[str]:
    return _HISTORY_WORD.findall(cut_middle(text).lower())


def _get_root(word: str) -> str:
    """Return a rough stem, so that "cats" and "cat's", "מספר" and "המספר" match."""
    word = word.removesuffix("'s").removesuffix("s")
    if "א" <= word[:1] <= "ת":
        while len(word) > 3 and word[0] in "והבלמשכ":
            word = word[1:]
    return word


NO_REQUEST_SCORE: Final = 0.01
SURELY_NOT_SCORE: Final = 0.03
SURELY_SCORE: Final = 0.95
LIKELY_SCORE: Final = 0.8


@frozen(kw_only=False)
class RuleFinding:
    """The score (or minimum score) from a rule, with the reason."""

    score: float
    reason: str


_MAX_GREETING_WORDS: Final = 8
_POSITIVE_REACTION: Final = prepare_re(_PATTERNS["positive reaction"])
_INTRODUCES: Final = prepare_re(_PATTERNS["introduction"])
# An instruction together with an object that only a tool can access, by the reason that is shown.
_TOOL_REQUEST_PATTERNS: Final = {
    reason: prepare_re(pattern) for reason, pattern in _PATTERNS.items() if reason.startswith("asks to ")
}
_FILE_ACTION_CUES: Final = ("act", "seek", "command", "make")
_WRITE_REQUEST: Final = prepare_re(_PATTERNS["write request"])
_TEXT_NOUN: Final = prepare_re(_PATTERNS["text noun"])
_DESTINATION: Final = prepare_re(_PATTERNS["destination"])
_FILE_CREATION: Final = prepare_re(_PATTERNS["file creation"])

# With one of these before a tool's name, the request is about the tool or the name is part of a text.
_TOOL_TOPIC_CUES: Final = frozenset(("explain", "advice", "opinion", "code", "role", "rework"))
_WHAT_QUESTION: Final = prepare_re(r"\bwhat(?:'s|\s+(?:is|are|was|does|do|did))\b[^.!?\n]*$")


def apply_clear_rules(text: str, reading: NeedFeatures) -> RuleFinding | None:
    """Decide requests that need no classification: empty ones, small talk, plain arithmetic."""
    spoken = reading.plain_words
    if not spoken and not reading.cues.keys() & {"path", "url", "email", "id"}:
        return RuleFinding(NO_REQUEST_SCORE, "nothing was asked")
    if "arithmetic" in reading.cues:
        return RuleFinding(SURELY_NOT_SCORE, "is plain arithmetic")
    return find_greeting(text, reading)


def find_greeting(text: str, reading: NeedFeatures) -> RuleFinding | None:
    """Decide a request that is only a greeting or thanks."""
    spoken = _remove_introduction(text, reading)
    if 0 < len(spoken) <= _MAX_GREETING_WORDS and "path" not in reading.cues and "url" not in reading.cues:
        rest = _POSITIVE_REACTION.sub(" ", " ".join(spoken)).split()
        greets = len(rest) < len(spoken) or any(word in NEED_WORDS["required in a greeting"] for word in rest)
        if greets and all(word in NEED_WORDS["greeting"] for word in rest):
            return RuleFinding(SURELY_NOT_SCORE, "is a greeting or thanks")
    return None


MAX_SMALL_TALK_LENGTH: Final = 80


def find_small_talk(
    text: str, signals: Signals, history: Sequence[Message], cards: Iterable[ToolCard]
) -> RuleFinding | None:
    """Decide a greeting or thanks that accepts no offer and has no word in common with a tool's name."""
    english = get_english_text(text, signals)
    reading = extract_words(english)
    finding = find_greeting(english, reading)
    if finding is None or is_accepting_offer(english, history):
        return None
    words = {*reading.words, *map(to_singular, reading.words), *split_words(text)}
    named = any(not words.isdisjoint(split_words(f"{card.server} {card.name}")) for card in cards)
    return None if named else finding


def _remove_introduction(text: str, reading: NeedFeatures) -> tuple[str, ...]:
    """Return the words without an introduction by name, as in "Hello, I am Dana!"."""
    joined = " ".join(reading.words)
    found = _INTRODUCES.search(joined)
    if found is None:
        return reading.plain_words
    first = found["name"].split()[0]
    named = re.search(rf"(?<!\w){first.title()}(?!\w)", text) is not None  # with a capital letter
    unknown = re.match("[א-ת]", first) is not None and not any(meanings for _, meanings in gloss_words(first))
    if not (found["certain"] or named or unknown):
        return reading.plain_words
    rest = f"{joined[: found.start()]} {joined[found.end() :]}".split()
    return tuple(word for word in rest if word[0].isalnum())


_STATEMENT: Final = prepare_re(_PATTERNS["statement"])
_REQUEST_CUES: Final = frozenset(
    ("want", "act", "command", "seek", "serve", "monitor", "path", "url", "file", "make")
)


def is_only_statement(text: str, reading: NeedFeatures) -> bool:
    """Return whether the request only states something about the person."""
    return _STATEMENT.search(text.lower()) is not None and not reading.cues.keys() & _REQUEST_CUES


def apply_tool_rules(text: str, reading: NeedFeatures, signals: Signals) -> RuleFinding | None:
    """Find requests for something that only a tool can access."""
    if (tool := _find_named_tool(text, signals)) is not None:
        return RuleFinding(SURELY_SCORE, f'names the tool "{tool}"')
    if reading.cues.keys() & {"path", "url"} and any(name in reading.cues for name in _FILE_ACTION_CUES):
        thing = "a file" if "path" in reading.cues else "a web address"
        return RuleFinding(SURELY_SCORE, f"asks for something to be done with {thing}")
    if "path" in reading.cues and _is_writing_to_file(text, signals):
        return RuleFinding(SURELY_SCORE, "asks to write into a file")
    if _FILE_CREATION.search(text) is not None:
        return RuleFinding(LIKELY_SCORE, "asks to write a file")
    if reading.cues.keys() & {"write", "explain", "advice", "code", "role", "given text"}:
        return None  # "write a script that opens the file" opens no file
    if reading.cues.keys() & {"path", "url"}:
        return RuleFinding(LIKELY_SCORE, "names a file" if "path" in reading.cues else "names a web address")
    if signals.mentions:
        return RuleFinding(LIKELY_SCORE, f'names the {signals.mentions[0].kind} "{signals.mentions[0].name}"')
    for reason, pattern in _TOOL_REQUEST_PATTERNS.items():
        if pattern.search(text):
            return RuleFinding(LIKELY_SCORE, reason)
    return None


def _find_named_tool(text: str, signals: Signals) -> str | None:
    """Return the key of a tool named together with its server, unless the text before it is about the tool.

    The words of the name and after it are ignored: `note/write_note` is no request to write a text.
    """
    lowered = text.lower()
    for mention in signals.mentions:
        if mention.kind != "tool" or mention.text.lower() == mention.name.partition("/")[2].lower():
            continue
        before, name, _ = lowered.partition(mention.text.lower())
        if name and not _is_about_tool(before):
            return mention.name
    return None


def _is_about_tool(before: str) -> bool:
    cues = extract_features(before, Signals()).cues.keys()
    if cues & _TOOL_TOPIC_CUES or _WHAT_QUESTION.search(before):
        return True
    return "write" in cues and _TEXT_NOUN.search(before[-400:]) is not None


def _is_writing_to_file(text: str, signals: Signals) -> bool:
    """Return whether the request asks to write to a file it names."""
    lowered = text.lower()
    if _WRITE_REQUEST.search(lowered) is None:
        return False
    for entity in signals.entities:
        if entity.kind is not EntityKind.PATH:
            continue
        before = lowered[: max(0, lowered.find(entity.text.lower()))]
        if _DESTINATION.search(before[-80:]) and _TEXT_NOUN.search(before[:400]) is None:
            return True
    return False
