"""Tool names as models write them, and phrases about tool syntax."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Final

from fingerpost.catalog.name_resolver import (
    MAX_WRITTEN_LENGTH,
    NAMESPACES,
    ToolNameResolver,
    fold_name,
    list_readings,
)
from fingerpost.data_files import read_sections, read_word_sets
from fingerpost.records import JsonObject, ToolCard
from fingerpost.regex import prepare_re

PACKAGE: Final = "fingerpost.choose.syntax_guard"
LISTS: Final = {name: text.strip().splitlines() for name, text in read_sections(PACKAGE, "words.txt").items()}
WORDS: Final = read_word_sets(PACKAGE, "words.txt")
_FOLDED_NAMESPACES: Final = tuple(map(fold_name, NAMESPACES))
_TOOL_NAMESPACE: Final = prepare_re(r"(?:functions?|tools|default_api|multi_tool_use)(?:\.|__)(?=\w)")
_ACTION_NAME: Final = prepare_re(r"[a-z]+(?:_\w{2,80}|[A-Z]\w{2,80})")
_NAME_PART: Final = prepare_re(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_AGENT_NOUN: Final = prepare_re(r"[a-z]{3,}(?:er|or)|check|update|off|on|call")
_NAME_SEPARATOR: Final = prepare_re(r"\.|/|::?|__")
_DISTINCTIVE_PATTERN: Final = prepare_re(r"[a-zא-ת][A-Z0-9]|[_\-./]|\d[A-Za-z]")
_recent_indexes: deque[tuple[tuple[ToolCard, ...], WrittenToolNames]] = deque(maxlen=4)


class WrittenToolNames:
    """Tells whether text is a tool's name. Which tool it means is answered by the `ToolNameResolver`."""

    def __init__(self, tools: Iterable[ToolCard], others: Iterable[str] = ()) -> None:
        self._resolver = ToolNameResolver(tools)
        self._set_other_names(others)

    def _set_other_names(self, names: Iterable[str]) -> None:
        self._others = {fold_name(name): name for name in names if fold_name(name)}
        self._folded = self._resolver.list_folded_names() | self._others.keys()
        self._sorted_names = sorted(self._folded)

    def with_other_names(self, names: Iterable[str]) -> WrittenToolNames:
        """Return a copy with the names of tools that are not routed. They take precedence."""
        found = WrittenToolNames(())
        found._resolver = self._resolver
        found._set_other_names(names)
        return found

    def is_known(self, written: str) -> bool:
        """Return whether a real tool has this name or a variant of it, in whatever namespace."""
        if len(written) > MAX_WRITTEN_LENGTH:
            return False
        if fold_name(written) in self._folded:
            return True
        *_, bare = list_readings(written)
        if bare == written and _NAME_SEPARATOR.search(written) is None:
            return False  # an ordinary word
        return (
            fold_name(_NAME_SEPARATOR.split(bare)[-1]) in self._folded
            or fold_name(bare) in self._folded
            or bool(self._resolver.resolve(written).cards)
        )

    def resolve(self, written: str, arguments: JsonObject | None) -> tuple[str | None, JsonObject | None]:
        """Return the tool's key, or None, and the arguments with the operation that the name contains."""
        for reading in list_readings(written):
            if (other := self._others.get(fold_name(reading))) is not None:
                return other, arguments
        match = self._resolver.resolve(written)
        if match.card is None:
            return None, None
        return match.card.key, None if arguments is None else match.add_operation(arguments)

    def is_known_from_start(self, written: str) -> bool:
        """Return whether a real tool has this name and its first part is already a prefix of a known name."""
        return self.is_known(written) and self.is_prefix(_NAME_SEPARATOR.split(written.strip(), 1)[0])

    def is_prefix(self, written: str) -> bool:
        """Return whether a known name may start with this text."""
        plain = fold_name(written)
        if _NAME_SEPARATOR.search(written) or any(space.startswith(plain) for space in _FOLDED_NAMESPACES):
            return True
        at = bisect_left(self._sorted_names, plain)
        return at < len(self._sorted_names) and self._sorted_names[at].startswith(plain)


def get_written_names(tools: Iterable[ToolCard]) -> WrittenToolNames:
    """Return the names of these tools. The last few catalogs are cached, because every answer needs them."""
    cards = tools if isinstance(tools, tuple) else tuple(tools)
    for known, names in tuple(_recent_indexes):
        if known is cards:
            return names
    names = WrittenToolNames(cards)
    _recent_indexes.append((cards, names))
    return names


def is_distinctive(name: str) -> bool:
    """Return whether a name cannot be an ordinary word: `get_weather` is distinctive, `search` is not."""
    return len(name) >= 5 and _DISTINCTIVE_PATTERN.search(name) is not None


def is_tool_like(name: str) -> bool:
    """Return whether an unknown name looks like a tool's: it names an action or has a tool namespace."""
    return is_namespaced(name) or describes_action(name) is not False


def describes_action(name: str) -> bool | None:
    """Return whether a name is of an action or actor (`find_flight`, `memory_helper`); None: uncertain."""
    own = _NAME_SEPARATOR.split(name)[-1]
    if _ACTION_NAME.fullmatch(own) is None:
        return False
    parts = [part.casefold() for part in _NAME_PART.findall(own)]
    if len(parts) < 2:
        return False
    first, last = parts[0], parts[-1]
    acts, actors = first in WORDS["action verbs"], WORDS["actors"]
    if last in actors or (acts and (last not in WORDS["outcomes"] or first not in actors)):
        return True
    return None if acts or first in WORDS["verbs or nouns"] or _AGENT_NOUN.fullmatch(last) else False


def is_namespaced(name: str) -> bool:
    """Return whether a name has a namespace of tools. It then is a tool's name, known or not."""
    return _TOOL_NAMESPACE.match(name) is not None


MAX_EXAMINED_LENGTH: Final = 8_000


def _compile_phrases(title: str) -> re.Pattern[str]:
    """Compile a list of patterns. A text matches if it contains one of them, in any case."""
    return prepare_re("|".join(LISTS[title]), re.IGNORECASE)


_SYNTAX_SUBJECT: Final = _compile_phrases("syntax subjects")
_SYNTAX_FORM: Final = _compile_phrases("syntax forms")
_MODEL_NAME: Final = _compile_phrases("model names")
_STRICT_SYNTAX_FORM: Final = _compile_phrases("strict syntax forms")
_CALLING_PHRASE: Final = _compile_phrases("calling phrases")


def is_about_syntax(text: str) -> bool:
    """Return whether this text is about tool syntax."""
    look = text[:MAX_EXAMINED_LENGTH]
    if _SYNTAX_SUBJECT.search(look):
        return _SYNTAX_FORM.search(look) is not None
    return all(pattern.search(look) for pattern in (_MODEL_NAME, _STRICT_SYNTAX_FORM, _CALLING_PHRASE))


_DATA_WANTED: Final = _compile_phrases("data requests")
_WORD: Final = prepare_re(r"\w+")
_INTENTION: Final = _compile_phrases("intentions")
_LOOK_BACK_LENGTH: Final = 240


def is_asking_for_data(request: str) -> bool:
    """Return whether this request asks for data or code. The form of a call may then be content."""
    return _DATA_WANTED.search(request[:MAX_EXAMINED_LENGTH]) is not None


_HOW_TO_QUESTION: Final = _compile_phrases("how-to questions")


def is_asking_how(request: str) -> bool:
    """Return whether this request asks how to do something. Lines of code may then be the explanation."""
    return _HOW_TO_QUESTION.search(request[:MAX_EXAMINED_LENGTH]) is not None


def is_announcing_call(before: str) -> bool:
    """Return whether the end of this text announces an action."""
    return _INTENTION.search(before[-_LOOK_BACK_LENGTH:]) is not None


def is_introducing_data(before: str) -> bool:
    """Return whether the end of this text announces data or code and not a call."""
    look = before[-_LOOK_BACK_LENGTH:]
    introduced = not WORDS["data"].isdisjoint(_WORD.findall(look.casefold()))
    return introduced and _INTENTION.search(look) is None


MAX_ANNOUNCEMENT_LENGTH: Final = 240
_BETWEEN_SENTENCES: Final = prepare_re(r"(?<=[.!?…])\s+|\n+")
_COURTESY_WORDS: Final = prepare_re(
    r"(?:sure(?: thing)?|of course|certainly|absolutely|ok(?:ay)?|alright|all right|got it|no problem"
    r"|right away|understood|(?:great|good) question|here (?:you go|it is|we go)|thanks|thank you"
    r"|בטח|בוודאי|ודאי|כמובן|בסדר|אין בעיה|מיד|הנה)\W*",
    re.IGNORECASE,
)
_LOOKING_PATTERN: Final = (
    r"(?:check|look|search|call|fetch|query|retriev|us|runn?|invok|consult|pull|get)(?:e|t?ing)?"
)
_ANNOUNCEMENT_PHRASE: Final = prepare_re(
    r"\blet me\b(?! (?:know|explain|be\b))|\blet(?:'|’)?s\b|\bi(?:(?:'|’)?ll| will)\b(?! (?:be|not|never)\b)"
    rf"|\bi(?:(?:'|’)?m| am) (?:going to\b|(?:now )?{_LOOKING_PATTERN}\b)|\bi "
    rf"(?:need|have) to {_LOOKING_PATTERN}\b"
    r"|\ballow me to\b|\b(?:one|a) (?:moment|second|sec)\b|\bhold on\b|\bplease wait\b|\bbear with me\b"
    rf"|\A\W*(?:now |currently )?(?=\w+ing\b){_LOOKING_PATTERN}\b"
    r"|רגע|(?:תן|תני|תנו) לי|בודקת?\b|מחפשת?\b|אבדוק|אחפש|נבדוק|אני (?:קורא|מפעיל)",
    re.IGNORECASE,
)


def is_announcement(text: str) -> bool:
    """Return whether a text only announces something that does not follow, such as "Sure. Let me check."."""
    stripped = text.strip()
    return 0 < len(stripped) <= MAX_ANNOUNCEMENT_LENGTH and all(
        map(_is_announcing_sentence, _BETWEEN_SENTENCES.split(stripped))
    )


def _is_announcing_sentence(sentence: str) -> bool:
    stripped = sentence.strip("*_ \t")
    if stripped.endswith((":", "…", "...")):
        return True
    asks = stripped.endswith("?")
    return not asks and bool(_ANNOUNCEMENT_PHRASE.search(stripped) or _COURTESY_WORDS.fullmatch(stripped))
