"""Choose a tool without a model, build the question for the person, and parse the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from itertools import islice, pairwise
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, to_singular
from fingerpost.choose.keyless.arguments import (
    FilledArguments,
    FillState,
    assign_arguments,
    build_filled_arguments,
    fill_arguments,
    find_option_values,
)
from fingerpost.choose.keyless.extraction import MAX_REQUEST_LENGTH, extract_values
from fingerpost.choose.keyless.parameters import (
    ParameterSlot,
    build_slots,
    convert_value,
    parse_bare_number,
    takes_directory,
    takes_repository,
)
from fingerpost.choose.keyless.tables import ORDINARY_WORDS, get_example, get_noun, get_phrases
from fingerpost.choose.keyless.values import UNPARSED_KINDS, ValueKind
from fingerpost.frozen import frozen
from fingerpost.records import (
    Effect,
    EntityKind,
    Json,
    MissingArgument,
    Narrowing,
    NeedVerdict,
    Question,
    ServerPaths,
    Signals,
    ToolCard,
)
from fingerpost.redaction import scrub
from fingerpost.regex import prepare_re

MAX_DESCRIPTION_LENGTH: Final = 140
MAX_SHOWN_NAME_LENGTH: Final = 70
MAX_SHOWN_VALUES: Final = 12
_INVISIBLE = prepare_re(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_EMPTY_NOUNS: Final = frozenset({"path", "name", "id", "key", "value", "str", "string"})
_SENTENCE_END = prepare_re(r"(?<=[.!?])\s")


def build_missing_question(
    card: ToolCard, missing: tuple[MissingArgument, ...], language: str = "en"
) -> Question:
    """Build one question that names all missing arguments, with their options and an example."""
    phrases = get_phrases(language)
    slots = {slot.name: slot for slot in build_slots(card)}
    tool = to_short_line(card.key)
    if len(missing) == 1:
        name, about, hint = _describe_missing(missing[0], slots.get(missing[0].name), card, phrases)
        detail = f"{name}: {about}{hint}" if about else f"{name}{hint}"
        words = [*split_words(to_short_line(missing[0].name, MAX_SHOWN_NAME_LENGTH))]
        while len(words) > 1 and words[-1] in _EMPTY_NOUNS:
            words.pop()
        noun = " ".join(map(get_noun, words)) or "value"
        text = phrases["one"].format(tool=tool, noun=noun, detail=detail)
    else:
        lines: list[str] = []
        for one in missing:
            name, about, hint = _describe_missing(one, slots.get(one.name), card, phrases)
            lines.append(f"- {name} ({about}){hint}" if about else f"- {name}{hint}")
        text = "\n".join([phrases["many"].format(tool=tool), *lines, phrases["how"]])
    return Question(text=text, tool=card.key, missing=missing)


def build_which_tool_question(cards: tuple[ToolCard, ...], language: str = "en") -> Question:
    """Build the question which of these tools to use."""
    phrases = get_phrases(language)
    lines = [
        f"{number}. {to_short_line(card.key)}: {to_short_line(_get_first_sentence(card.description))}"
        for number, card in enumerate(cards, 1)
    ]
    wanted = MissingArgument(name="tool", options=tuple(card.key for card in cards))
    return Question(text="\n".join([phrases["which"], *lines]), missing=(wanted,))


def to_short_line(text: str, max_length: int = MAX_DESCRIPTION_LENGTH) -> str:
    """Return untrusted text as one short line of whole words, without invisible characters."""
    line = " ".join(_INVISIBLE.sub(" ", scrub(text[:2000])).split())
    if len(line) <= max_length:
        return line
    cut = line[:max_length]
    words = cut.rpartition(" ")[0]
    return f"{(words if len(words) >= max_length // 2 else cut[:-1]).rstrip(' .,;:(')}…"


def _get_first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text[:600].strip(), maxsplit=1)[0]


def _describe_missing(
    missing: MissingArgument, slot: ParameterSlot | None, card: ToolCard, phrases: dict[str, str]
) -> tuple[str, str, str]:
    """Return its name, its description, and what values it takes."""
    name = to_short_line(missing.name, MAX_SHOWN_NAME_LENGTH)
    about = to_short_line(missing.description or "", MAX_DESCRIPTION_LENGTH - len(name))
    if slot is not None and slot.is_secret:
        return name, about, f"; {phrases['secret']}"
    if missing.options:
        options = ", ".join(to_short_line(option) for option in missing.options[:MAX_SHOWN_VALUES])
        return name, about, f", {phrases['options'].format(options=options)}"
    if slot is None or not slot.parameter.shape.type:
        return name, about, f", {phrases['json']}"
    example = _find_example(slot, card)
    return name, about, f", {phrases['example'].format(example=example)}" if example else ""


def _find_example(slot: ParameterSlot, card: ToolCard) -> str:
    """Return an example from the catalog, else one for the kind; nothing if the description has one."""
    written: Json = card.intelligence.parameters.examples.get(slot.name)
    if isinstance(written, str | int | float) and not isinstance(written, bool):
        return to_short_line(str(written))
    if re.search(r"\be\.?g\.|\bfor example\b", slot.parameter.description, re.IGNORECASE):
        return ""
    if slot.parameter.shape.type == "boolean":
        return "yes"
    if slot.is_number:
        return next((str(number) for number in (10, 1, 5, 100) if slot.parameter.shape.accepts(number)), "")
    if takes_repository(slot) or takes_directory(card, slot):
        return get_example("directory")
    return next(filter(None, (get_example(kind.name.lower()) for kind in sorted(slot.kinds))), "")


MIN_FIT: Final = 0.25  # below: probably no tool is suitable
CONFIDENT_FIT: Final = 0.7  # above: use a tool even where a model could answer without one
MIN_FIT_TO_ASK: Final = 0.5  # below: do not ask for a tool's arguments
NEAR_BEST_SHARE: Final = 0.8  # share of the best score from which a tool with all arguments is preferred
CLEAR_LEAD: Final = 1.15  # times the next score
CLEAR_LEAD_TO_READ: Final = 1.1  # for a read-only tool with all arguments: a wrong choice does no harm
RIVAL_SHARE: Final = 0.9  # of the chosen tool's score
MIN_BEST_SHARE: Final = 0.55  # of the best score; a tool below it is not considered
MAX_QUESTION_OPTIONS: Final = 4

_DESTRUCTIVE_REASON: Final = "it can overwrite or delete data, and the request does not name the tool"
_HEBREW: Final = "he"  # its gloss is no sentence, and the rules know its words
NO_PATHS: Final[Mapping[str, ServerPaths]] = {}
NO_SUITABLE_TOOL_REASON: Final = "no offered tool seems suitable"
READS_ONLY_REASON: Final = "every offered tool only reads"
UNSUITABLE_REASONS: Final = frozenset({NO_SUITABLE_TOOL_REASON, READS_ONLY_REASON})

# Values a request names explicitly. A tool that cannot use them does not fit the request.
_EXPLICIT_KINDS: Final = frozenset(
    {EntityKind.PATH, EntityKind.URL, EntityKind.EMAIL, EntityKind.ID, EntityKind.QUOTED, EntityKind.TIME}
)
_QUALIFIED_NAME = prepare_re(r"(?<![\w/.:-])([A-Za-z][\w-]{0,63})(?:/|__)([A-Za-z][\w-]{0,127})(?![\w/-])")
_DEPRECATED = prepare_re(r"\bdeprecated\b", re.IGNORECASE)
_MEDIA_FILE = prepare_re(
    r"\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|mp[34]|wav|flac|ogg|mov|avi|mkv|webm)$", re.IGNORECASE
)
_FILE = prepare_re(r"[^./]\.[a-z][a-z0-9]{0,4}$", re.IGNORECASE)
_FOLDER_WORDS: Final = frozenset({"directory", "folder", "dir"})
_MEDIA_WORDS: Final = frozenset({"media", "image", "audio", "video", "picture", "photo"})


@frozen
class ToolOption:
    """One offered tool and the arguments the request gives for it."""

    card: ToolCard
    filled: FilledArguments
    score: float

    @property
    def unused_count(self) -> int:
        """The number of explicit values of the request that this tool does not use."""
        return sum(1 for entity in self.filled.unused_entities if entity.kind in _EXPLICIT_KINDS)

    @property
    def effect(self) -> Effect:
        """The effect of the call: of the operation that the request orders, else of the tool."""
        operation = self.filled.operation
        return self.card.operations.get(operation, self.card.effect.value)

    @property
    def is_sure(self) -> bool:
        """Whether the request gives every required argument and at least one argument."""
        return self.filled.is_complete and bool(self.filled.arguments)


@frozen
class KeylessChoice:
    """The chosen tool or a question for the person, with the reason."""

    option: ToolOption | None
    reason: str
    alternatives: tuple[ToolOption, ...] = ()
    question: Question | None = None  # asks which tool is meant, not for arguments

    @property
    def card(self) -> ToolCard | None:
        return None if self.option is None else self.option.card


def choose_tool(
    narrowing: Narrowing,
    cards: Mapping[str, ToolCard],
    text: str,
    *,
    today: date,
    zone: str | None = None,
    need: int = 0,
    needs_approval: frozenset[str] = frozenset(),
    paths: Mapping[str, ServerPaths] = NO_PATHS,
) -> KeylessChoice:
    """Choose the tool for one need of the request if it is certain.

    `cards` are the offered tools by key, `paths` the directories and repositories of servers. A destructive
    tool is confirmed first, unless it is in `needs_approval`: then the person is asked about the exact call.
    """
    if narrowing.signals.gloss and narrowing.signals.language != _HEBREW:
        text = narrowing.signals.gloss  # words of an English request, with its names and paths
    options = _build_options(narrowing, cards, text, today, zone, need, paths)
    if namesakes := _find_same_named_options(text, options):
        reason = "the request names a tool that its server does not offer"
        return _build_which_tool_choice(namesakes, reason, narrowing.signals.language)
    if narrowing.need.verdict is NeedVerdict.NONE:
        return _choose_without_need(options, narrowing)
    if not options:
        return KeylessChoice(option=None, reason="no tool is offered for it")
    if (named := _find_named_option(narrowing, options)) is not None:
        return _build_choice(named, options, "the request names this tool")
    if (reader := _find_file_reader(options, narrowing.signals, text)) is not None:
        return _build_choice(reader, options, "it reads the file that the request names")
    needs = narrowing.shortlist.needs
    part = needs[need] if len(needs) > 1 and need < len(needs) else text
    if reason := _find_refusal_reason(options, narrowing, part, need):
        return KeylessChoice(option=None, reason=reason, alternatives=options)
    candidates = _prefer_read_only(options) if narrowing.signals.asks else options
    choice = _choose_option(
        candidates, narrowing.shortlist.fit, narrowing.signals.language, text, asks=narrowing.signals.asks
    )
    chosen = choice.option
    if chosen is None or chosen.effect is not Effect.DESTROY or chosen.card.key in needs_approval:
        return choice
    return _build_confirmation_choice(chosen, narrowing.signals.language)


def _find_refusal_reason(options: tuple[ToolOption, ...], narrowing: Narrowing, part: str, need: int) -> str:
    """Return why none of the tools can do this part of the request, or an empty string."""
    is_ordered = any(option.filled.operation and option.is_sure for option in options)
    fits = narrowing.shortlist.fit >= MIN_FIT or _uses_several_values(options[0], narrowing.signals)
    if not fits and not is_ordered:
        return NO_SUITABLE_TOOL_REASON
    if _FOLDER_ORDER.match(part[:2000]) and not any(map(_creates_folders, options)):
        return NO_SUITABLE_TOOL_REASON
    if (order := _CHANGE_ORDER.match(part[:2000])) is not None:
        if all(option.effect is Effect.READ for option in options):
            return READS_ONLY_REASON
        if order["delete"] and not any(map(_deletes_what_is_named, options)):
            return NO_SUITABLE_TOOL_REASON
    return "a language model has to do it" if need and _is_for_model(part, options) else ""


def _build_options(
    narrowing: Narrowing,
    cards: Mapping[str, ToolCard],
    text: str,
    today: date,
    zone: str | None,
    need: int,
    paths: Mapping[str, ServerPaths],
) -> tuple[ToolOption, ...]:
    needs = narrowing.shortlist.needs
    part = needs[need] if len(needs) > 1 and need < len(needs) else None
    found: list[ToolOption] = []
    for candidate in narrowing.shortlist.offered:
        if (card := cards.get(candidate.tool)) is not None and (len(needs) < 2 or candidate.need == need):
            own = paths.get(card.server, ServerPaths())
            filled = fill_arguments(
                card, text, narrowing.signals, today=today, zone=zone, need=part, paths=own
            )
            found.append(ToolOption(card=card, filled=filled, score=candidate.score))
    return tuple(found)


def _find_named_option(narrowing: Narrowing, options: tuple[ToolOption, ...]) -> ToolOption | None:
    """Return the offered tool that the request mentions by name, if there is exactly one."""
    mentioned = {mention.name for mention in narrowing.signals.mentions if mention.kind == "tool"}
    named = [option for option in options if option.card.key in mentioned]
    return named[0] if len(named) == 1 else None


def _find_same_named_options(text: str, options: tuple[ToolOption, ...]) -> list[ToolOption]:
    """Return tools with the same name as a tool that the request names on a server that does not offer it."""
    matches = islice(_QUALIFIED_NAME.finditer(text[:4000]), 100)
    named = {(match[1].casefold(), match[2].casefold()) for match in matches}
    known = {(option.card.server.casefold(), option.card.name.casefold()): option for option in options}
    if not named.isdisjoint(known):
        return []
    wanted = {name for _, name in named if "_" in name or "-" in name}  # `docs/fetch` may be a file path
    return [option for (_, name), option in known.items() if name in wanted]


def _choose_without_need(options: tuple[ToolOption, ...], narrowing: Narrowing) -> KeylessChoice:
    """Choose for a request that needs no tool: a certain read is better than no answer."""
    best = _pick_best(_keep_best_matches(list(options)))[0] if options else None
    sure = best is not None and best.is_sure and narrowing.shortlist.fit >= CONFIDENT_FIT
    if not sure or best is None or best.effect is not Effect.READ:
        return KeylessChoice(option=None, reason="the request needs no tool")
    return KeylessChoice(option=best, reason="without a model, this tool can answer it")


_REQUEST_LEAD: Final = r"^\W{0,5}(?:and |then |please |can you |could you ){0,3}"
_LEAD: Final = prepare_re(_REQUEST_LEAD, re.IGNORECASE)
_CHANGE_ORDER: Final = prepare_re(
    rf"{_REQUEST_LEAD}"
    r"(?:(?P<delete>(?:delete|remove|erase)\b|ו?ת?מחקי?(?!\w))"
    r"|(?:rename|move|overwrite|send)\b|ו?ת?שלחי?(?!\w))",
    re.IGNORECASE,
)
_TEXT_ORDER: Final = prepare_re(
    rf"{_REQUEST_LEAD}"
    r"(?P<verb>(?:translate|summari[sz]e|explain|rewrite|rephrase|paraphrase|proofread|shorten|simplify)\b"
    r"|ו?ת(?:רגם|רגמי|סכם|סכמי|סביר|סבירי)(?!\w)|ו?(?:סכם|סכמי|הסבר|הסבירי)(?!\w))",
    re.IGNORECASE,
)


_FOLDER_ORDER: Final = prepare_re(
    rf"{_REQUEST_LEAD}(?:create|make|add) (?:me )?(?:an? |the |another )?(?:new |empty )?"
    r"(?:sub)?(?:folder|directory)\b",
    re.IGNORECASE,
)
_FOLDER_CREATION: Final = prepare_re(
    r"\bmkdir\b|\b(?:creates?|makes?|new)\b[^.]{0,30}\b(?:folders?|director(?:y|ies))\b", re.IGNORECASE
)


def _creates_folders(option: ToolOption) -> bool:
    """Return whether the tool says that it creates folders."""
    operations = " ".join(listed for slot in build_slots(option.card) for listed in slot.options)
    named = " ".join((*split_words(option.card.name), ".", *split_words(operations)))
    return any(_FOLDER_CREATION.search(text) for text in (named, option.card.description[:600]))


_DELETE_WORDS: Final = parse_word_set("delete remove erase drop trash unlink rm purge clear destroy discard")


def _deletes_what_is_named(option: ToolOption) -> bool:
    """Return whether the tool deletes something and takes the values of the request."""
    words = (*split_words(option.card.name), *split_words(option.card.description[:400]))
    operations = " ".join(slot_option for slot in build_slots(option.card) for slot_option in slot.options)
    deletes = bool(_DELETE_WORDS & {*map(to_singular, words), *split_words(operations)})
    return deletes and (not option.unused_count or (not option.filled.is_complete and bool(operations)))


_CONTENT_REQUEST: Final = prepare_re(
    rf"{_REQUEST_LEAD}(?:(?:show|open|read|print|display|view|cat)\b"
    r"|what(?:'s| is| does| do| are)\b.*\b(?:says?|contains?|in|inside)\b|תקראי?\b|הראי?\b|תראי?\b)",
    re.IGNORECASE,
)
_READ_WORDS: Final = parse_word_set("read view cat open show content contents text")


def _find_file_reader(options: tuple[ToolOption, ...], signals: Signals, text: str) -> ToolOption | None:
    """Return the tool that reads the one file which the request asks to see."""
    paths = (entity.text for entity in signals.entities if entity.kind is EntityKind.PATH)
    files = list(filter(_FILE.search, paths))
    if len(files) != 1 or not signals.asks or _CONTENT_REQUEST.match(text[:2000]) is None:
        return None
    fitting = [
        option
        for option in options
        if option.is_sure
        and option.effect is Effect.READ
        and not option.unused_count
        and _READ_WORDS & {*split_words(option.card.name)}
        and _accepts_file_types(option)
        and not _wraps_single_value(option)
    ]
    current = [option for option in fitting if not _DEPRECATED.search(option.card.description[:300])]
    return next(iter(current or fitting), None)


def _is_for_model(part: str, options: tuple[ToolOption, ...]) -> bool:
    """Return whether the text asks to process existing text and no offered tool does that."""
    order = _TEXT_ORDER.match(part[:2000])
    if order is None or not all(option.filled.missing for option in options):
        return False
    verb = order["verb"][:5].casefold()
    return not any(verb in f"{option.card.name} {option.card.description}".casefold() for option in options)


def _prefer_read_only(options: tuple[ToolOption, ...]) -> tuple[ToolOption, ...]:
    """Return the read-only tools, or all if there is none, for requests that only ask ("show me …")."""
    return tuple(option for option in options if option.effect is Effect.READ) or options


def _uses_several_values(option: ToolOption, signals: Signals) -> bool:
    """Return whether the tool uses all of several explicit values: its arguments fit, whatever its words."""
    explicit = sum(1 for entity in signals.entities if entity.kind in _EXPLICIT_KINDS)
    return explicit > 1 and option.is_sure and not option.unused_count


def _choose_option(
    options: tuple[ToolOption, ...], fit: float, language: str, text: str, *, asks: bool
) -> KeylessChoice:
    near = [option for option in options if option.score >= MIN_BEST_SHARE * options[0].score]
    kept = _keep_best_matches(near)
    chosen, reason = _pick_best(kept)
    if (named := _find_option_by_name_words(kept if chosen is None else near, text)) is not None:
        chosen, reason = named, "the request contains the words of this tool's name"
    if chosen is None and (closest := _find_closest_read(kept, text)) is not None:
        chosen, reason = closest, "of the tools that read, it has most words of the request"
    if chosen is None:
        return _build_which_tool_choice(kept or near, reason, language)
    if chosen.unused_count or (
        not chosen.filled.arguments and (chosen.filled.unused_entities or chosen.filled.excluded_count)
    ):
        return _build_which_tool_choice(near, "no offered tool takes all that the request names", language)
    if rivals := _find_rivals(chosen, near, asks=asks):
        reason = "one of the suitable tools reads, another one changes something"
        return _build_which_tool_choice([chosen, *rivals], reason, language)
    if not chosen.filled.is_complete and fit < MIN_FIT_TO_ASK:
        return KeylessChoice(option=None, reason=NO_SUITABLE_TOOL_REASON, alternatives=options)
    if chosen.effect is Effect.DESTROY and not (chosen.filled.is_complete or chosen.filled.operation):
        return _build_which_tool_choice(near, _DESTRUCTIVE_REASON, language)
    return _build_choice(chosen, options, reason)


def _build_choice(chosen: ToolOption, options: tuple[ToolOption, ...], reason: str) -> KeylessChoice:
    rest = tuple(option for option in options if option is not chosen)
    return KeylessChoice(option=chosen, reason=reason, alternatives=rest)


def _find_rivals(chosen: ToolOption, near: list[ToolOption], *, asks: bool) -> list[ToolOption]:
    """Return the tools that do the opposite of the chosen one (read or change) and fit about as well.

    A request that only asks changes nothing; an order may mean either.
    """
    reads = chosen.effect is Effect.READ
    if asks:
        return [] if reads else near
    rivals = (option for option in near if reads and option.effect is not Effect.READ)
    return [option for option in rivals if option.is_sure and option.score >= RIVAL_SHARE * chosen.score]


def _build_confirmation_choice(chosen: ToolOption, language: str) -> KeylessChoice:
    phrases = get_phrases(language)
    # `Question.tool` stays empty: the answer chooses the tool and does not fill its arguments.
    wanted = MissingArgument(name="tool", options=(chosen.card.key,))
    text = phrases["confirm"].format(tool=to_short_line(chosen.card.key))
    question = Question(text=text, missing=(wanted,))
    return KeylessChoice(option=None, reason=_DESTRUCTIVE_REASON, alternatives=(chosen,), question=question)


def _build_which_tool_choice(options: list[ToolOption], reason: str, language: str) -> KeylessChoice:
    few = tuple(options[:MAX_QUESTION_OPTIONS])
    question = build_which_tool_question(tuple(option.card for option in few), language)
    return KeylessChoice(option=None, reason=reason, alternatives=few, question=question)


def _keep_best_matches(options: list[ToolOption]) -> list[ToolOption]:
    """Keep the tools that use most explicit values; of those with one effect, prefer complete ones."""
    least = min(option.unused_count for option in options)
    kept = [option for option in options if option.unused_count == least and _accepts_file_types(option)]
    kept = [option for option in kept if not _DEPRECATED.search(option.card.description[:300])] or kept
    if not kept:
        return []
    # A read-only tool is no substitute for a change, so compare only tools with the same effect.
    effect = kept[0].effect
    complete = [option for option in kept if option.is_sure and option.effect is effect]
    if complete and complete[0].score >= NEAR_BEST_SHARE * kept[0].score:
        kept = complete
    return [option for option in kept if not _wraps_single_value(option)] or kept


def _pick_best(kept: list[ToolOption]) -> tuple[ToolOption | None, str]:
    if not kept:
        return None, "no offered tool takes what the request names"
    if len(kept) == 1:
        return kept[0], "only this tool takes what the request says"
    reads = kept[0].is_sure and kept[0].effect is Effect.READ
    if kept[0].score >= (CLEAR_LEAD_TO_READ if reads else CLEAR_LEAD) * kept[1].score:
        return kept[0], "its score is clearly higher than the next tool's"
    return None, "several tools are suitable"


def _find_option_by_name_words(kept: list[ToolOption], text: str) -> ToolOption | None:
    """Return the only tool whose whole name is in the request ("run the tests"), if it takes its values."""
    words = _get_request_words(text)
    least = min((option.unused_count for option in kept), default=0)
    matching = [
        option
        for option in kept
        if option.unused_count == least
        and (_get_own_name(option.card) <= words)
        and (len(_get_own_name(option.card)) > 1 or _starts_with_name(option.card, text))
    ]
    longest = max((len(_get_own_name(option.card)) for option in matching), default=0)
    longest_names = [option for option in matching if len(_get_own_name(option.card)) == longest]
    return longest_names[0] if len(longest_names) == 1 else None


_LOOK_WORDS: Final = parse_word_set("show see look view display print list get give tell find search check")


def _starts_with_name(card: ToolCard, text: str) -> bool:
    """Return whether the request starts with the tool's name: "git status", "check out the branch"."""
    first = [to_singular(word) for word in split_words(_LEAD.sub("", text[:200]))][:3]
    name = _get_own_name(card)
    if first[:1] == [to_singular(word) for word in split_words(card.server)]:
        return "".join(first[1:2]) in name or "".join(first[1:3]) in name
    common = name <= STOP_WORDS | ORDINARY_WORDS | _LOOK_WORDS
    return not common and bool(name & {"".join(first[:1]), "".join(first[:2])})


def _get_own_name(card: ToolCard) -> frozenset[str]:
    """Return the words of the tool's name without those of its server: `git_log` of `git` is "log"."""
    name = frozenset(to_singular(word) for word in split_words(card.name))
    return name - {to_singular(word) for word in split_words(card.server)} or name


_SAME_VERBS: Final = {"execute": "run", "remove": "delete", "display": "show", "make": "create"}


def _get_request_words(text: str) -> frozenset[str]:
    """Return the words of the request, and neighbours as one word: "check out" is also "checkout"."""
    words = [to_singular(word) for word in split_words(text[:2000])]
    same = (_SAME_VERBS[word] for word in words if word in _SAME_VERBS)
    return frozenset((*words, *same, *(first + second for first, second in pairwise(words))))


_RECENT_WORDS: Final = parse_word_set("recent recently latest newest last lately")
_HISTORY_WORDS: Final = parse_word_set("log history recent latest")


def _find_closest_read(kept: list[ToolOption], text: str) -> ToolOption | None:
    """Return the read-only tool with all arguments that has most words of the request and fewest others."""
    ready = [option for option in kept if option.is_sure and option.effect is Effect.READ]
    if len(ready) != len(kept):
        return None
    words = _get_request_words(text) - STOP_WORDS
    if words & _RECENT_WORDS:
        words |= _HISTORY_WORDS

    def rank(option: ToolOption) -> tuple[int, int]:
        name = _get_own_name(option.card)
        about = {to_singular(word) for word in split_words(option.card.description[:200])}
        return len(words & (name | about)), -len(name - words)

    best = max(map(rank, ready))
    closest = [option for option in ready if rank(option) == best]
    return closest[0] if len(closest) == 1 and best[0] else None


def _accepts_file_types(option: ToolOption) -> bool:
    """Return whether the tool fits the files: a media tool reads no text, a folder tool no file."""
    name_words = {*split_words(option.card.name)}
    named = [value for value in option.filled.arguments.values() if isinstance(value, str) and "." in value]
    media = any(_MEDIA_FILE.search(value[-20:]) for value in named)
    if name_words & _MEDIA_WORDS:
        return media or not named
    is_for_folders = bool(name_words & _FOLDER_WORDS) and "file" not in name_words
    if is_for_folders and any(_FILE.search(value[-20:]) for value in named):
        return False
    return not (media and "text" in name_words)


def _wraps_single_value(option: ToolOption) -> bool:
    """Return whether the tool takes a list but the request names one value."""
    return any(isinstance(value, list) and len(value) == 1 for value in option.filled.arguments.values())


MAX_PERSON_ANSWER_LENGTH: Final = 2000
_ANSWER_LEAD: Final = "in "  # "Tokyo" is parsed as "in Tokyo"
_VERBATIM_KINDS: Final = UNPARSED_KINDS | {ValueKind.SQL, ValueKind.EMAIL, ValueKind.URL}
_REFUSALS: Final = parse_word_set("no n none neither cancel stop לא ביטול עזוב די") | {"no thanks", "אף אחד"}
_CONSENTS: Final = parse_word_set("yes y ok okay sure כן בטח אישור") | {"yes please"}
_YES_WORDS: Final = frozenset({"yes", "y", "true", "on", "כן"})
_NO_WORDS: Final = frozenset({"no", "n", "false", "off", "לא"})


def fill_answer(
    card: ToolCard, missing: tuple[MissingArgument, ...], answer: str, signals: Signals, *, today: date
) -> FilledArguments:
    """Fill the requested arguments from the person's answer. What the answer does not give stays missing.

    `signals` are those of the answer.
    """
    names = {one.name for one in missing}
    slots = tuple(slot for slot in build_slots(card) if slot.name in names)
    text = answer.strip()[:MAX_REQUEST_LENGTH]
    if len(slots) == 1 and not slots[0].is_secret:
        state = _match_single_slot(slots[0], text, signals, today)
    else:
        values = extract_values(text, signals, today)
        state = FillState(text=text, slots=slots, values=(*values, *find_option_values(text, slots, values)))
        assign_arguments(state, card)
    return build_filled_arguments(state, signals)


def _match_single_slot(slot: ParameterSlot, answer: str, signals: Signals, today: date) -> FillState:
    text = f"{_ANSWER_LEAD}{answer}"
    values = extract_values(text, signals, today)
    state = FillState(text=text, slots=(slot,), values=(*values, *find_option_values(text, (slot,), values)))
    argument = _use_whole_answer(slot, answer)
    if argument is None:
        found = [made for value in state.values if (made := convert_value(slot, value)) is not None]
        distinct = {repr(made): made for made in found}
        argument = next(iter(distinct.values())) if len(distinct) == 1 else None
    if argument is not None:
        made = [argument] if slot.parameter.is_list else argument
        state.assign(slot, made, "from the person's answer", (0, len(text)))
    return state


def _use_whole_answer(slot: ParameterSlot, text: str) -> Json:
    """Return the whole answer as the argument if it needs no parsing, else None."""
    plain = text.strip().strip("\"'`“”").strip()
    if not plain or len(plain) > MAX_PERSON_ANSWER_LENGTH:
        return None
    kind = slot.parameter.shape.type
    if slot.options:
        return next((option for option in slot.options if option.lower() == plain.lower()), None)
    if kind == "boolean":
        return True if plain.lower() in _YES_WORDS else False if plain.lower() in _NO_WORDS else None
    if kind in ("integer", "number"):
        return parse_bare_number(plain)
    if kind != "string" or not (slot.is_text or slot.kinds <= _VERBATIM_KINDS):
        return None
    # A URL or e-mail address is extracted as a value.
    one_word = slot.kinds & {ValueKind.ID, ValueKind.HOST, ValueKind.REVISION}
    return None if slot.kinds & {ValueKind.EMAIL, ValueKind.URL} or (one_word and " " in plain) else plain


def is_refusal(answer: str) -> bool:
    """Return whether the person declines all options."""
    plain = answer.strip().strip(".!").lower()[:200]
    return plain in _REFUSALS


def pick_option(alternatives: tuple[ToolOption, ...], answer: str) -> ToolOption | None:
    """Return the option for "2", for its name, or for "yes" when there is only one, else None."""
    plain = answer.strip().strip(".!").lower()[:200]
    if plain.isdecimal() and 1 <= int(plain[:4]) <= len(alternatives):
        return alternatives[int(plain[:4]) - 1]
    named = [one for one in alternatives if plain in (one.card.key.lower(), one.card.name.lower())]
    if len(named) == 1:
        return named[0]
    return alternatives[0] if plain in _CONSENTS and len(alternatives) == 1 else None
