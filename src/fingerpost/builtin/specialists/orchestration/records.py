"""Experts, what each of them says, and what is made of it."""

from __future__ import annotations

from fingerpost.frozen import frozen


@frozen
class PanelExpert:
    """A point of view with a name."""

    name: str
    view: str = ""  # what it looks at


@frozen
class ExpertView:
    """What one expert says, or why nothing came of it."""

    expert: PanelExpert
    says: str = ""
    problem: str = ""
    packet: str | None = None
    tokens: int = 0


@frozen
class ExpertDisagreement:
    """Where experts differ, and who says what."""

    about: str
    positions: tuple[tuple[str, str], ...]  # name of an expert, and what it says


@frozen
class PanelSynthesis:
    """One answer out of all views. `read` is False where disagreements could not be told apart from it."""

    answer: str
    agreements: tuple[str, ...] = ()
    disagreements: tuple[ExpertDisagreement, ...] = ()
    read: bool = True
    packet: str | None = None
