"""Shadow mode: the same requests under two configurations, and where their offers differ.

No label is needed: before a change goes live, an operator sees how many
requests would be offered other tools, and which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fingerpost.evals.predict import NarrowFunction
from fingerpost.frozen import frozen
from fingerpost.narrow.request import NarrowRequest


@frozen
class OfferContrast:
    """One request, and the tools either configuration offers for it, best first."""

    request: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def gained(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.after if tool not in self.before)

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.before if tool not in self.after)

    @property
    def is_different(self) -> bool:
        """Whether other tools are offered. Their order alone makes no difference to a model."""
        return bool(self.gained or self.lost)


@frozen
class ShadowReport:
    """All contrasts, and what they come to."""

    contrasts: tuple[OfferContrast, ...]

    @property
    def differing(self) -> tuple[OfferContrast, ...]:
        return tuple(contrast for contrast in self.contrasts if contrast.is_different)

    @property
    def share(self) -> float:
        return len(self.differing) / len(self.contrasts) if self.contrasts else 0.0

    def count_moved_tools(self) -> list[tuple[str, int, int]]:
        """Every tool that is offered more or less often: how often newly, how often no longer."""
        gained = Counter(tool for contrast in self.contrasts for tool in contrast.gained)
        lost = Counter(tool for contrast in self.contrasts for tool in contrast.lost)
        tools = sorted({*gained, *lost}, key=lambda tool: (-gained[tool] - lost[tool], tool))
        return [(tool, gained[tool], lost[tool]) for tool in tools]


def compare_offers(requests: Iterable[str], before: NarrowFunction, after: NarrowFunction) -> ShadowReport:
    """What either configuration offers for each request."""
    return ShadowReport(
        contrasts=tuple(
            OfferContrast(
                request=text, before=_get_offered_keys(before, text), after=_get_offered_keys(after, text)
            )
            for text in requests
        )
    )


def _get_offered_keys(narrow: NarrowFunction, text: str) -> tuple[str, ...]:
    return tuple(candidate.tool for candidate in narrow(NarrowRequest(text=text)).shortlist.offered)


def remove_repeated_requests(requests: Iterable[str]) -> Sequence[str]:
    """The requests, each once, without empty ones."""
    return tuple(dict.fromkeys(text for one in requests if (text := one.strip())))
