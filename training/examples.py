"""What the encoder learns from: a request, a tool it needs, and tools that only look right."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.scorer import ScorerRequest
from fingerpost.records import Signals
from training.encoder import Encoder, Words, encode
from training.sets import Request, RoutingSet, Tool

HARD = 30  # how deep to look for tools that only look right
SAME_TOOL = 0.9  # cosine from which two tools are taken for the same
# The labels of this family hold for the offered list only: likeness counts earlier.
SAME_TOOL_FAMILY_A = 0.75
LONGEST_TEXT = 126
LONGEST_FIELD = 160

_FRAMES = (
    "{}",
    "i need to {}",
    "please {}",
    "can you {}?",
    "help me {}",
    "i want to {}",
    "{} for me",
    "how do i {}?",
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_OPENING = re.compile(r"^(this (tool|endpoint|api|function) (will )?)")


@dataclass(slots=True)
class Fields:
    """A tool's text as token ids, field by field, so that fields can be dropped."""

    server: list[int]
    name: list[int]
    description: list[int]
    names: list[int]
    parameters: list[int]


@dataclass(slots=True)
class Material:
    """One set, tokenised, with the untrained vectors and the hard negatives of every request."""

    source: RoutingSet
    fields: list[Fields]
    texts: list[list[int]]
    requests: list[list[int]]
    vectors: Tensor
    lexical: np.ndarray  # the product's scores by words, requests × tools
    negatives: list[list[int]] = field(default_factory=list)

    @property
    def untrained(self) -> np.ndarray:
        """The untrained vectors where numpy can reach them."""
        if self._untrained is None:
            self._untrained = self.vectors.cpu().numpy()
        return self._untrained

    _untrained: np.ndarray | None = None


class Marks:
    """The token ids between the fields."""

    def __init__(self, words: Words) -> None:
        self.dash, self.colon, self.parameters = words.ids(["-", ":", "Parameters:"])


def assemble(parts: Fields, marks: Marks, rng: random.Random | None = None) -> list[int]:
    """`server - name: description Parameters: …`. With `rng`, some of it is dropped, as in real life."""
    server, name, description = parts.server, parts.name, parts.description
    parameters, longest = parts.parameters, LONGEST_TEXT
    if rng is not None:
        server = [] if rng.random() < 0.25 else server
        chance = rng.random()
        parameters = parameters if chance < 0.6 else (parts.names if chance < 0.8 else [])
        chance = rng.random()
        if chance < 0.08 and len(description) > 4:
            name = []
        elif chance < 0.14 and len(name) > 1:
            description = []
        if rng.random() < 0.25:
            longest = rng.choice((32, 48, 64, 96))
    text = [
        *(server + marks.dash if server else []),
        *(name + marks.colon if name else []),
        *description,
        *(marks.parameters + parameters if parameters else []),
    ]
    return text[:longest]


def prepare(source: RoutingSet, encoder: Encoder, words: Words) -> Material:
    """Tokenise a set and find what only looks right, by the untrained encoder and by words."""
    marks = Marks(words)
    fields = _fields(source.tools, words)
    texts = [assemble(parts, marks) for parts in fields]
    requests = [ids[:LONGEST_TEXT] for ids in words.ids([request.text for request in source.requests])]
    vectors = encode(encoder, texts)
    material = Material(source, fields, texts, requests, vectors, word_scores(source))
    if source.requests:
        material.negatives = _negatives(material, encode(encoder, requests))
    return material


def _fields(tools: Sequence[Tool], words: Words) -> list[Fields]:
    flat = [
        text
        for tool in tools
        for text in (
            tool.text.server,
            tool.text.name,
            tool.text.description,
            tool.parameter_names,
            tool.parameter_texts,
        )
    ]
    ids = [row[:LONGEST_FIELD] if text else [] for row, text in zip(words.ids(flat), flat, strict=True)]
    return [Fields(*ids[start : start + 5]) for start in range(0, len(ids), 5)]


def _negatives(material: Material, request_vectors: Tensor) -> list[list[int]]:
    source = material.source
    hybrid = 0.5 * (request_vectors @ material.vectors.T).cpu().numpy() + 0.5 * material.lexical
    likeness = (material.vectors @ material.vectors.T).cpu().numpy()
    top = np.argsort(-hybrid, axis=1, kind="stable")[:, :HARD]
    limit = SAME_TOOL_FAMILY_A if source.family == "A" else SAME_TOOL
    found: list[list[int]] = []
    for request, row in zip(source.requests, top, strict=True):
        needed = {tool for group in request.groups for tool in group}
        offered = [tool for tool in request.candidates if tool not in needed]
        if not needed:
            found.append(offered)
            continue
        names = {source.tools[tool].text.name for tool in needed}
        closest = likeness[sorted(needed)].max(axis=0)
        hard = [
            int(tool)
            for tool in row
            if tool not in needed and closest[tool] < limit and source.tools[tool].text.name not in names
        ]
        # What a source itself offered beside the right tool counts double.
        found.append((offered * 2 if len(offered) < 20 else []) + hard)
    return found


def word_scores(source: RoutingSet) -> np.ndarray:
    """The product's own lexical scores, every request against every tool."""
    scorer = LexicalScorer()
    cards = [tool.card for tool in source.tools]
    scorer.prepare(cards)
    rows = [
        scorer.scores(ScorerRequest(text=request.text, signals=Signals(language=request.language)), cards)
        for request in source.requests
    ]
    return np.stack(rows) if rows else np.zeros((0, len(source.tools)), np.float32)


def synthetic_request(tool: Tool, rng: random.Random) -> str | None:
    """A request made of the first sentence of a description; None when it does not lend itself."""
    first = _SENTENCE_END.split(tool.text.description)[0].strip().rstrip(".").strip()
    if not 4 <= len(first.split()) <= 40:
        return None
    first = _OPENING.sub("", first[0].lower() + first[1:])
    if rng.random() < 0.5:
        verb, _, rest = first.partition(" ")
        plain = verb.endswith("s") and not verb.endswith(("ies", "es", "ss"))
        first = f"{verb[:-1] if plain else verb} {rest}"
    return rng.choice(_FRAMES).format(first)


def trainable(request: Request) -> bool:
    return request.needs_tool and bool(request.groups)


def draw(
    materials: Sequence[Material], count: int, rng: random.Random, shares: dict[str, float]
) -> list[tuple[Material, int]]:
    """`count` requests: from each set in proportion to the square root of its size, times its share."""
    usable = [
        (material, [i for i, request in enumerate(material.source.requests) if trainable(request)])
        for material in materials
    ]
    usable = [(material, places) for material, places in usable if places]
    weights = [math.sqrt(len(places)) * shares.get(m.source.family, 1.0) for m, places in usable]
    drawn: list[tuple[Material, int]] = []
    for (material, places), weight in zip(usable, weights, strict=True):
        wanted = int(count * weight / sum(weights))
        while wanted > 0:
            rng.shuffle(places)
            drawn += [(material, place) for place in places[:wanted]]
            wanted -= len(places)
    rng.shuffle(drawn)
    return drawn
