"""Fill the arguments of a tool with the values the request states for certain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from itertools import chain, islice
from typing import Final, TypeAlias

from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, to_singular
from fingerpost.choose.keyless.extraction import MAX_REQUEST_LENGTH, extract_values, locate_entities
from fingerpost.choose.keyless.parameters import (
    NEUTRAL_LABELS,
    ParameterSlot,
    allows_bare_number,
    build_slots,
    convert_value,
    has_matching_role,
    has_slot_word,
    is_number_for_slot,
    is_search,
    parse_bare_number,
    takes_count,
    takes_directory,
    takes_repository,
)
from fingerpost.choose.keyless.tables import HEBREW_OPTION_WORDS, ORDINARY_WORDS, ZONES, get_lines, get_words
from fingerpost.choose.keyless.values import (
    UNPARSED_KINDS,
    RequestValue,
    ValueKind,
    ValueRole,
    add_context,
    get_word_context,
    group_joined_values,
)
from fingerpost.frozen import frozen
from fingerpost.records import (
    Effect,
    Entity,
    Json,
    JsonObject,
    MissingArgument,
    ServerPaths,
    Signals,
    ToolCard,
)
from fingerpost.regex import prepare_re

Span: TypeAlias = tuple[int, int]  # of the request


@frozen
class AssignedArgument:
    """One argument, the spans of the request it comes from, and why it is certain."""

    argument: Json
    reason: str
    spans: tuple[Span, ...] = ()
    is_named: bool = False  # the request states the parameter's name


@dataclass(slots=True)
class FillState:
    """The request, the tool's parameters, and the arguments found so far, for one `fill_arguments` call."""

    text: str
    slots: tuple[ParameterSlot, ...]
    values: tuple[RequestValue, ...]
    assigned: dict[str, AssignedArgument] = field(default_factory=dict[str, AssignedArgument])
    reserved_spans: list[Span] = field(default_factory=list[Span])  # of secrets
    operation: str = ""  # that the request orders, of a tool with several

    def assign(
        self, slot: ParameterSlot, argument: Json, reason: str, *spans: Span, is_named: bool = False
    ) -> None:
        """Assign an argument. Ignore it if the parameter's schema does not accept it."""
        if slot.parameter.accepts(argument):
            made = AssignedArgument(argument=argument, reason=reason, spans=spans, is_named=is_named)
            self.assigned[slot.name] = made

    def get_open_slots(self) -> list[ParameterSlot]:
        return [slot for slot in self.slots if slot.name not in self.assigned and not slot.is_secret]

    def is_free(self, start: int, end: int) -> bool:
        return all(end <= first or last <= start for first, last in self.iterate_used_spans())

    def get_free_values(self) -> list[RequestValue]:
        return [value for value in self.values if self.is_free(value.start, value.end)]

    def iterate_used_spans(self) -> Iterable[Span]:
        yield from self.reserved_spans
        for taken in self.assigned.values():
            yield from taken.spans


MAX_LISTED_OPTIONS: Final = 200
MIN_OPTION_LENGTH: Final = 3  # letters; `in`, `no` and `it` are codes but also common words
_OPTION_WORD = prepare_re(r"[^\W_]+(?:['’][^\W_]+)*")
_SKIPPED_WORDS: Final = parse_word_set("by as in is to the a an with of for on at be")
_OPTION_ARTICLES: Final = parse_word_set("the a an any all its their also")
_NEGATIONS: Final = parse_word_set("not don't dont no without never doesn't לא בלי ללא")
_UNIT_WORDS: Final = parse_word_set("km cm mm kg mg ml lb oz ft gb mb kb tb hz kw")
_SWITCH_SUFFIX = prepare_re(r"^ (?:mode|on|off|enabled|disabled)\b", re.IGNORECASE)


def find_option_values(
    text: str, slots: tuple[ParameterSlot, ...], known_values: tuple[RequestValue, ...]
) -> tuple[RequestValue, ...]:
    """Find every position where the request names a listed value of a parameter."""
    opaque_kinds = (ValueKind.PATH, ValueKind.URL, ValueKind.EMAIL, ValueKind.TEXT)
    opaque_values = [value for value in known_values if value.kind in opaque_kinds]
    options = dict.fromkeys(option for slot in slots for option in slot.options)
    words = [(*match.span(), to_singular(match[0].lower())) for match in _OPTION_WORD.finditer(text)]
    found: dict[tuple[int, int, str], RequestValue] = {}
    for option in islice(options, MAX_LISTED_OPTIONS):
        for start, end in _find_mentions(option, words, text):
            value = RequestValue(
                kind=ValueKind.OPTION, text=text[start:end], start=start, end=end, reading=option
            )
            if not any(value.overlaps_with(other) for other in opaque_values):
                found[start, end, option] = add_context(value, text)
    return tuple(_keep_longest(list(found.values())))


def is_option_for_slot(slot: ParameterSlot, value: RequestValue, text: str) -> bool:
    """Return whether a mention refers to this parameter. A common word needs one of the parameter's words."""
    if str(value.reading).lower() not in ORDINARY_WORDS:
        return True
    content = {word for word in {*slot.words, *slot.description_words} - STOP_WORDS if len(word) > 2}
    content |= {word for word in slot.words if len(word) > 2}
    if value.noun in content:
        return True
    near = get_word_context(text, value.start, value.end).before
    before = [word for word in near if word not in _SKIPPED_WORDS][:1]
    return any(word.startswith(known) for word in before for known in content)


def _find_mentions(option: str, words: list[tuple[int, int, str]], text: str) -> Iterator[Span]:
    wanted = tuple(to_singular(word) for word in split_words(option))
    if wanted and (len(option) >= MIN_OPTION_LENGTH or option.lower() in _UNIT_WORDS):
        is_upper_case = option.isupper() and option.isalpha()
        for place in range(len(words) - len(wanted) + 1):
            piece = words[place : place + len(wanted)]
            if tuple(word for _, _, word in piece) != wanted:
                continue
            start, end = piece[0][0], piece[-1][1]
            if not is_upper_case or text[start:end] == option:
                yield start, end
    for hebrew in HEBREW_OPTION_WORDS.get(option.lower(), ()):
        for match in re.finditer(rf"(?<![א-ת])[בלהו]{{0,2}}({hebrew})(?![א-ת])", text):
            yield match.span(1)


def _keep_longest(found: list[RequestValue]) -> Iterator[RequestValue]:
    for value in found:
        longer = (other for other in found if other.overlaps_with(value))
        if not any(other.end - other.start > value.end - value.start for other in longer):
            yield value


def assign_switches(state: FillState) -> None:
    """Assign booleans whose name the request states or negates."""
    for slot in state.get_open_slots():
        if slot.parameter.shape.type != "boolean" or slot.parameter.is_list:
            continue
        found = list(_find_switches(slot, state.text))
        if len({value for value, _, _ in found}) == 1:
            value, start, end = found[0]
            reason = f'"{state.text[start:end]}" says it'
            state.assign(slot, value, reason, (start, end), is_named=True)


def _find_switches(slot: ParameterSlot, text: str) -> Iterator[tuple[bool, int, int]]:
    name = split_words(slot.name[:80])
    words = list(_OPTION_WORD.finditer(text))
    for place in range(len(words)):
        last = _match_name(name, words, place)
        if last is None:
            continue
        start, end = words[place].start(), words[last].end()
        switch = _SWITCH_SUFFIX.match(text[end : end + 12])
        # One word may be a topic ("ambiguous grammars"); the context must show that it is a switch.
        dashed = text[max(0, start - 2) : start] == "--"
        if len(name) < 2 and switch is None and not dashed and not _qualifies_noun(slot, words, last):
            continue
        before = (word[0].lower().replace("’", "'") for word in words[max(0, place - 3) : place])
        denied = not _NEGATIONS.isdisjoint(before)
        off = switch is not None and switch.group().lower().strip() in ("off", "disabled")
        yield not (denied or off), start, end


def _qualifies_noun(slot: ParameterSlot, words: list[re.Match[str]], place: int) -> bool:
    """Return whether a noun of the parameter's description follows: "the raw html"."""
    following = [to_singular(word.group().lower()) for word in words[place + 1 : place + 2]]
    return any(word in slot.description_words - STOP_WORDS for word in following)


def _match_name(name: tuple[str, ...], words: list[re.Match[str]], place: int) -> int | None:
    """Return the index of the last word of a name that starts at `place`, or None. Articles are skipped."""
    at = place
    for number, wanted in enumerate(name):
        while number and at < len(words) and words[at].group().lower() in _OPTION_ARTICLES:
            at += 1
        if at >= len(words) or not _is_same_stem(words[at].group().lower(), wanted):
            return None
        at += 1
    return at - 1 if name else None


def _is_same_stem(text: str, wanted: str) -> bool:
    """Return whether the words have the same stem: `including` and `includes` match `include`."""
    if to_singular(text) == to_singular(wanted):
        return True
    stem = wanted.removesuffix("e")
    return len(stem) > 2 and text in (f"{stem}ing", f"{stem}es", f"{stem}ed", f"{wanted}ing", f"{wanted}ed")


_NAME_ENDINGS: Final = parse_word_set("name id number key line")  # "table 'users'" names `table_name`
_QUOTED = prepare_re(r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'|`([^`\n]{1,1000})`")
_VALUE_TOKEN = prepare_re(r"[^\s,;\"'`]{1,300}")
_LINE_REST = prepare_re(r"[^\n]{1,2000}")
_NEXT_PAIR = prepare_re(r"[,;]? \w{2,30} ?[:=]")
_BETWEEN_NAME_AND_VALUE = prepare_re(r"\s{0,2}(?:(?:is|of|to|the|as|:|=)\s{1,2}){0,2}[\"'`“‘«„]?$")
_CALLED_PATTERN: Final = r"(?:called|named|בשם) [\"'`]?([^\s,;\"'`?!]{1,100})"
_IDENTIFIER = prepare_re(r"[A-Za-z]\w{0,60}(?:_\w{1,60}|[a-z][A-Z]\w{0,60})")
_BOOLEAN_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_HEBREW_NOUNS: Final = get_lines("hebrew_nouns")
_SECRET_WORDS: Final = prepare_re(
    r"(?:password|passwd|passphrase|secret|token|api[ _-]?key|pin|סיסמה|סיסמא)(?: is|:|=)? ?[\"'`]?",
    re.IGNORECASE,
)


def reserve_secrets(state: FillState) -> None:
    """Reserve the text after a word like "password", so that no argument uses it."""
    for match in _SECRET_WORDS.finditer(state.text):
        if word := _VALUE_TOKEN.match(state.text, match.end()):
            state.reserved_spans.append((match.end(), word.end()))


def assign_named(state: FillState) -> None:
    """Assign every parameter that the request names together with its value."""
    for slot in state.get_open_slots():
        searches = (_find_pairs, _find_adjacent_values, _find_called_values)
        found = (taken for search in searches for taken in search(slot, state))
        chosen = {repr(taken.argument): taken for taken in found}
        if len(chosen) == 1:
            taken = next(iter(chosen.values()))
            state.assign(slot, taken.argument, taken.reason, *taken.spans, is_named=taken.is_named)


@lru_cache(maxsize=2048)
def _build_name_pattern(name: str) -> str:
    """Return a pattern for the usual spellings of the name: `max_length`, "max length", `maxLength`."""
    return r"[\s_-]?".join(re.escape(word) for word in split_words(name[:80])) or re.escape(name[:80])


def _find_pairs(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """Find `name=value` and `name: value`."""
    pattern = rf"(?<![\w-])(?:--)?{_build_name_pattern(slot.name)}\s?(=|:(?!//)) ?"
    for match in re.finditer(pattern, state.text, re.IGNORECASE):
        read = _read_pair(slot, state, match.end(), colon=match[1] == ":")
        if read is not None and state.is_free(match.start(), read[1]):
            yield _build_assignment(slot, read[0], match.start(), read[1])


def _read_pair(slot: ParameterSlot, state: FillState, start: int, *, colon: bool) -> tuple[Json, int] | None:
    text = state.text
    for value in state.values:
        if value.start - start in (0, 1) and (made := convert_value(slot, value)) is not None:
            return ([made] if slot.parameter.is_list else made), value.end + (value.start - start)
    if quoted := _QUOTED.match(text, start):
        return _convert_word(slot, next(part for part in quoted.groups() if part)), quoted.end()
    if colon and slot.is_text and not slot.parameter.is_list and (rest := _LINE_REST.match(text, start)):
        line = rest.group()
        if following := _NEXT_PAIR.search(line):
            line = line[: following.start()]
        return line.strip() or None, start + len(line)
    if token := _VALUE_TOKEN.match(text, start):
        return _convert_word(slot, token.group().rstrip(".?!)")), token.end()
    return None


def _convert_word(slot: ParameterSlot, word: str) -> Json:
    """Convert a word after a parameter's name to the parameter's type."""
    shape = slot.parameter.shape
    if shape.type == "boolean":
        return _BOOLEAN_WORDS.get(word.lower())
    if shape.type in ("integer", "number"):
        return parse_bare_number(word)
    if slot.options:
        same = [option for option in slot.options if option.lower() == word.lower()]
        return same[0] if same else None
    if not slot.kinds <= UNPARSED_KINDS:  # values that need parsing (a date, a zone) were already tried
        return None
    return [word] if slot.parameter.is_list else word


def _find_adjacent_values(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """Find a value directly after the parameter's name: `subject "Lunch"`, "width 800"."""
    if slot.kinds - {ValueKind.NUMBER, ValueKind.SQL, ValueKind.PATTERN} and (
        len(slot.words) < 2 or ValueKind.ID in slot.kinds
    ):
        return  # "the file a.txt" gives the type of a.txt, not the parameter
    for value in state.get_free_values():
        if value.kind is ValueKind.OPTION or value.denied:
            continue
        made = _convert_named_value(slot, value)
        if made is not None and _follows_name(slot, value, state.text):
            argument = [made] if slot.parameter.is_list else made
            yield _build_assignment(slot, argument, value.start, value.end, named=False)


def _convert_named_value(slot: ParameterSlot, value: RequestValue) -> Json:
    if value.kind is ValueKind.NUMBER and slot.is_number and not value.unit:
        if not isinstance(value.reading, float):
            return None
        return int(value.text) if value.text.lstrip("-").isdigit() else value.reading
    return convert_value(slot, value)


def _follows_name(slot: ParameterSlot, value: RequestValue, text: str) -> bool:
    head = text[max(0, value.start - 90) : value.start]
    between = _BETWEEN_NAME_AND_VALUE.search(head)
    if between is None:
        return False
    head = head[: between.start()]
    return any(re.search(rf"(?<![\w-]){name}$", head, re.IGNORECASE) for name in _list_short_names(slot))


def _list_short_names(slot: ParameterSlot) -> Iterator[str]:
    """Return the name, and the name without a technical suffix: `table` for `table_name`."""
    name = split_words(slot.name[:80])
    if len("".join(name)) >= 3:
        yield _build_name_pattern(slot.name)
    if len(name) > 1 and name[-1] in _NAME_ENDINGS:
        yield r"[\s_-]?".join(map(re.escape, name[:-1]))
    if name == ("title",):
        yield "titled"


def _find_called_values(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """Find "a branch called dev-2" and the word after the noun: "the branch develop"."""
    name = split_words(slot.name[:80])
    is_revision = slot.kinds == frozenset({ValueKind.REVISION})
    if slot.parameter.shape.type != "string" or slot.options or slot.parameter.is_list:
        return
    if is_revision:
        nouns = ["branch", "tag"]
    elif slot.kinds or len(name) < 2 or name[-1] not in _NAME_ENDINGS:
        return
    else:
        nouns = [r"[\s_-]?".join(map(re.escape, name[:-1])), *_HEBREW_NOUNS.get(name[-2], ())]
    for noun in nouns:
        for match in re.finditer(rf"(?<!\w){noun}s? {_CALLED_PATTERN}", state.text, re.IGNORECASE):
            yield _build_assignment(slot, match[1].rstrip("."), match.start(1), match.end(1))
        for match in re.finditer(rf"(?<![\w-]){noun} ([\w-]{{2,100}})(?![\w-])", state.text, re.IGNORECASE):
            if _IDENTIFIER.fullmatch(match[1]) or _is_name_after_noun(state.text, match):
                yield _build_assignment(slot, match[1], match.start(1), match.end(1))


_NAME_END = prepare_re(r"[?.!]?$|[?.!,;]\s|\s(?:in|of|on|from|to|and|with|for|please|by|at|as)\b")
_UNNAMED_BEFORE: Final = parse_word_set("which what any a an no each every whose how")
_NOT_NAMES: Final = parse_word_set(
    "exist exists contain contains look looks work works have has need needs structure schema layout"
    " definition column columns row rows data content contents info information detail details list names"
    " history size type format design settings setting"
)


def _is_name_after_noun(text: str, match: re.Match[str]) -> bool:
    """Return whether the word after the noun ends the phrase, unlike "has" in "the table has rows"."""
    word = match[1].lower()
    before = text[: match.start()].split()[-1:]
    if before and before[0].lower() in _UNNAMED_BEFORE:
        return False
    common = STOP_WORDS | _NOT_NAMES | (ORDINARY_WORDS - {"main", "order", "user"})
    return word not in common and _NAME_END.match(text[match.end() :]) is not None


def _build_assignment(
    slot: ParameterSlot, argument: Json, start: int, end: int, *, named: bool = True
) -> AssignedArgument:
    reason = f"the request gives {slot.name} by name"
    return AssignedArgument(argument=argument, reason=reason, spans=((start, end),), is_named=named)


_MAX_ROUNDS: Final = 12
_COPY_NAMES: Final = frozenset({"cc", "bcc"})
_VALUE_ARTICLES: Final = parse_word_set("of for the from by to in a an my with")
_OPERATOR_BETWEEN = prepare_re(r"^\s?(?:and|plus|\+|times|\*|×|ו-?|ועוד|,)\s?$")
_ORDERED_NAMES: Final = frozenset({"a b", "x y", "num1 num2", "first second", "number1 number2"})


def assign_unique_matches(state: FillState) -> None:
    """Assign every value that fits only one parameter, required parameters first, until nothing changes."""
    for _ in range(_MAX_ROUNDS):
        before = len(state.assigned)
        for slot in state.get_open_slots():
            if slot.required:
                _assign_slot(state, slot)
        if len(state.assigned) == before:
            break
    for slot in state.get_open_slots():
        if not slot.required and (slot.options or slot.kinds - {ValueKind.SQL, ValueKind.PATTERN}):
            _assign_slot(state, slot)
    _assign_in_order(state)


def drop_partial_groups(state: FillState) -> None:
    """Drop arguments that use only some of several joined values: in "5 or 10 minutes" neither is certain."""
    used = set(state.iterate_used_spans())
    for group in group_joined_values(state.values, state.text):
        spans = {(value.start, value.end) for value in group}
        if spans <= used:
            continue
        for name, taken in list(state.assigned.items()):
            if not taken.is_named and spans & set(taken.spans):
                del state.assigned[name]


def _assign_slot(state: FillState, slot: ParameterSlot) -> None:
    candidates = _find_candidates(state, slot)
    alone = [(made, value) for made, value in candidates if not _fits_other_slot(state, slot, value)]
    if len(alone) != len(candidates) or not alone:
        return
    if slot.parameter.is_list:
        made: Json = list(dict.fromkeys(str(one) for one, _ in alone))
    elif len({_build_value_key(made, value) for made, value in alone}) == 1:
        made = alone[0][0]
    else:
        return
    texts = ", ".join(dict.fromkeys(value.text for _, value in alone))
    reason = f'"{texts}" is the only {alone[0][1].kind.value} for {slot.name}'
    spans = ((value.start, value.end) for _, value in alone)
    state.assign(slot, made, reason, *spans)


def _build_value_key(made: Json, value: RequestValue) -> str:
    """Return a key for duplicates. A repeated value is one value; a repeated number may count two things."""
    return f"{made!r} {value.start}" if value.kind is ValueKind.NUMBER else repr(made)


def _find_candidates(state: FillState, slot: ParameterSlot) -> list[tuple[Json, RequestValue]]:
    found: list[tuple[Json, RequestValue]] = []
    for value in state.get_free_values():
        made = convert_value(slot, value)
        if made is not None and _is_value_eligible(state, slot, value):
            found.append((made, value))
    return found


def _is_value_eligible(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    if value.kind is ValueKind.OPTION and not _is_only_mentioned_option(state, slot, value):
        return False
    if value.kind is ValueKind.NUMBER and not _is_number_eligible(state, slot, value):
        return False
    if value.kind is ValueKind.TEXT and not (slot.required and _is_search_text(state, slot, value)):
        return False
    if {*slot.words, value.label} & _COPY_NAMES and slot.words[-1:] != (value.label,):
        return False
    if value.kind is ValueKind.ID and not _is_only_id(state, value):
        return False
    if value.kind is ValueKind.PATH and takes_repository(slot) and _FILE_SUFFIX.search(value.text):
        return False
    if ValueKind.PATTERN in slot.kinds and not _GLOB_MARK.search(value.text) and _has_glob(state):
        return False
    return has_matching_role(slot, value, state.values, state.slots)


_FILE_SUFFIX = prepare_re(r"[^./]\.[a-z][a-z0-9]{0,4}$", re.IGNORECASE)
_GLOB_MARK = prepare_re(r"[*?\[]")


def _has_glob(state: FillState) -> bool:
    return any(_GLOB_MARK.search(value.text) for value in state.get_free_values())


def _is_search_text(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """Return whether the value can be search text. A quoted file name is a file, not search text."""
    if slot.words[-1:] not in (("query",), ("q",), ("search",), ("topic",), ("keyword",)):
        return True
    return not any(other.kind is ValueKind.PATH and other.start == value.start for other in state.values)


def _is_number_eligible(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    numbers = (other for other in state.get_free_values() if other.kind is ValueKind.NUMBER)
    others = [other for other in numbers if other is not value]
    if any(other.reading is None for other in others):
        return False  # another number is vague: "more than 5"
    if not slot.required:
        # In "the last 2 of the 10 lines" the number after "last" is the intended one.
        return is_number_for_slot(slot, value) and (bool(value.cue) or not any(other.cue for other in others))
    if has_slot_word(slot, value):
        return True
    alone = all(other.unit or _are_ordered([slot, *state.get_open_slots()]) for other in others)
    return alone and allows_bare_number(slot)


def _is_only_id(state: FillState, value: RequestValue) -> bool:
    """Return whether every other id has a label: "of customer CUS-2" has one, "what blocks OPS-7" none."""
    return all(
        other.text == value.text
        or (other.label not in NEUTRAL_LABELS and {*other.before[1:2]} & _VALUE_ARTICLES)
        for other in state.get_free_values()
        if other.kind is ValueKind.ID and not other.denied
    )


def _is_only_mentioned_option(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """Return whether the mention is for this parameter, and none of its other options has the same role."""
    others = any(
        other.kind is ValueKind.OPTION
        and other.reading != value.reading
        and other.reading in slot.options
        and not other.denied
        and (slot.role is None or other.role is value.role)
        for other in state.values
    )
    return not others and is_option_for_slot(slot, value, state.text)


def _fits_other_slot(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """Return whether the value also fits another open parameter. Required ones precede optional ones."""
    return any(
        other.required >= slot.required
        and _is_value_eligible(state, other, value)
        and convert_value(other, value) is not None
        for other in state.get_open_slots()
        if other.name != slot.name
    )


def _assign_in_order(state: FillState) -> None:
    """Assign two joined numbers ("add 5 and 7") to two parameters named first and second."""
    numbers = [value for value in state.get_free_values() if value.kind is ValueKind.NUMBER]
    wanted = [slot for slot in state.get_open_slots() if slot.required and slot.is_number]
    if len(numbers) != 2 or len(wanted) != 2 or not _are_ordered(wanted):
        return
    if _OPERATOR_BETWEEN.match(state.text[numbers[0].end : numbers[1].start]) is None:
        return
    made = [convert_value(slot, value) for slot, value in zip(wanted, numbers, strict=True)]
    if None in made:
        return
    for slot, value, argument in zip(wanted, numbers, made, strict=True):
        reason = f"{value.text} stands where {slot.name} stands in order"
        state.assign(slot, argument, reason, (value.start, value.end))


def _are_ordered(wanted: list[ParameterSlot]) -> bool:
    if " ".join(slot.name.lower() for slot in wanted) in _ORDERED_NAMES:
        return True
    return "first" in wanted[0].description_words and "second" in wanted[1].description_words


_BETWEEN_TIME_AND_PLACE = prepare_re(r",? (?:in |at |time in |o'clock in )?", re.IGNORECASE)


def _assign_zones_by_time(state: FillState) -> None:
    """Assign two zones if one follows a time: "when it is 18:00 in Rome, what time is it in Oslo?"."""
    slots = {slot.role: slot for slot in state.get_open_slots() if ValueKind.ZONE in slot.kinds}
    zones = [value for value in state.get_free_values() if value.kind is ValueKind.ZONE]
    times = [value for value in state.get_free_values() if value.kind is ValueKind.TIME]
    if {*slots} != {ValueRole.FROM, ValueRole.TO} or len(zones) != 2 or len(times) != 1:
        return
    near = [zone for zone in zones if zone.start >= times[0].end
        and _BETWEEN_TIME_AND_PLACE.fullmatch(state.text[times[0].end : zone.start])]  # fmt: skip
    if len(near) != 1 or near[0].role is ValueRole.TO or any(zone.denied for zone in zones):
        return
    other = next(zone for zone in zones if zone is not near[0])
    for role, zone in ((ValueRole.FROM, near[0]), (ValueRole.TO, other)):
        reason = f'"{zone.text}" is {"" if role is ValueRole.FROM else "not "}where it is {times[0].text}'
        state.assign(slots[role], zone.reading, reason, (zone.start, zone.end))


_LINE_RANGE = prepare_re(r"\blines? (\d{1,9}) ?(?:to|through|until|-|–) ?(\d{1,9})\b", re.IGNORECASE)


def _assign_line_range(state: FillState) -> None:
    """Assign the first and the last line of "lines 5 to 20"."""
    slots = {slot.words: slot for slot in state.get_open_slots() if slot.is_number}
    first, last = slots.get(("start", "line")), slots.get(("end", "line"))
    found = _LINE_RANGE.search(state.text)
    if found is not None and first is not None and last is not None:
        state.assign(first, int(found[1]), "the request names the lines", found.span(1))
        state.assign(last, int(found[2]), "the request names the lines", found.span(2))


_CALLED_PATH = prepare_re(
    r"\b(?:file|folder|directory) (?:called|named) [\"'`]?(?P<name>[^\s,;\"'`?!]{1,100})", re.IGNORECASE
)


def _assign_path_by_name(state: FillState) -> None:
    """Assign a name to the only required path: the file "Makefile", a folder called reports."""
    needed = [slot for slot in state.get_open_slots() if slot.required]
    texts = [value for value in state.get_free_values() if value.kind is ValueKind.TEXT]
    slot = needed[0] if len(needed) == 1 else None
    if slot is None or ValueKind.PATH not in slot.kinds or slot.parameter.is_list or takes_repository(slot):
        return
    named = texts[0] if len(texts) == 1 and " " not in texts[0].text and not texts[0].denied else None
    if named is not None:
        state.assign(slot, named.text, f'"{named.text}" is the only path', (named.start, named.end))
    elif (called := _CALLED_PATH.search(state.text)) is not None:
        reason = "the request says what it is called"
        state.assign(slot, called["name"].rstrip("."), reason, called.span("name"))


MAX_PHRASE_LENGTH: Final = 200

_SEARCH_FOR = prepare_re(
    r"\b(?:(?:search|searching|look|looking|query|lookup)\b(?P<where>[^\n.?!]{0,60}?) (?:for|about|on)"
    r"|find\b[^\n.?!]{0,60}? about) "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_ABOUT = prepare_re(
    r"\b(?:say|says|know|have|anything|something|information|info|notes?|pages?|mention|mentions"
    r"|write|wrote|written|remember|decided?|noted|recorded) (?:down )?(?:about|on) "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_MENTIONING = prepare_re(
    r"\b(?:which|what|find|show me|list)\b[^\n.?!]{0,30}?\b(?:files?|notes?|documents?|pages?|places)\b"
    r"(?: (?:that|which|where))? (?:mentions?|contains?|speaks? of|refers? to) (?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_WHERE = prepare_re(
    r"^\W{0,5}where (?:is|are|was|were) (?P<what>[^\n?]{2,200}?) "
    r"(?:described|documented|explained|written(?: down)?|noted|recorded|mentioned)\b",
    re.IGNORECASE,
)
_SEARCH_HEBREW = prepare_re(
    r"(?:^|\s)(?:חפשי?|תחפשי?|לחפש|מצאי?|תמצאי?|למצוא)(?P<where>[^\n.?!]{0,60}?)"
    r" (?:על|אחר|את) (?P<what>[^\n]{2,300})"
    r"|(?:^|\s)(?:כתבתי|כתבנו|רשמתי|רשמנו|החלטנו|סיכמנו|תיעדנו) על (?P<topic>[^\n]{2,300})"
)
_PHRASE_LEAD = prepare_re(
    r"^(?:the )?(?:information|info|anything|everything|something|details|מידע|משהו) (?:about|on|על) "
)
_TAIL_END = prepare_re(r"[\s,]{1,3}(?:please|thanks|thank you|בבקשה|תודה)[.!?]{0,3}$", re.IGNORECASE)
_PLACE_SUFFIX = prepare_re(
    r"^(?P<what>.{2,200}) (?:in|from|on|inside|within) (?:my|the|our) (?P<place>[\w ]{2,40})$"
)
_FURTHER_CLAUSE = prepare_re(
    r"(?:,|\band\b|\bthen\b|;)\s{1,2}(?:then |also )?"
    r"(?:send|email|e-mail|mail|delete|remove|save|write|tell|show|open"
    r"|give|make|create|summari[sz]e|translate|read|print|list|put|add|copy|move|post|explain|compare|sort|count|let"
    r"|book|call|remind|update|store)\b|\b(?:then|afterwards)\b|(?:^|\s)ו(?:אז|שלח|תשלח|מחק|תמחק)",
    re.IGNORECASE,
)
_EMPTY_PHRASES: Final = get_words("empty_phrases")
_DANGLING_WORDS = prepare_re(
    r"[\s,]{1,3}(?:from|with|by|since|before|after|until|in|at|of|and|the|limit|to|for|only|as)$"
)
_COUNTED_PHRASE = prepare_re(
    r"^\d{1,5} |\b(?:limit|max|top|most|first|last)(?: to| of)? \d"
    r"|\b\d{1,5} (?:results|items|hits|entries)\b",
    re.IGNORECASE,
)
_THING_KINDS: Final = frozenset({ValueKind.PATH, ValueKind.URL, ValueKind.EMAIL, ValueKind.PATTERN})


def assign_search_phrase(state: FillState, card: ToolCard, patterns: tuple[re.Pattern[str], ...]) -> None:
    """Assign the words to search for, if the tool's only required text parameter is its search query."""
    needed = [slot for slot in state.slots if slot.required and slot.parameter.shape.type == "string"]
    if len(needed) != 1 or needed[0].name in state.assigned or not is_search(card, needed[0]):
        return
    slot = needed[0]
    found = next((match for pattern in patterns if (match := pattern.search(state.text))), None)
    if found is None:
        return
    group = "topic" if found.groupdict().get("topic") else "what"
    start = found.start(group)
    phrase = _cut_at_used_span(state, start, found[group])
    phrase = _clean_phrase(phrase, card) if phrase is not None else None
    if (
        phrase is None
        # A date in "mail from last week" is a condition.
        or any(
            value.kind in (ValueKind.DATE, ValueKind.MOMENT) and start <= value.start < start + len(phrase)
            for value in state.values
        )
        or any(value.kind in _THING_KINDS and value.text != phrase for value in state.get_free_values())
    ):
        return
    position = state.text.find(phrase, found.start())
    reason = f'the request asks to search for "{phrase}"'
    state.assign(slot, phrase, reason, (position, position + len(phrase)))


def _cut_at_used_span(state: FillState, start: int, text: str) -> str | None:
    """Return the phrase up to a span that another parameter uses. Return None when words follow that span."""
    inside = sorted(span for span in state.iterate_used_spans() if start <= span[0] < start + len(text))
    if not inside:
        return text
    behind = text[max(last for _, last in inside) - start :]
    if re.search(r"[^\W_]", behind):
        return None
    text = text[: inside[0][0] - start].rstrip(" ,\"'`")
    for _ in range(3):
        text = _DANGLING_WORDS.sub("", text).rstrip(" ,")
    return text


def _clean_phrase(text: str, card: ToolCard) -> str | None:
    text = _TAIL_END.sub("", text.strip()).rstrip(" ?.!,")
    if len(text) > 2 and (quoted := _QUOTED.fullmatch(text)) is not None:
        return next(filter(None, quoted.groups()))
    text = _PHRASE_LEAD.sub("", text)
    if _FURTHER_CLAUSE.search(text) or _COUNTED_PHRASE.search(text):
        return None
    if placed := _PLACE_SUFFIX.match(text):
        known = set(map(to_singular, split_words(f"{card.name} {card.server} {card.description[:200]}")))
        if known.isdisjoint(map(to_singular, split_words(placed["place"]))):
            return None
        text = placed["what"]
    low = text.lower()
    if not 2 <= len(text) <= MAX_PHRASE_LENGTH or {low, low.split()[0]} & _EMPTY_PHRASES:
        return None
    return text if (text.count('"') % 2 == 0 and "`" not in text) else None


_LOCAL_ZONE_NOTE = prepare_re(r"[Uu]se '([A-Za-z_/+-]{3,50})' as local time ?zone")
_SPOKEN_WORD = prepare_re(r"[^\W_]+(?:['’][^\W_]+)*")
# A request with only these words asks for the local time.
_TIME_WORDS: Final = get_words("time_words")


@frozen
class FilledArguments:
    """The certain arguments, the missing ones, and the reasons."""

    arguments: JsonObject = field(default_factory=dict[str, Json])
    missing: tuple[MissingArgument, ...] = ()  # required, in schema order
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    unused_entities: tuple[Entity, ...] = ()  # entities of the request that no argument uses
    excluded_count: int = 0  # number of values the request excludes
    operation: str = ""  # that the request orders, of a tool with several

    @property
    def is_complete(self) -> bool:
        return not self.missing


def fill_arguments(
    card: ToolCard,
    text: str,
    signals: Signals,
    *,
    today: date,
    zone: str | None = None,
    need: str | None = None,
    paths: ServerPaths | None = None,
) -> FilledArguments:
    """Fill the arguments of one tool with the values the request states for certain.

    `need` is the part of the request for this tool, when the request asks for several things. `zone` is the
    person's time zone. `paths` are the directories and repositories of the tool's server: the only one there
    is stands for one that the request does not name.
    """
    request = (need or text)[:MAX_REQUEST_LENGTH]
    slots = build_slots(card)
    found = extract_values(request, signals, today)
    values = (*found, *find_option_values(request, slots, found))
    ordered = tuple(sorted(values, key=lambda value: value.start))
    state = FillState(text=request, slots=slots, values=ordered)
    assign_arguments(state, card)
    _assign_local_zone(state, zone)
    _assign_paths(state, card, paths or ServerPaths())
    if card.effect.value is Effect.READ:
        _assign_everything(state)
        _assign_single_count(state, signals)
    return build_filled_arguments(state, signals)


_ORDER_LEAD: Final = r"^\W{0,5}(?:(?:and|then|please|can you|could you|now) ){0,3}"
_OPERATION_NAMES: Final = parse_word_set("operation action op")
_MIN_OPERATIONS: Final = 3
_LISTING: Final = (
    r"(?:list|show(?: me)?|what|which)\b[^\"'?]{0,30}\b(?:files|folders?|director(?:y|ies))\b"
    r"(?![^?]*\b(?:mention|contain|match|about|with|named|called|changed|matching))"
)
# How a request orders an operation on files, and the verbs of tools for it.
_FILE_ORDERS: Final = tuple(
    (prepare_re(_ORDER_LEAD + order, re.IGNORECASE), parse_word_set(verbs))
    for order, verbs in (
        (r"(?:delete|remove|erase)\b", "delete remove rm"),
        (r"(?:rename|move)\b", "rename move mv"),
        (r"(?:copy|duplicate)\b", "copy cp"),
        (r"append\b", "append"),
        (_LISTING, "list ls"),
    )
)
_LISTED_FOR: Final = prepare_re(r"^(?P<names>[\w-]{2,40}(?:, [\w-]{2,40}){0,9}):")
_WRITTEN_TEXT_NAMES: Final = parse_word_set("content text")


def _assign_operation(state: FillState) -> None:
    """Assign the operation on a file that the request orders, and keep only the parameters it takes."""
    slot = next((slot for slot in state.slots if _selects_operation(slot)), None)
    verbs = next((verbs for order, verbs in _FILE_ORDERS if order.match(state.text)), None)
    if slot is None or verbs is None:
        return
    lists = "list" in verbs
    fitting = [option for option in slot.options if verbs & {*split_words(option)[:1]}]
    if len(fitting) != 1:
        return
    state.assign(slot, fitting[0], f"the request orders {fitting[0]}", is_named=True)
    state.operation = fitting[0]
    taken = tuple(one for one in state.slots if _takes_operation(one, slot, fitting[0]))
    if not lists:
        texts = _WRITTEN_TEXT_NAMES if "append" in verbs else frozenset[str]()
        taken = tuple(_require(one, taken, texts) for one in taken)
    state.slots = taken


def _selects_operation(slot: ParameterSlot) -> bool:
    return (
        slot.required
        and slot.words[-1:] != ()
        and slot.words[-1] in _OPERATION_NAMES
        and (len(slot.options) >= _MIN_OPERATIONS)
    )


def _takes_operation(slot: ParameterSlot, selector: ParameterSlot, operation: str) -> bool:
    """Return whether the parameter is for this operation: "rename_file, copy_file: the new name"."""
    found = _LISTED_FOR.match(slot.parameter.description)
    named = found["names"].split(", ") if found is not None else []
    return operation in named or not set(named) & set(selector.options)


def _require(slot: ParameterSlot, slots: tuple[ParameterSlot, ...], texts: frozenset[str]) -> ParameterSlot:
    """Return the slot as required if it takes a path or the text to write. `path` comes before `new_path`."""
    if ValueKind.PATH not in slot.kinds and not texts & set(slot.words):
        return slot
    names = {one.name for one in slots}
    role = ValueRole.FROM if f"new_{slot.name}" in names else slot.role
    if slot.name.startswith("new_"):
        role = ValueRole.TO
    return replace(slot, parameter=replace(slot.parameter, required=True), role=role)


def assign_arguments(state: FillState, card: ToolCard) -> None:
    """Assign every certain argument, the most explicit ones first."""
    reserve_secrets(state)
    _assign_operation(state)
    assign_named(state)
    assign_switches(state)
    assign_search_phrase(state, card, (_SEARCH_MENTIONING,))
    _assign_zones_by_time(state)
    _assign_line_range(state)
    assign_unique_matches(state)
    drop_partial_groups(state)
    _assign_path_by_name(state)
    assign_search_phrase(state, card, (_SEARCH_WHERE, _SEARCH_HEBREW, _SEARCH_FOR, _SEARCH_ABOUT))


def _assign_local_zone(state: FillState, zone: str | None) -> None:
    """Assign the person's time zone, if the tool requires one and the request names no place."""
    for slot in state.get_open_slots():
        local = _LOCAL_ZONE_NOTE.search(slot.parameter.description)
        allowed = local is not None or "local" in slot.words
        if ValueKind.ZONE not in slot.kinds or not slot.required or not allowed or _may_name_place(state):
            continue
        own = zone or (local[1] if local is not None else None)
        if own in ZONES:
            state.assign(slot, own, "no place is named: the local time zone")
            return


_NAMED_FOLDER: Final = (
    prepare_re(r"\b(?:folder|directory|dir)\s[\"'`]?(?P<name>[\w.-]{2,80})", re.IGNORECASE),
    prepare_re(r"\b(?P<name>[\w.-]{2,80})[\"'`]? (?:folder|directory)\b", re.IGNORECASE),
)
_ANY_FOLDER: Final = parse_word_set(
    "current working whole entire same local project workspace root main home allowed"
    " name size tree content listing structure file here now"
)


def _assign_paths(state: FillState, card: ToolCard, paths: ServerPaths) -> None:
    """Assign the only repository or directory of the server where the request names none."""
    if any(value.kind is ValueKind.PATH for value in state.get_free_values()):
        return
    for slot in state.get_open_slots():
        if not slot.required:
            continue
        if takes_repository(slot):
            known = paths.repositories
        elif card.effect.value is Effect.READ and takes_directory(card, slot):
            if (named := _find_named_folder(state, slot)) is not None:
                folder = state.text[slice(*named)]
                state.assign(slot, folder, f'the request names the folder "{folder}"', named)
                continue
            known = paths.directories
        else:
            continue
        if len(known) == 1:
            state.assign(slot, known[0].path, f"the request names none: {known[0].source}")


def _find_named_folder(state: FillState, slot: ParameterSlot) -> Span | None:
    """Return the span of "notes" in "the folder notes" and "the notes folder"."""
    common = STOP_WORDS | _ANY_FOLDER | slot.tool_words
    for found in chain.from_iterable(pattern.finditer(state.text) for pattern in _NAMED_FOLDER):
        word = found["name"].lower()
        if not {word, to_singular(word)} & common and state.is_free(*found.span("name")):
            return found.span("name")
    return None


def _assign_everything(state: FillState) -> None:
    """Assign "all" to a required choice that the request leaves open."""
    for slot in state.get_open_slots():
        mentioned = any(value.kind is ValueKind.OPTION for value in state.get_free_values())
        if slot.required and "all" in slot.options and not mentioned:
            state.assign(slot, "all", f"the request does not say which {slot.name}: all")


_SINGLE_LAST = prepare_re(r"\b(?:latest|last|newest|most recent) (?P<noun>[a-z]{3,30})\b", re.IGNORECASE)


_SINGLE_LAST_HEBREW = prepare_re(r"(?<![א-ת])(?P<noun>ה[א-ת]{3,20}) האחרו(?:ן|נה)(?![א-ת])")


def _assign_single_count(state: FillState, signals: Signals) -> None:
    """Assign 1 to a limit if the request asks for the last one: "the latest commit"."""
    found = _SINGLE_LAST.search(state.text) or _SINGLE_LAST_HEBREW.search(state.text)
    if found is None:
        return
    noun = found["noun"].lower()
    nouns = {noun} if noun.isascii() else {*signals.gloss.split()}
    if to_singular(noun) != noun:
        return
    for slot in state.get_open_slots():
        if slot.is_number and takes_count(slot) and nouns & slot.tool_words:
            state.assign(slot, 1, f'the request asks for the "{found.group()}"', found.span())


def _may_name_place(state: FillState) -> bool:
    """Return whether the unused words may name a place."""
    rest = list(state.text)
    for start, end in state.iterate_used_spans():
        rest[start:end] = " " * (end - start)
    return any(word.lower() not in _TIME_WORDS for word in _SPOKEN_WORD.findall("".join(rest)))


def build_filled_arguments(state: FillState, signals: Signals) -> FilledArguments:
    """Return the assigned arguments and the missing ones."""
    missing = tuple(
        MissingArgument(
            name=slot.name,
            description=" ".join(slot.parameter.description.split())[:300],
            options=slot.options,
        )
        for slot in state.slots
        if slot.required and slot.name not in state.assigned
    )
    denied = {value.start for value in state.values if value.denied}
    return FilledArguments(
        arguments={name: taken.argument for name, taken in state.assigned.items()},
        missing=missing,
        reasons={name: taken.reason for name, taken in state.assigned.items()},
        unused_entities=tuple(
            entity
            for entity, start in locate_entities(state.text, signals.entities)
            if start not in denied and state.is_free(start, start + len(entity.text))
        ),
        operation=state.operation,
        excluded_count=len(
            {value.start for value in state.values if value.denied and value.kind is not ValueKind.OPTION}
        ),
    )
