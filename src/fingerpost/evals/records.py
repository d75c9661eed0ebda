"""One tool, one labelled query and one prediction of a set, as they stand in its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Message


@frozen
class ToolRecord:
    """One line of `tools.jsonl`. The id is the set's own and comes back unchanged."""

    id: str
    server: str
    name: str
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict[str, Json])


@frozen
class QueryRecord:
    """One line of `queries.jsonl`: a request, and what the right answer is."""

    id: str
    query: str
    relevant: tuple[str, ...] = ()
    needs_tool: bool | None = None  # None: the set does not say
    groups: tuple[frozenset[str], ...] = ()  # one per needed tool; any member satisfies it
    candidates: tuple[str, ...] | None = None
    scope: str | None = None  # "candidates": labels hold for those only; "world": for no catalog at all
    history: tuple[Message, ...] = ()
    lang: str | None = None

    @property
    def wanted_groups(self) -> tuple[frozenset[str], ...]:
        """The groups to be found: as given, else one for each relevant tool."""
        return self.groups or tuple(frozenset({tool}) for tool in dict.fromkeys(self.relevant))

    @property
    def has_recall_labels(self) -> bool:
        return self.needs_tool is not False and bool(self.wanted_groups)


@frozen
class RankingEntry:
    """One place of a ranking."""

    tool: str
    score: float


@frozen
class Prediction:
    """What the router says about one query."""

    id: str
    verdict: str
    need: float
    fit: float
    ranking: tuple[RankingEntry, ...] = ()
    ms: float = 0.0
    selection: Mapping[str, Json] | None = None  # the tool, arguments and confidence a model chose

    def as_json(self) -> dict[str, Json]:
        """The line of the predictions file."""
        line: dict[str, Json] = {
            "id": self.id,
            "need": {"verdict": self.verdict, "score": round(self.need, 4)},
            "fit": round(self.fit, 4),
            "ranking": [{"tool": place.tool, "score": round(place.score, 5)} for place in self.ranking],
            "ms": round(self.ms, 3),
        }
        if self.selection is not None:
            line["selection"] = dict(self.selection)
        return line
