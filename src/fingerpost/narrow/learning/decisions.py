"""Which tool was right the last times the same was asked, for as long as that is remembered.

It saves the question which servers a conversation needs: the servers of those tools are
among them. Nothing else is skipped. Which tool is used, and with which arguments, is
decided anew, and reviewed and gated as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.experience.similar import Floats
from fingerpost.narrow.learning.bearing import RequestSimilarity
from fingerpost.narrow.learning.vectors import build_rows
from fingerpost.records import Choice, Feedback

MAX_DECISIONS: Final = 2_000
MIN_DECISION_SIMILARITY: Final = 0.8
MIN_USES: Final = 2  # that worked, none that failed; a person's word counts for as many
MAX_REMEMBERED_TOOLS: Final = 3


@frozen
class RememberedDecision:
    """The tools that were right for a request, and how often that was so."""

    tools: tuple[str, ...]
    times: int


@frozen(kw_only=False)
class _DecisionFact:
    request: str
    tool: str
    worth: int  # negative: it was wrong


@frozen
class _DecisionSnapshot:
    facts: tuple[_DecisionFact, ...] = ()
    similarity: RequestSimilarity = field(default_factory=lambda: RequestSimilarity(()))


class PastDecisions:
    """Answers from what was right before. Safe to read while it learns."""

    def __init__(self) -> None:
        self._memory = _DecisionSnapshot()

    @property
    def count(self) -> int:
        """How many requests something is remembered for."""
        return len({fact.request for fact in self._memory.facts if fact.worth > 0})

    def learn(
        self,
        choices: Sequence[Choice],
        feedback: Sequence[Feedback],
        *,
        since: datetime,
        vectors: Mapping[str, Floats] | None = None,
    ) -> None:
        """From what was chosen and said after `since`."""
        facts = tuple(_collect_facts(choices, feedback, since))[:MAX_DECISIONS]
        texts = [fact.request for fact in facts]
        rows = None if vectors is None else build_rows(texts, vectors)
        self._memory = _DecisionSnapshot(facts=facts, similarity=RequestSimilarity(texts, rows))

    def recall(self, text: str, vector: Floats | None = None) -> RememberedDecision | None:
        """What was right for (nearly) this request, if it was so often enough and never wrong."""
        memory = self._memory
        alike = memory.similarity.compute_weights(text, vector)
        worth: dict[str, int] = {}
        wrong: set[str] = set()
        for place in np.flatnonzero(alike >= MIN_DECISION_SIMILARITY):
            fact = memory.facts[int(place)]
            if fact.worth < 0:
                wrong.add(fact.tool)
            else:
                worth[fact.tool] = worth.get(fact.tool, 0) + fact.worth
        found = [tool for tool, sum_of in worth.items() if sum_of >= MIN_USES and tool not in wrong]
        if not found:
            return None
        found.sort(key=lambda tool: (-worth[tool], tool))
        return RememberedDecision(tools=tuple(found[:MAX_REMEMBERED_TOOLS]), times=worth[found[0]])


def _collect_facts(
    choices: Iterable[Choice], feedback: Iterable[Feedback], since: datetime
) -> Iterable[_DecisionFact]:
    for one in feedback:
        if one.at > since and one.right is not None:
            yield _DecisionFact(one.request, one.right, MIN_USES)
        if one.at > since and one.wrong is not None:
            yield _DecisionFact(one.request, one.wrong, -1)
    for choice in choices:
        if choice.at > since:
            yield _DecisionFact(choice.request, choice.tool, 1 if choice.worked else -1)
