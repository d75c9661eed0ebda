"""Tools and servers that a request names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.catalog.name_resolver import ToolNameResolver, fold_name, list_operations
from fingerpost.catalog.words import CATEGORIES, STOP_WORDS, split_words, to_singular
from fingerpost.data_files import read_word_sets
from fingerpost.frozen import frozen
from fingerpost.narrow.gloss.gloss import Gloss
from fingerpost.narrow.gloss.hebrew import LEXICON_FIELDS, read_field_lines
from fingerpost.records import Mention, ToolCard
from fingerpost.regex import prepare_re

_NAME_WORDS: Final = read_word_sets("fingerpost.narrow", "words/names.txt")


def get_name_words(server: str) -> tuple[str, ...]:
    """Return the words of a server's name without fillers, or all words if every one is a filler."""
    spoken = split_words(server)
    return tuple(word for word in spoken if word not in _NAME_WORDS["fillers"]) or spoken


def is_ordinary_name(name: tuple[str, ...]) -> bool:
    """Return whether the name is often used without meaning the server."""
    return all(
        len(word) < 3 or word.isdigit() or not _load_ordinary_words().isdisjoint(_list_roots(word))
        for word in name
    )


def _list_roots(word: str) -> tuple[str, ...]:
    """Return a word and its possible base forms: `orders`, `finding`, `located`."""
    return word, to_singular(word), word.removesuffix("ing"), word.removesuffix("ed"), word.removesuffix("er")


@lru_cache(maxsize=1)
def _load_ordinary_words() -> frozenset[str]:
    known = {
        word
        for field in LEXICON_FIELDS
        for line in read_field_lines(field)
        for word in line.lower().split()
        if word.isascii()
    }
    for category in CATEGORIES:
        known |= category.english
    return frozenset((known | STOP_WORDS) - _NAME_WORDS["brands"]) | _NAME_WORDS["ordinary"]


MAX_MENTIONS: Final = 8

_MENTION_WORD: Final = prepare_re(r"[A-Za-z0-9]+")
_IDENTIFIER_PATTERN: Final = prepare_re(
    r"(?<![\w/.:-])[^\W\d_][\w-]{0,128}(?:(?:::|[/.:])[\w-]{1,128}){0,4}[+#]{0,4}"
)
# Spellings of programs. `check-in`, `and/or` and `e.g` are spellings of people.
_PROGRAM_SPELLING: Final = prepare_re(r"[^\W_]_|_[^\W_]|::|[a-z][A-Z]")
_IDENTIFIER_SHAPE: Final = prepare_re(r"[_\-/.:]|[a-z][A-Z]|\d")  # characters that no ordinary word contains

# These after an ordinary word mark it as a name, and so do the next ones before it if nothing follows.
_KIND_WORDS: Final = frozenset({"server", "tool", "mcp", "connector", "integration", "plugin", "extension"})
_BY_WORDS: Final = frozenset({"use", "using", "via", "invoke", "through"})
_NAME_ENDS: Final = frozenset({"to", "and", "for", "please", "now", ""})
_QUOTE_MARKS: Final = frozenset("`'\"“”")


@frozen(kw_only=False)
class _KnownName:
    """A name as words, and the servers or tools it refers to."""

    words: tuple[str, ...]
    kind: str
    targets: tuple[str, ...]
    is_ordinary: bool


class MentionFinder:
    """Finds mentions of the tools and servers of one catalog."""

    def __init__(self, cards: Iterable[ToolCard] = ()) -> None:
        cards = tuple(cards)
        self._resolver = ToolNameResolver(cards)
        self._names: dict[str, list[_KnownName]] = {}
        servers: dict[tuple[str, ...], dict[str, None]] = {}
        plain: dict[str, dict[str, None]] = {}
        for card in cards:
            servers.setdefault(get_name_words(card.server), {}).setdefault(card.server)
            if not _IDENTIFIER_SHAPE.search(card.name):
                plain.setdefault(card.name.lower(), {}).setdefault(card.key)
        for words, known in servers.items():
            if words:
                self._add(_KnownName(words, "server", tuple(known), is_ordinary_name(words)))
        for word, known in plain.items():
            self._add(_KnownName((word,), "tool", tuple(known), is_ordinary=True))

    def _add(self, name: _KnownName) -> None:
        self._names.setdefault(name.words[0], []).append(name)

    def find(self, text: str, glossed: Gloss) -> tuple[Mention, ...]:
        """Return the mentions in a request, the most explicit first, without duplicates."""
        written = list(self._find_identifiers(text))
        taken = [span for span, _ in written]
        found: dict[tuple[str, str], Mention] = {}
        for mention in (
            *(mention for _, mention in written),
            *self._find_known_names(text, taken),
            *self._find_hebrew_names(glossed),
        ):
            found.setdefault((mention.kind, mention.name), mention)
        return tuple(found.values())[:MAX_MENTIONS]

    def _find_identifiers(self, text: str) -> Iterator[tuple[tuple[int, int], Mention]]:
        for match in _IDENTIFIER_PATTERN.finditer(text):
            written = match.group().rstrip(".:-")
            if _IDENTIFIER_SHAPE.search(written):
                quoted = _is_quoted(text, match.start(), match.start() + len(written))
                for card in self._find_written_tools(written, quoted=quoted):
                    yield match.span(), Mention(kind="tool", name=card.key, text=written)

    def _find_written_tools(self, written: str, *, quoted: bool) -> tuple[ToolCard, ...]:
        match = self._resolver.resolve(written)
        if match.operation and match.operation not in (list_operations(match.cards[0]) or ()):
            return ()  # more likely a file: `my_notes.txt`
        is_name = any(_is_identifier(written, card, quoted=quoted) for card in match.cards)
        return match.cards if is_name else ()

    def _find_known_names(self, text: str, taken: Sequence[tuple[int, int]]) -> Iterator[Mention]:
        words = list(_MENTION_WORD.finditer(text))
        lowered = [word.group().lower() for word in words]
        for place, first in enumerate(lowered):
            for name in self._names.get(first, ()):
                end = place + len(name.words)
                if tuple(lowered[place:end]) != name.words:
                    continue
                start, stop = words[place].start(), words[end - 1].end()
                if _is_part(text, start, stop, taken):
                    continue
                if not name.is_ordinary or _is_named(name, text, lowered, place, start, stop):
                    for target in name.targets:
                        yield Mention(kind=name.kind, name=target, text=text[start:stop])

    def _find_hebrew_names(self, glossed: Gloss) -> Iterator[Mention]:
        """Find Hebrew words whose English is a server's full name: `גיטהאב`, or `שרת הזמן` with "server"."""
        for place, (hebrew_word, meanings) in enumerate(glossed):
            if hebrew_word.isascii() or not meanings:
                continue
            spoken = tuple(word.lower() for word in meanings)
            cued = place > 0 and not _KIND_WORDS.isdisjoint(glossed[place - 1][1])
            for start, meaning in enumerate(spoken):
                for name in self._names.get(meaning, ()):
                    whole = name.words == spoken[start : start + len(name.words)]
                    if whole and name.kind == "server" and (not name.is_ordinary or cued):
                        yield from (
                            Mention(kind="server", name=known, text=hebrew_word) for known in name.targets
                        )


def _is_identifier(written: str, card: ToolCard, *, quoted: bool) -> bool:
    """Return whether this spelling of the tool's name cannot be ordinary text."""
    has_own_shape = _IDENTIFIER_SHAPE.search(card.name) is not None
    if (quoted or _PROGRAM_SPELLING.search(written)) and (
        has_own_shape or fold_name(written) != fold_name(card.name)
    ):
        return True
    server, name, lowered = card.server.lower(), card.name.lower(), written.lower()
    return (
        (has_own_shape and lowered == name)
        or lowered == card.exposed_name.lower()
        or any(lowered == f"{server}{joint}{name}" for joint in ("/", ".", ":", "::", "__"))
    )


def _is_quoted(text: str, start: int, stop: int) -> bool:
    return text[start - 1 : start] in _QUOTE_MARKS and text[stop : stop + 1] in _QUOTE_MARKS


def _is_named(name: _KnownName, text: str, words: Sequence[str], index: int, start: int, stop: int) -> bool:
    """Return whether the context shows that this ordinary word is a name."""
    before = words[index - 1] if index else ""
    after = words[index + len(name.words)] if index + len(name.words) < len(words) else ""
    if _is_quoted(text, start, stop):
        return True
    if after in _KIND_WORDS:
        return _is_adjacent(text, stop)
    if before in _BY_WORDS:
        return after in _NAME_ENDS or not _is_adjacent(text, stop)
    return name.kind == "server" and name.words[0] not in STOP_WORDS and _is_capitalised(text, start)


def _is_adjacent(text: str, stop: int) -> bool:
    """Return whether the next word follows directly, without punctuation between."""
    return text[stop : stop + 1] in {" ", "-"}


def _is_capitalised(text: str, start: int) -> bool:
    """Return whether the word is capitalized inside a sentence: `put it in Linear`, not `PUT`."""
    before = text[:start].rstrip()
    inside = bool(before) and before[-1] not in ".!?:\n\"'“(-"
    capital = text[start].isupper() and text[start + 1 : start + 2].islower()
    return inside and capital and _ends_with_lower_case_word(before)


def _ends_with_lower_case_word(before: str) -> bool:
    """Return whether the last word is in lower case. In a title every word is capitalized."""
    last = before.split()[-1]
    return last[:1].islower() or not last[:1].isalpha()


def _is_part(text: str, start: int, stop: int, taken: Sequence[tuple[int, int]]) -> bool:
    """Return whether these words are part of an identifier or an address."""
    if any(first <= start < last for first, last in taken):
        return True
    return text[start - 1 : start] in {"_", "/", ".", "@", "-"} or text[stop : stop + 1] in {"_", "@", "/"}
