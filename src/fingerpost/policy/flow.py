"""Where data in a conversation came from, and what calls may do with it.

Three things are known of a conversation: which untrusted and private sources entered it, what the person
wrote, and the text of recent results. Each value of a call is traced to one of them. A value counts as the
person's only if it stands in the person's own words; a value that cannot be traced counts as untrusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import sys
import time
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, cast
from urllib.parse import unquote

from fingerpost.catalog.effects import collect_parameters
from fingerpost.catalog.tool_names import escape_invisible
from fingerpost.dates import list_written_days
from fingerpost.frozen import frozen
from fingerpost.records import (
    LOCAL_NAME,
    ArgumentOrigin,
    Call,
    CallContext,
    DataLabel,
    DataOrigin,
    DataSource,
    Effect,
    Json,
    JsonObject,
    Known,
    Pending,
    Ruling,
    Source,
    ToolCard,
    Verdict,
    utc_now,
)
from fingerpost.redaction import scrub
from fingerpost.regex import prepare_re

if TYPE_CHECKING:
    from fingerpost.store.trust import DataFlowStore

Preset = Literal["off", "default", "autonomous", "strict"]
DataLabels = Mapping[DataLabel, Known[bool]]

UNTRUSTED_RULE: Final = "data flow: untrusted content"
PRIVATE_RULE: Final = "data flow: private data"
PERSON_RULE: Final = "data flow: the person's words"

MAX_VALUES: Final = 500  # of one call; a call with more is not traced, and asks
MAX_DEPTH: Final = 12
MAX_WORDS_LENGTH: Final = 200_000  # characters of the person's words, the latest
EXCERPT_LENGTH: Final = 40  # characters at each side of a value
MAX_SHOWN_ORIGINS: Final = 12
MAX_NAMED: Final = 3  # arguments and tools named in a reason

_TOO_MANY: Final = "(too many values)"
_SHINGLE_WORDS: Final = 4
_IDENTIFIER = prepare_re(r"[^\s\"'<>()\[\]{},;|]*[0-9@/:.][^\s\"'<>()\[\]{},;|]*")
_MIN_IDENTIFIER_LENGTH: Final = 6
_SEPARATORS = prepare_re(r"[/?#=&:]+")
_WORD = prepare_re(r"\w+")
_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_EDGES: Final = " \t\r\n.,;:!?'\"“”‘’`()[]{}<>*"
# Around a value only quotes, and what ends a sentence, say nothing: `*a*` is a pattern, `.a` another file.
_QUOTES: Final = " \t\r\n'\"“”‘’"
_SENTENCE_END = prepare_re(r"(?<=[\w)\]])[.,;:!?]+$")
# Letters and signs that composing turns into an ASCII one: the Kelvin sign, a question mark, a grave accent.
_ASCII_LOOK_ALIKES: Final[dict[int, int]] = dict.fromkeys((0x212A, 0x37E, 0x1FEF), 0xFDD0)
# The last ones are hyphens, the sign for minus, and joiners that cannot be seen.
_CONNECTORS: Final = frozenset(
    "@/\\_-+%#=&~$\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\xad\u200c\u200d\u2060\ufeff"
)
_SEPARATORS_IN_NUMBERS: Final = frozenset(",'’")


def normalize_words(words: Sequence[str]) -> str:
    """Return what the person wrote as one text for comparison: composed, ASCII in lower case, one space."""
    text = "\n".join(words)[-MAX_WORDS_LENGTH:]
    return " ".join(_fold_case(text).split())


def _fold_case(text: str) -> str:
    """Lower only ASCII letters: other letters that look alike must not become equal to them."""
    return unicodedata.normalize("NFC", text.translate(_ASCII_LOOK_ALIKES)).translate(_ASCII_LOWER)


def is_in_words(value: str, words: str) -> bool:
    """Return whether the value stands in the person's words as a whole, not as a part of a longer name."""
    wanted = _SENTENCE_END.sub("", " ".join(_fold_case(value).split()).strip(_QUOTES)).strip(_QUOTES)
    if not wanted or not wanted.isprintable():
        return False
    at = words.find(wanted)
    while at >= 0:
        if _is_edge(words[:at][-3:], ending=False) and _is_edge(words[at + len(wanted) :][:2], ending=True):
            return True
        at = words.find(wanted, at + 1)
    return False


def _is_edge(beside: str, *, ending: bool) -> bool:
    """Return whether the text beside a value ends the value: a space, punctuation, the end of the text."""
    if not beside:
        return True
    near = beside[0] if ending else beside[-1]
    if not ending and beside.endswith("://"):
        return True  # a person may write the scheme of an address, or leave it out
    # A mark belongs to the letter before it: a vowel in Hindi, an accent.
    if near.isalnum() or near in _CONNECTORS or unicodedata.category(near).startswith("M"):
        return False
    further = beside[1:2] if ending else beside[-2:-1]
    if near in ".:":  # the end of a sentence, or a part of a name
        return not (further.isalnum() if ending else True) or not further
    return not (near in _SEPARATORS_IN_NUMBERS and further.isdigit())


@frozen
class PersonWords:
    """What the person wrote: as text, and the numbers, days, times and durations in it."""

    text: str
    numbers: frozenset[Decimal]
    days: frozenset[tuple[int | None, int, int]]  # year (None: not said), month, day
    times: frozenset[str]  # HH:MM
    durations: frozenset[timedelta]

    @classmethod
    def read(cls, words: Sequence[str], today: date) -> PersonWords:
        text = normalize_words(words)
        return cls(
            text=text,
            numbers=frozenset(_list_numbers(text)),
            days=frozenset(list_written_days(text, today)),
            times=frozenset(_list_times(text)),
            durations=frozenset(_list_durations(text)),
        )

    def contain(self, value: str) -> bool:
        """Return whether the value is the person's: it stands there, or is a number or time that does."""
        if (number := _parse_number(value)) is not None:
            return number in self.numbers
        if is_in_words(value, self.text):
            return True
        moment = _parse_moment(value)
        return moment is not None and self._contain_day(moment) and self._contain_time(value, moment)

    def contain_end(self, value: str, starts: Iterable[datetime]) -> bool:
        """Return whether the value ends what begins at one of `starts` and is as long as the person said."""
        moment = _parse_moment(value)
        return moment is not None and any(moment - start in self.durations for start in starts)

    def _contain_day(self, moment: datetime) -> bool:
        day = (moment.month, moment.day)
        return any(
            day == (month, number) and year in (None, moment.year) for year, month, number in self.days
        )

    def _contain_time(self, value: str, moment: datetime) -> bool:
        """Return whether the person said this time. Midnight may stand for a day that has no time."""
        whole_day = ":" not in value or not self.times
        return (whole_day and (moment.hour, moment.minute) == (0, 0)) or f"{moment:%H:%M}" in self.times


_NUMBER = prepare_re(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
# Not a part of another number, a range, a fraction, a date, an account or an address; not with a sign.
_JOINS: Final = r"/\\+=&~\-‐‑‒–—−"
_BEFORE_NUMBER: Final = rf"(?<![\w.@%{_JOINS}])(?<!\d[,:'’])(?!(?<=\d )\d{{3}}(?!\d))"
_AFTER_NUMBER: Final = (
    rf"(?![\w@]|[.,:'’]\d|[{_JOINS}]\w| \d{{3}}(?!\d)| \d+/\d"
    r"| (?:and an? (?:half|quarter)|dozen|hundred|thousand|million|billion|trillion)\b)"
)
_NUMBER_IN_TEXT = prepare_re(_BEFORE_NUMBER + _NUMBER.pattern + _AFTER_NUMBER)
_PADDED = prepare_re(r"0\d\d")
_UP_TO_TWELVE: Final = "one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS: Final = {word: Decimal(number) for number, word in enumerate(_UP_TO_TWELVE.split(), start=1)}
_NUMBER_WORD = prepare_re(rf"(?<![\w\-])(?<!ty )(?<!no )({'|'.join(_NUMBER_WORDS)}){_AFTER_NUMBER}")
_COUNT_WORDS: Final = {"half a": 0.5, "half an": 0.5, "a": 1, "an": 1, **_NUMBER_WORDS}
_TIME = prepare_re(r"\b(\d{1,2})(?::(\d{2}))?\s?([ap])\.?m\b|\b(\d{1,2}):(\d{2})\b")
_NAMED_TIMES: Final = {"noon": "12:00", "midnight": "00:00"}
_DURATION = prepare_re(
    rf"{_BEFORE_NUMBER}(?<!quarter of )(?<!quarters of )"
    r"(half an?|(?<!half )an?|\d{1,3}(?:\.\d{1,2})?|one|two|three|four|five|six|seven|eight)"
    r"[ -](hour|minute|min|day)s?\b(?! and an? (?:half|quarter))"
)
_MOMENT = prepare_re(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::\d{2})?Z?)?")


def _list_numbers(text: str) -> Iterator[Decimal]:
    for found in _NUMBER_IN_TEXT.findall(text):
        if (number := _parse_number(found)) is not None:
            yield number
    yield from (_NUMBER_WORDS[word] for word in _NUMBER_WORD.findall(text))


def _parse_number(value: str) -> Decimal | None:
    """Return the exact number, or None. With zeros in front it is a name, as of an account."""
    if len(value) > 20 or not _NUMBER.fullmatch(value) or _PADDED.match(value):
        return None
    return Decimal(value.replace(",", ""))


def _list_times(text: str) -> Iterator[str]:
    for hour, minute, half, full_hour, full_minute in _TIME.findall(text):
        if half:
            yield f"{int(hour) % 12 + (12 if half == 'p' else 0):02d}:{minute or '00'}"
        else:
            yield f"{int(full_hour):02d}:{full_minute}"
    yield from (_NAMED_TIMES[name] for name in _WORD.findall(text) if name in _NAMED_TIMES)


def _list_durations(text: str) -> Iterator[timedelta]:
    for count, unit in _DURATION.findall(text):
        number = float(_COUNT_WORDS.get(count) or count)
        minutes = {"hour": 60, "day": 1440}.get(unit, 1)
        yield timedelta(minutes=number * minutes)


def _parse_moment(value: str) -> datetime | None:
    found = _MOMENT.fullmatch(value.strip())
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
    except ValueError:
        return None


@frozen
class SeenText:
    """The text of a result as a model saw it, and its tool."""

    tool: str
    text: str
    trusted: bool = False


@frozen
class _ComparedText:
    """A result, prepared once for the comparison with all values of a call."""

    tool: str
    trusted: bool
    words: str  # as the person's words are compared
    folded: str  # without differences of case and width, to find what was taken from it

    @classmethod
    def from_seen(cls, seen: SeenText) -> _ComparedText:
        return cls(
            tool=seen.tool,
            trusted=seen.trusted,
            words=normalize_words((seen.text,)),
            folded="" if seen.trusted else _fold(seen.text),
        )


@frozen
class CallData:
    """What is known of the data of one call: labels, sources of its conversation, origins of its values."""

    outbound: bool = False
    sources: tuple[DataSource, ...] = ()
    origins: tuple[ArgumentOrigin, ...] = ()
    has_words: bool = False

    def list_tools(self, label: DataLabel) -> tuple[str, ...]:
        """Return the tools that brought in such data."""
        return tuple(dict.fromkeys(source.tool for source in self.sources if source.label is label))

    @property
    def untrusted(self) -> bool:
        return any(source.label is DataLabel.UNTRUSTED for source in self.sources)

    @property
    def private(self) -> bool:
        return any(source.label is DataLabel.PRIVATE for source in self.sources)

    @property
    def untrusted_paths(self) -> tuple[str, ...]:
        """The paths of the values that neither the person nor a trusted source gave."""
        untrusted = (DataOrigin.UNTRUSTED, DataOrigin.UNKNOWN)
        return tuple(dict.fromkeys(one.path for one in self.origins if one.origin in untrusted))

    @property
    def told(self) -> tuple[str, ...]:
        """The data of which a person is told: untrusted content, and each tool that read private data."""
        private = (f"private {tool}" for tool in sorted(self.list_tools(DataLabel.PRIVATE)))
        return (*(("untrusted",) if self.untrusted else ()), *private)

    def has_only_origins(self, *accepted: DataOrigin) -> bool:
        """Return whether all values have one of these origins."""
        return all(one.origin in (DataOrigin.PLAIN, *accepted) for one in self.origins)

    @property
    def names_something(self) -> bool:
        """Whether at least one value is the person's or a trusted one."""
        return any(one.origin in (DataOrigin.PERSON, DataOrigin.TRUSTED) for one in self.origins)


def trace_arguments(
    arguments: JsonObject, card: ToolCard, words: PersonWords | None, seen: Sequence[SeenText]
) -> tuple[ArgumentOrigin, ...]:
    """Return where each value of the arguments comes from. `seen` are recent results, oldest first."""
    parts = dict(_list_parts(card))
    leaves = list(_list_leaves(arguments, frozenset(parts)))
    if len(leaves) >= MAX_VALUES:
        return (ArgumentOrigin(path=_TOO_MANY, origin=DataOrigin.UNKNOWN),)
    given = [_find_given_origin(path, value, parts, words) for path, value in leaves]
    compared = [_ComparedText.from_seen(one) for one in seen] if None in given else []
    traced = [
        _find_seen_origin(path, str(value), compared) if one is None else one
        for one, (path, value) in zip(given, leaves, strict=True)
    ]
    if words is None:
        return tuple(traced)
    starts = [
        moment
        for (_, value), one in zip(leaves, traced, strict=True)
        if one.origin is DataOrigin.PERSON and (moment := _parse_moment(str(value))) is not None
    ]
    return tuple(
        replace(one, origin=DataOrigin.PERSON, tool=None, excerpt="")
        if one.origin not in (DataOrigin.PERSON, DataOrigin.PLAIN)
        and isinstance(value, str)
        and words.contain_end(value, starts)
        else one
        for (_, value), one in zip(leaves, traced, strict=True)
    )


def _list_parts(card: ToolCard) -> Iterator[tuple[str, JsonObject]]:
    """Yield the named parameters of the tool, nested ones included, with their schemas."""
    for name, part in collect_parameters(card.definition.get("inputSchema")).named:
        if name:
            yield name, part


def _list_leaves(arguments: JsonObject, known: frozenset[str]) -> Iterator[tuple[str, Json]]:
    """Yield the values with their paths, and names of members that the schema does not have."""
    waiting: deque[tuple[str, Json, int]] = deque([("", arguments, 0)])
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        path, value, depth = waiting.popleft()
        if depth < MAX_DEPTH and isinstance(value, Mapping):
            inner = cast("Mapping[str, Json]", value)
            for name, each in inner.items():
                waiting.append((f"{path}.{name}" if path else name, each, depth + 1))
                if name not in known:
                    waiting.append((f"{path} (name)".strip(), name, MAX_DEPTH))
        elif depth < MAX_DEPTH and isinstance(value, Sequence) and not isinstance(value, str):
            waiting.extend((path, each, depth + 1) for each in cast("Sequence[Json]", value))
        else:
            yield path, value
    for path, value, _ in waiting:
        yield path, value


def _list_texts(value: Json) -> Iterator[str]:
    """Yield all texts in a value, with the names of members, however many and deep."""
    waiting: deque[Json] = deque([value])
    while waiting:
        one = waiting.popleft()
        if isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, Sequence) and not isinstance(one, str):
            waiting += one
        else:
            yield str(one)


def _find_given_origin(
    path: str, value: Json, parts: Mapping[str, JsonObject], words: PersonWords | None
) -> ArgumentOrigin | None:
    """Return the origin of a value without content or of the person's; None if it is to be looked for."""
    if _is_plain(value, parts.get(path.rpartition(".")[2], {})):
        return ArgumentOrigin(path=path, origin=DataOrigin.PLAIN)
    if words is not None and words.contain(str(value)):
        return ArgumentOrigin(path=path, origin=DataOrigin.PERSON)
    return None


def _find_seen_origin(path: str, text: str, seen: Sequence[_ComparedText]) -> ArgumentOrigin:
    """Return which result a value comes from."""
    found = _find_seen(text, [one for one in seen if not one.trusted])
    if found is not None:
        return replace(found, path=path)
    trusted = next((one for one in seen if one.trusted and is_in_words(text, one.words)), None)
    if trusted is not None:
        return ArgumentOrigin(path=path, origin=DataOrigin.TRUSTED, tool=trusted.tool)
    return ArgumentOrigin(path=path, origin=DataOrigin.UNKNOWN)


def _is_plain(value: Json, part: JsonObject) -> bool:
    """Return whether the value carries no content: empty, a boolean, or a value that the schema lists."""
    if value is None or isinstance(value, bool) or value in ("", 0):
        return True
    listed = part.get("enum")
    choices = cast("Sequence[Json]", listed) if isinstance(listed, Sequence) else ()
    return value in choices or any(key in part and part[key] == value for key in ("default", "const"))


def _find_seen(value: str, seen: Sequence[_ComparedText]) -> ArgumentOrigin | None:
    """Return the newest result that contains the value, or a telling part of it."""
    wanted = [part for form in _list_forms(value) for part in _list_telling_parts(form)]
    for one in reversed(seen):
        for part in wanted:
            at = one.folded.find(part)
            if at >= 0:
                around = one.folded[max(0, at - EXCERPT_LENGTH) : at + len(part) + EXCERPT_LENGTH]
                return ArgumentOrigin(
                    path="",
                    origin=DataOrigin.UNTRUSTED,
                    tool=one.tool,
                    excerpt=escape_invisible(scrub(" ".join(around.split())))[:300],
                    whole=is_in_words(value, one.words),
                )
    return None


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _list_forms(value: str) -> Iterator[str]:
    """Yield the value as it is and decoded, so that an encoding does not hide where it comes from."""
    value = value[:20_000]
    yield _fold(value)
    if (decoded := unquote(value)) != value:
        yield _fold(decoded)
    packed = "".join(value.split())
    for decode in (_decode_base64, bytes.fromhex):
        try:
            text = decode(packed).decode()
        except (ValueError, binascii.Error):
            continue
        if text.isprintable():
            yield _fold(text)


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)


def _list_telling_parts(text: str) -> Iterator[str]:
    """Yield the text if it is short, its names and addresses, and runs of its words."""
    stripped = text.strip(_EDGES)
    if 2 <= len(stripped) <= 200:
        yield stripped
    for name in _IDENTIFIER.findall(text)[:50]:
        for part in (name, *_SEPARATORS.split(name)):  # an address, and the host in it
            if len(part.strip(_EDGES)) >= _MIN_IDENTIFIER_LENGTH:
                yield part.strip(_EDGES)
    words = text.split()
    for at in range(min(len(words) - _SHINGLE_WORDS + 1, 200)):
        yield " ".join(words[at : at + _SHINGLE_WORDS])


MAX_MARKED_LENGTH: Final = 100_000  # characters of one value or result
MAX_UNESCAPED: Final = 2  # JSON in JSON
_ESCAPE = prepare_re(r"\\([nrtbf\"/\\]|u[0-9a-fA-F]{4})")
_UNESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "/": "/", "\\": "\\"}
_UNSPACED_LENGTH: Final = 8
_JOINED_LENGTH: Final = 24  # longer than nearly all words
_MAX_JOINED_LENGTH: Final = 200
# Thai, Lao, Burmese, Khmer, kana and Chinese characters.
_UNSPACED = prepare_re(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)


def compute_marks(text: str, *, searching: bool = False) -> frozenset[int]:
    """Return hashes of the names and of the runs of words in a text. `searching`: also of shorter runs, to
    find short texts that were stored alone, and with what JSON writes in another way.
    """
    marks = _compute_marks(text[:MAX_MARKED_LENGTH], searching=searching)
    for _ in range(MAX_UNESCAPED if searching else 0):
        if (plain := _unescape(text)) == text:
            break
        text = plain
        marks |= _compute_marks(text[:MAX_MARKED_LENGTH], searching=True)
    return marks


def _unescape(text: str) -> str:
    """Return the text with the escapes of JSON, and of characters that cannot be seen, resolved."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1]) or chr(int(found[1][1:], 16)), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _compute_marks(text: str, *, searching: bool) -> frozenset[int]:
    folded = _fold(text)
    words = _WORD.findall(folded)
    # One plain word says nothing: a channel called `general` must not make all results with it untrusted.
    whole = min(len(words), _SHINGLE_WORDS) if len(words) > 1 else 0
    sizes = (2, 3, _SHINGLE_WORDS) if searching else (whole,)
    pieces = {name.strip(_EDGES) for name in _IDENTIFIER.findall(folded)}
    pieces = {name for name in pieces if len(name) >= _MIN_IDENTIFIER_LENGTH}
    for size in sizes:
        if size:
            pieces |= _join_runs(words, size)
    if "_" in folded:
        parts = [part for word in words for part in word.split("_") if part]
        pieces |= _join_runs(parts, _SHINGLE_WORDS)
    for word in words:
        pieces.update(_list_pieces(word, searching=searching))
    return frozenset(_hash(piece) for piece in pieces if len(piece) >= _MIN_IDENTIFIER_LENGTH)


def _join_runs(words: Sequence[str], size: int) -> set[str]:
    return {" ".join(words[at : at + size]) for at in range(len(words) - size + 1)}


def _list_pieces(word: str, *, searching: bool) -> Iterator[str]:
    """Yield pieces of what is written without spaces: a sentence in Chinese, words that are joined."""
    if len(word) < _UNSPACED_LENGTH:
        return
    unspaced = _UNSPACED.search(word) is not None
    size = _UNSPACED_LENGTH if unspaced else _JOINED_LENGTH
    step = 1 if searching and (unspaced or len(word) <= _MAX_JOINED_LENGTH) else size
    for at in range(0, len(word) - size + 1, step):
        yield word[at : at + size]


def _hash(piece: str) -> int:
    digest = hashlib.blake2b(piece.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def apply_flow(
    ruling: Ruling, call: Call, data: CallData, preset: Preset, *, by_default: bool, named: bool
) -> Ruling:
    """Return the ruling that follows from where the data came from.

    `by_default`: no rule decided, only the default for the effect. `named`: the rule that allows the call
    names its tool; such a rule is respected, except in `strict`.
    """
    if preset == "off" or ruling.verdict is Verdict.DENY:
        return ruling
    exact = preset == "strict" and bool(data.sources)
    if ruling.verdict is Verdict.ALLOW:
        found = None if named and preset != "strict" else _find_reason_to_ask(call, data, preset)
        if found is None:
            return ruling
        reason, rule = found
        return Ruling(verdict=Verdict.ASK, reason=reason, rule=rule, exact=exact)
    if by_default and preset != "strict" and _may_run_unasked(call, data, preset):
        return Ruling(verdict=Verdict.ALLOW, reason="all its values are the person's own", rule=PERSON_RULE)
    return replace(ruling, exact=ruling.exact or exact)


_NOT_TRACED: Final = (ArgumentOrigin(path="(no arguments)", origin=DataOrigin.PLAIN),)


def _may_run_unasked(call: Call, data: CallData, preset: Preset) -> bool:
    """Return whether a call that asks by default may run because of who gave its values.

    A call without content, which the person's words do not name, may not once untrusted content is in.
    """
    if not data.has_words or call.effect is Effect.DESTROY:
        return False
    if call.doubt:  # it seems to read
        return data.has_only_origins(DataOrigin.PERSON) and (data.names_something or not data.untrusted)
    if preset != "autonomous" or not data.names_something:
        return False
    if data.has_only_origins(DataOrigin.PERSON):
        return True
    sends_private = data.outbound and data.private
    known = data.has_only_origins(DataOrigin.PERSON, DataOrigin.TRUSTED)
    return known and not data.untrusted and not sends_private


def _find_reason_to_ask(call: Call, data: CallData, preset: Preset) -> tuple[str, str] | None:
    """Return why a call that a rule or default allows needs a person, and the rule; None if it does not."""
    if call.effect is Effect.READ:
        if not data.outbound or not data.sources:
            return None
        texts = [one for one in data.origins if one.origin is not DataOrigin.PLAIN]
        if data.has_words and all(one.origin is DataOrigin.PERSON for one in texts):
            return None
        if data.private:
            return "it can send private data out", PRIVATE_RULE
        composed = not all(one.whole or one.origin is DataOrigin.PERSON for one in texts)
        if preset == "strict" or (data.has_words and composed):
            return "it can send data out", UNTRUSTED_RULE
        return None
    named = data.names_something and data.has_only_origins(DataOrigin.PERSON)
    if data.has_words and named and preset != "strict":
        return None
    if data.untrusted:
        return "it acts on untrusted content", UNTRUSTED_RULE
    if data.outbound and data.private:
        return "it can send private data out", PRIVATE_RULE
    return None


def explain_data(ruling: Ruling, data: CallData) -> Ruling:
    """Return a ruling that asks with what the person has to know of the data, whatever rule asks."""
    if ruling.verdict is not Verdict.ASK or not data.sources:
        return ruling
    return replace(
        ruling,
        reason=f"{ruling.reason}; {_describe_data(data)}",
        origins=tuple(sorted(data.origins, key=_rank_origin)) or _NOT_TRACED,
        told=data.told,
    )


def _rank_origin(one: ArgumentOrigin) -> int:
    """Return the place in a list of which a person may see only the beginning."""
    return _SHOWN_ORDER.index(one.origin)


_SHOWN_ORDER: Final = (
    DataOrigin.UNTRUSTED,
    DataOrigin.UNKNOWN,
    DataOrigin.TRUSTED,
    DataOrigin.PERSON,
    DataOrigin.PLAIN,
)


def _describe_data(data: CallData) -> str:
    """Say which data is in the conversation, and which arguments are not the person's."""
    parts = [
        f"this conversation contains {word} from {_join(data.list_tools(label))}"
        for label, word in ((DataLabel.UNTRUSTED, "untrusted content"), (DataLabel.PRIVATE, "private data"))
        if data.list_tools(label)
    ]
    if data.has_words and data.untrusted_paths:
        parts.append(f"not in the person's words: {_join(data.untrusted_paths)}")
    return "; ".join(parts)


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def list_origins(pending: Pending) -> list[str]:
    """Say where each value of a call comes from, for the person who decides."""
    lines = list(dict.fromkeys(map(_describe_origin, pending.origins)))
    more = len(lines) - MAX_SHOWN_ORIGINS
    return lines[:MAX_SHOWN_ORIGINS] + ([f"and {more} more"] if more > 0 else [])


def _describe_origin(one: ArgumentOrigin) -> str:
    match one.origin:
        case DataOrigin.PERSON:
            return f"{one.path}: in the person's words"
        case DataOrigin.PLAIN:
            return f"{one.path}: a fixed value"
        case DataOrigin.TRUSTED:
            return f"{one.path}: from {one.tool}, which is trusted"
        case DataOrigin.UNTRUSTED:
            return f"{one.path}: from {one.tool}: “…{one.excerpt}…”"
        case DataOrigin.UNKNOWN:
            return f"{one.path}: not in the person's words, and not found in a result"


MAX_TRAILS: Final = 5_000  # conversations in memory
MAX_SEEN_TEXTS: Final = 16  # of one conversation, the latest
MAX_SEEN_LENGTH: Final = 32_000  # characters of one
MAX_SEEN_BYTES: Final = 32 * 1024 * 1024  # of all; conversations that were not used for longest lose theirs
MAX_MARKS: Final = 400_000  # in memory; then they are read again, and old ones are gone
TOUCH_AGE: Final = timedelta(days=1)  # how old the record of a conversation in use may be
REFRESH_SECONDS: Final = 1.0  # how old the records of other processes may be, where nothing is written
RECORD_AGE: Final = timedelta(minutes=5)  # what is read again later than this is recorded again
PRINCIPAL_AGE: Final = timedelta(hours=1)  # how long data counts where calls belong to no conversation


@dataclass(slots=True)
class _Trail:
    """What this process knows of one conversation."""

    recorded: dict[tuple[str, DataLabel], datetime] = field(
        default_factory=dict[tuple[str, DataLabel], datetime]
    )
    changes: int = 0  # how often something was recorded
    sources: tuple[DataSource, ...] = ()  # as last read
    read_at: float = float("-inf")
    seen: deque[SeenText] = field(default_factory=lambda: deque[SeenText](maxlen=MAX_SEEN_TEXTS))


class DataTrails:
    """The data of conversations: recorded when results arrive, read when calls are judged.

    The sources are in the store before a result is returned, so that another process judges the next call
    with them. The text of results stays in this process.
    """

    def __init__(
        self,
        store: DataFlowStore,
        preset: Preset,
        *,
        clock: Callable[[], datetime] = utc_now,
        max_marks: int = MAX_MARKS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._max_marks = max_marks
        self.preset: Preset = preset
        self._trails: OrderedDict[str, _Trail] = OrderedDict()
        self._seen_bytes = 0
        self._marks: set[int] = set()
        self._last_mark = 0
        self._marks_read_at = float("-inf")

    async def describe(self, call: Call, card: ToolCard, context: CallContext) -> CallData:
        """Return what is known of the data of this call."""
        outbound = card.has(DataLabel.OUTBOUND)
        if self.preset == "off" or (not outbound and call.effect is Effect.READ):
            return CallData()
        trail = build_trail(context, self.preset)
        reading = call.effect is Effect.READ
        sources = () if trail is None else await self._list_sources(trail, context, reading=reading)
        data = CallData(outbound=outbound, sources=sources, has_words=context.words is not None)
        if context.words is None and (not sources or (reading and not data.private)):
            return data  # nothing follows from where its values come
        words = None if context.words is None else PersonWords.read(context.words, utc_now().date())
        seen = () if trail is None else tuple(self._get_trail(trail).seen)
        return replace(data, origins=trace_arguments(call.arguments, card, words, seen))

    async def _list_sources(self, key: str, context: CallContext, *, reading: bool) -> tuple[DataSource, ...]:
        """Return the sources of a conversation. For a read, those of other processes may be a second old."""
        trail = self._get_trail(key)
        if not reading or time.monotonic() - trail.read_at > REFRESH_SECONDS:
            before = trail.changes
            sources = await self._store.list_sources(key)
            if trail.changes != before:  # something was recorded meanwhile: these are read again
                return sources
            trail.sources, trail.read_at = sources, time.monotonic()
        now = self._clock()
        if not _has_conversation(context):
            return tuple(source for source in trail.sources if source.at >= now - PRINCIPAL_AGE - RECORD_AGE)
        if any(source.at < now - TOUCH_AGE for source in trail.sources):
            await self._store.touch_sources(key, now)
        return trail.sources

    async def note_result(
        self, tool: str, known: DataLabels, context: CallContext, text: str, *, marked: bool = False
    ) -> None:
        """Record the labels of a result that the caller is about to get. One that is `marked`, because its
        text addresses the model, is untrusted whatever is known of its tool.
        """
        if self.preset == "off" or (key := build_trail(context, self.preset)) is None:
            return
        noted = (DataLabel.UNTRUSTED, DataLabel.PRIVATE)
        labels = [label for label in noted if (found := known.get(label)) is not None and found.value]
        if DataLabel.UNTRUSTED not in labels and (marked or await self._was_stored(text)):
            labels.append(DataLabel.UNTRUSTED)
        written = known.get(DataLabel.UNTRUSTED)
        trusted = written is not None and written.source is Source.WRITTEN
        if not labels and not trusted:
            return
        trail = self._get_trail(key)
        is_untrusted = DataLabel.UNTRUSTED in labels
        if is_untrusted or trusted:
            self._remember(trail, SeenText(tool=tool, text=text[:MAX_SEEN_LENGTH], trusted=not is_untrusted))
        for label in labels:
            await self._record(key, trail, tool, label, context.call_id)

    async def note_untrusted(
        self, tool: str, context: CallContext, text: str, *, private: bool = False
    ) -> None:
        """Record untrusted content that is no result here: a stored page, a result of a client's tool."""
        if self.preset == "off" or (key := build_trail(context, self.preset)) is None:
            return
        trail = self._get_trail(key)
        self._remember(trail, SeenText(tool=tool, text=text[:MAX_SEEN_LENGTH]))
        await self._record(key, trail, tool, DataLabel.UNTRUSTED, context.call_id)
        if private:
            await self._record(key, trail, tool, DataLabel.PRIVATE, context.call_id)

    async def has_sources(self, context: CallContext) -> bool:
        """Return whether something untrusted or private was read in this conversation."""
        key = None if self.preset == "off" else build_trail(context, self.preset)
        return key is not None and bool(await self._store.list_sources(key))

    async def inherit(self, context: CallContext, earlier: Sequence[str]) -> None:
        """Record what was read in earlier conversations of this caller, from which this one goes on."""
        if self.preset == "off" or (key := build_trail(context, self.preset)) is None:
            return
        for name in earlier:
            before = build_trail(replace(context, conversation=name), self.preset)
            if before is None or before == key:
                continue
            for seen in tuple(self._get_trail(before).seen):
                self._remember(self._get_trail(key), seen)
            for source in await self._store.list_sources(before):
                await self._record(key, self._get_trail(key), source.tool, source.label, source.call_id)

    async def _record(self, key: str, trail: _Trail, tool: str, label: DataLabel, call_id: str) -> None:
        now = self._clock()
        last = trail.recorded.get((tool, label))
        if last is not None and now - last < RECORD_AGE:
            return
        source = DataSource(tool=tool, label=label, call_id=call_id, at=now)
        await self._store.add_source(key, source)
        trail.recorded[tool, label] = now
        trail.changes += 1
        trail.read_at = float("-inf")

    async def note_write(self, call: Call, data: CallData) -> None:
        """Record marks of untrusted text that a call stored, so that it stays untrusted where it is read."""
        if not data.untrusted or call.effect is Effect.READ:
            return
        paths = frozenset(data.untrusted_paths)
        texts: dict[str, list[str]] = {}  # by argument: words of a list may be joined where they are stored
        for path, value in _list_leaves(call.arguments, frozenset()):
            if path in paths or _TOO_MANY in paths:
                texts.setdefault(path, []).extend(_list_texts(value))
        parts = {part for found in texts.values() for part in (*found, " ".join(found))}
        marks = {mark for part in parts for mark in compute_marks(part)}
        new = sorted(marks - self._marks)
        if new:
            self._marks.update(new)
            await self._store.add_marks(new)

    async def _was_stored(self, text: str) -> bool:
        """Return whether the text contains untrusted text that a call stored earlier."""
        if time.monotonic() - self._marks_read_at > REFRESH_SECONDS:
            self._last_mark, added = await self._store.list_marks(after=self._last_mark)
            self._marks |= added
            if len(self._marks) > self._max_marks:
                self._last_mark, kept = await self._store.list_marks(after=0)
                self._marks = set(kept)
            self._marks_read_at = time.monotonic()
        return bool(self._marks) and not self._marks.isdisjoint(compute_marks(text, searching=True))

    def _get_trail(self, key: str) -> _Trail:
        trail = self._trails.get(key)
        if trail is None:
            trail = self._trails[key] = _Trail()
        self._trails.move_to_end(key)
        while len(self._trails) > MAX_TRAILS:
            self._forget_oldest()
        return trail

    def _remember(self, trail: _Trail, seen: SeenText) -> None:
        """Remember the text of a result, within the limits of a conversation and of all."""
        if len(trail.seen) == MAX_SEEN_TEXTS:
            self._seen_bytes -= sys.getsizeof(trail.seen.popleft().text)
        trail.seen.append(seen)
        self._seen_bytes += sys.getsizeof(seen.text)
        while self._seen_bytes > MAX_SEEN_BYTES and len(self._trails) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the conversation that was not used for longest. Its sources are in the store."""
        _, trail = self._trails.popitem(last=False)
        self._seen_bytes -= sum(sys.getsizeof(seen.text) for seen in trail.seen)


def _has_conversation(context: CallContext) -> bool:
    return (context.conversation or context.trail or context.packet_id) is not None


def build_trail(context: CallContext, preset: Preset) -> str | None:
    """Return the name under which the data of a call's conversation is recorded; None if it stands alone.

    Without a conversation all calls of a caller of the gateway are one, and in `strict` always: a client may
    open a session for each call.
    """
    if context.trail is not None:
        return context.trail
    if context.asker is not None and (preset == "strict" or context.conversation is None):
        return f"asker {context.asker}"
    if context.conversation is not None:
        return f"conversation {context.caller or LOCAL_NAME} {context.conversation}"
    return None if context.packet_id is None else f"request {context.packet_id}"
