"""Which of the offered tools may be taken without a model to choose.

The request itself has to say it: by naming the tool, by holding exactly what one
tool needs and no other, or by standing clearly nearer to one than to the next.
Otherwise the person is asked which one is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from itertools import islice
from typing import Final

from fingerpost.catalog.words import singular, words
from fingerpost.choose.certain.asking import confirm_tool, which_tool
from fingerpost.choose.certain.fill import Filled, fill
from fingerpost.frozen import frozen
from fingerpost.records import (
    Candidate,
    Effect,
    EntityKind,
    Narrowing,
    NeedVerdict,
    Question,
    ToolCard,
)

LEAST_FIT: Final = 0.25  # below it there is probably no suitable tool at all
SURE_FIT: Final = 0.7  # above it a tool is used even where a model could have done without
ASKING_FIT: Final = 0.5  # below it nobody is asked for a tool's arguments
ALMOST_AS_NEAR: Final = 0.8  # of the best score: a tool whose arguments are all there goes before it
CLEARLY_BETTER: Final = 1.15  # times the score of the next
CLEARLY_BETTER_TO_READ: Final = 1.1  # for a read with all its values: a wrong one does no harm
NEAR_ENOUGH: Final = (
    0.55  # of the best score: further behind, filling its arguments does not make a tool right
)
MOST_OPTIONS: Final = 4

NOT_MEANT: Final = "no tool here seems to be meant for it"

# What a request names outright. A tool that has no place for it answers another request.
_SOLID: Final = frozenset(
    {EntityKind.PATH, EntityKind.URL, EntityKind.EMAIL, EntityKind.ID, EntityKind.QUOTED, EntityKind.TIME}
)
_QUALIFIED = re.compile(r"(?<![\w/.:-])([A-Za-z][\w-]{0,63})(?:/|__)([A-Za-z][\w-]{0,127})(?![\w/-])")
_DEPRECATED = re.compile(r"\bdeprecated\b", re.IGNORECASE)
_MEDIA_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|mp[34]|wav|flac|ogg|mov|avi|mkv|webm)$", re.IGNORECASE
)
_FILE = re.compile(r"[^./]\.[a-z][a-z0-9]{0,4}$", re.IGNORECASE)
_FOLDERS: Final = frozenset({"directory", "folder", "dir"})
_MEDIA: Final = frozenset({"media", "image", "audio", "video", "picture", "photo"})


@frozen
class Option:
    """One offered tool and what the request says for its arguments."""

    card: ToolCard
    filled: Filled
    score: float

    @property
    def unused(self) -> int:
        """How many things the request names outright this tool would leave aside."""
        return sum(1 for entity in self.filled.leftover if entity.kind in _SOLID)

    @property
    def is_sure(self) -> bool:
        """Whether the request itself gives every argument; a tool without any is not made sure by that."""
        return self.filled.complete and bool(self.filled.arguments)


@frozen
class Certain:
    """The tool to take, or the question to ask; and why."""

    option: Option | None
    reason: str
    alternatives: tuple[Option, ...] = ()
    question: Question | None = None  # which tool is meant; what is missing for a chosen one is asked apart

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
) -> Certain:
    """The tool that is certainly meant for one need of the request; `cards` are those offered, by key."""
    options = _options(narrowing, cards, text, today, zone, need)
    if namesakes := _namesakes(text, options):
        reason = "the request names a tool of a server that is not here"
        return _ask_which(namesakes, reason, narrowing.signals.language)
    if narrowing.need.verdict is NeedVerdict.NONE:
        return _anyway(options, narrowing)
    if not options:
        return Certain(option=None, reason="no tool is offered for it")
    if (named := _named(narrowing, options)) is not None:
        rest = tuple(option for option in options if option is not named)
        return Certain(option=named, reason="the request names this tool", alternatives=rest)
    if narrowing.shortlist.fit < LEAST_FIT:
        return Certain(option=None, reason=NOT_MEANT, alternatives=options)
    part = narrowing.shortlist.needs[need] if need < len(narrowing.shortlist.needs) else text
    if _orders_change(part) and all(option.card.effect.value is Effect.READ for option in options):
        return Certain(option=None, reason="every offered tool only reads", alternatives=options)
    if need and _is_for_model(part, options):
        return Certain(option=None, reason="a language model has to do it", alternatives=options)
    asked = _of_the_asked_kind(options) if narrowing.signals.asks else options
    return _chosen(asked, narrowing.shortlist.fit, narrowing.signals.language, text)


def _options(
    narrowing: Narrowing,
    cards: Mapping[str, ToolCard],
    text: str,
    today: date,
    zone: str | None,
    need: int,
) -> tuple[Option, ...]:
    needs = narrowing.shortlist.needs
    part = needs[need] if len(needs) > 1 and need < len(needs) else None
    return tuple(
        Option(
            card=cards[candidate.tool],
            filled=fill(cards[candidate.tool], text, narrowing.signals, today=today, zone=zone, need=part),
            score=candidate.score,
        )
        for candidate in narrowing.shortlist.offered
        if candidate.tool in cards and _serves(candidate, need, needs)
    )


def _serves(candidate: Candidate, need: int, needs: tuple[str, ...]) -> bool:
    return len(needs) < 2 or candidate.need == need


def _named(narrowing: Narrowing, options: tuple[Option, ...]) -> Option | None:
    """The one offered tool the request mentions by its name."""
    mentioned = {mention.name for mention in narrowing.signals.mentions if mention.kind == "tool"}
    named = [option for option in options if option.card.key in mentioned]
    return named[0] if len(named) == 1 else None


def _namesakes(text: str, options: tuple[Option, ...]) -> list[Option]:
    """Tools called like one that the request names together with its server, which has none of that name."""
    named = {
        (match[1].casefold(), match[2].casefold()) for match in islice(_QUALIFIED.finditer(text[:4000]), 100)
    }
    known = {(option.card.server.casefold(), option.card.name.casefold()): option for option in options}
    if not named.isdisjoint(known):
        return []
    wanted = {name for _, name in named if "_" in name or "-" in name}  # `docs/fetch` may be a file
    return [option for (_, name), option in known.items() if name in wanted]


def _anyway(options: tuple[Option, ...], narrowing: Narrowing) -> Certain:
    """A model alone would do, and there is none: a tool that surely can, and only reads, is better."""
    best = _best(_fitting(list(options)))[0] if options else None
    sure = best is not None and best.is_sure and narrowing.shortlist.fit >= SURE_FIT
    if not sure or best is None or best.card.effect.value is not Effect.READ:
        return Certain(option=None, reason="the request needs no tool")
    return Certain(option=best, reason="without a model, this tool can answer it")


_LEAD: Final = r"^\W{0,5}(?:and |then |please |can you |could you ){0,3}"
_ORDERS: Final = re.compile(
    rf"{_LEAD}"
    r"(?:(?:delete|remove|erase|rename|move|overwrite|send)\b|ו?ת?מחקי?(?!\w)|ו?ת?שלחי?(?!\w))",
    re.IGNORECASE,
)
_WORDING: Final = re.compile(
    rf"{_LEAD}"
    r"(?P<verb>(?:translate|summari[sz]e|explain|rewrite|rephrase|paraphrase|proofread|shorten|simplify)\b"
    r"|ו?ת(?:רגם|רגמי|סכם|סכמי|סביר|סבירי)(?!\w)|ו?(?:סכם|סכמי|הסבר|הסבירי)(?!\w))",
    re.IGNORECASE,
)


def _orders_change(text: str) -> bool:
    """It begins with an order to change something: a tool that only reads cannot do it."""
    return _ORDERS.match(text[:2000]) is not None


def _is_for_model(part: str, options: tuple[Option, ...]) -> bool:
    """It orders something done with text that is already there, and no offered tool does that to a text."""
    order = _WORDING.match(part[:2000])
    if order is None or not all(option.filled.missing for option in options):
        return False
    verb = order["verb"][:5].casefold()
    return not any(verb in f"{option.card.name} {option.card.description}".casefold() for option in options)


def _of_the_asked_kind(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """A request that only asks ("what is in …", "show me …") is for a tool that reads, if there is one."""
    return tuple(option for option in options if option.card.effect.value is Effect.READ) or options


def _chosen(options: tuple[Option, ...], fit: float, language: str, text: str) -> Certain:
    near = [option for option in options if option.score >= NEAR_ENOUGH * options[0].score]
    kept = _fitting(near)
    chosen, reason = _best(kept)
    if chosen is None and (said := _said(kept, text)) is not None:
        chosen, reason = said, "the request says what this tool is called"
    if chosen is None:
        return _ask_which(kept or near, reason, language)
    if chosen.unused or (not chosen.filled.arguments and (chosen.filled.leftover or chosen.filled.denied)):
        return _ask_which(near, "no offered tool takes all that the request names", language)
    if not chosen.filled.complete and fit < ASKING_FIT:
        return Certain(option=None, reason=NOT_MEANT, alternatives=options)
    if chosen.card.effect.value is Effect.DESTROY:
        return _confirm(chosen, near, language)
    rest = tuple(option for option in options if option is not chosen)
    return Certain(option=chosen, reason=reason, alternatives=rest)


def _confirm(chosen: Option, near: list[Option], language: str) -> Certain:
    reason = "it may destroy something, and the request does not name the tool"
    if not chosen.filled.complete:
        return _ask_which(near, reason, language)
    question = confirm_tool(chosen.card, language)
    return Certain(option=None, reason=reason, alternatives=(chosen,), question=question)


def _ask_which(options: list[Option], reason: str, language: str) -> Certain:
    few = tuple(options[:MOST_OPTIONS])
    question = which_tool(tuple(option.card for option in few), language)
    return Certain(option=None, reason=reason, alternatives=few, question=question)


def _fitting(options: list[Option]) -> list[Option]:
    """Those that use the most of what the request names and, of what does the same, what is complete."""
    least = min(option.unused for option in options)
    kept = [option for option in options if option.unused == least and _suits_files(option)]
    kept = [option for option in kept if not _DEPRECATED.search(option.card.description[:300])] or kept
    if not kept:
        return []
    # Reading something is no answer to a wish to change it, however complete: only like goes before like.
    effect = kept[0].card.effect.value
    complete = [option for option in kept if option.is_sure and option.card.effect.value is effect]
    if complete and complete[0].score >= ALMOST_AS_NEAR * kept[0].score:
        kept = complete
    return [option for option in kept if not _wraps_one(option)] or kept


def _best(kept: list[Option]) -> tuple[Option | None, str]:
    if not kept:
        return None, "no offered tool takes what the request names"
    if len(kept) == 1:
        return kept[0], "only this tool takes what the request says"
    reads = kept[0].is_sure and kept[0].card.effect.value is Effect.READ
    if kept[0].score >= (CLEARLY_BETTER_TO_READ if reads else CLEARLY_BETTER) * kept[1].score:
        return kept[0], "it stands clearly nearer to the request than the next"
    return None, "several tools would do"


def _said(kept: list[Option], text: str) -> Option | None:
    """The one tool, nearest besides, all of whose name's words the request says: "run the tests"."""
    spoken = {singular(word) for word in words(text[:2000])}
    said = [option for option in kept if len(named := words(option.card.name)) > 1 and
            all(singular(word) in spoken for word in named)]  # fmt: skip
    return said[0] if said == kept[:1] else None


def _suits_files(option: Option) -> bool:
    """A tool for pictures and sound reads no text, nor one for text a picture, nor one for folders a file."""
    said = {*words(option.card.name)}
    named = [value for value in option.filled.arguments.values() if isinstance(value, str) and "." in value]
    media = any(_MEDIA_FILE.search(value[-20:]) for value in named)
    if said & _MEDIA:
        return media or not named
    if said & _FOLDERS and "file" not in said and any(_FILE.search(value[-20:]) for value in named):
        return False
    return not (media and "text" in said)


def _wraps_one(option: Option) -> bool:
    """Whether it takes a list and the request names one thing."""
    return any(isinstance(value, list) and len(value) == 1 for value in option.filled.arguments.values())
