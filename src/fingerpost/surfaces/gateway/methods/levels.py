"""How much each session wants to hear of servers' logs."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
USUAL: Final = "info"  # for those who never said


class Levels:
    """The level each session asked for."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {}

    def put(self, session: str, level: str) -> None:
        self._levels[session] = level

    def of(self, session: str | None) -> str | None:
        """What this session asked for; None where it never did."""
        return None if session is None else self._levels.get(session)

    def forget(self, session: str) -> None:
        self._levels.pop(session, None)

    @property
    def lowest(self) -> str:
        """The most that anybody wants to hear."""
        return min(self._levels.values(), key=LEVELS.index, default=USUAL)

    def wants(self, session: str | None, level: object) -> bool:
        """Whether a message of this level is for that session. Unknown levels are."""
        if level not in LEVELS:
            return True
        return LEVELS.index(str(level)) >= LEVELS.index(self.of(session) or USUAL)
