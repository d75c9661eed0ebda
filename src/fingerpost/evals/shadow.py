"""Shadow mode: the same requests under two configurations, and where their offers differ.

No label is needed: before a change goes live, an operator sees how many
requests would be offered other tools, and which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fingerpost.evals.predict import Narrow
from fingerpost.frozen import frozen
from fingerpost.narrow.request import NarrowRequest


@frozen
class Contrast:
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
    def differs(self) -> bool:
        """Whether other tools are offered. Their order alone makes no difference to a model."""
        return bool(self.gained or self.lost)


@frozen
class Shadow:
    """All contrasts, and what they come to."""

    contrasts: tuple[Contrast, ...]

    @property
    def differing(self) -> tuple[Contrast, ...]:
        return tuple(contrast for contrast in self.contrasts if contrast.differs)

    @property
    def share(self) -> float:
        return len(self.differing) / len(self.contrasts) if self.contrasts else 0.0

    def moved(self) -> list[tuple[str, int, int]]:
        """Every tool that is offered more or less often: how often newly, how often no longer."""
        gained = Counter(tool for contrast in self.contrasts for tool in contrast.gained)
        lost = Counter(tool for contrast in self.contrasts for tool in contrast.lost)
        tools = sorted({*gained, *lost}, key=lambda tool: (-gained[tool] - lost[tool], tool))
        return [(tool, gained[tool], lost[tool]) for tool in tools]


def shadow(requests: Iterable[str], before: Narrow, after: Narrow) -> Shadow:
    """What either configuration offers for each request."""
    return Shadow(
        contrasts=tuple(
            Contrast(request=text, before=_offered(before, text), after=_offered(after, text))
            for text in requests
        )
    )


def _offered(narrow: Narrow, text: str) -> tuple[str, ...]:
    return tuple(candidate.tool for candidate in narrow(NarrowRequest(text=text)).shortlist.offered)


def distinct(requests: Iterable[str]) -> Sequence[str]:
    """The requests, each once, without empty ones."""
    return tuple(dict.fromkeys(text for one in requests if (text := one.strip())))
