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

    def forget(self, session: str) -> bool:
        """Whether there was anything to forget."""
        return self._levels.pop(session, None) is not None

    @property
    def lowest(self) -> str | None:
        """The most that anybody asked for; None where those who never said want at least as much."""
        lowest = min(self._levels.values(), key=LEVELS.index, default=None)
        return None if lowest is None or LEVELS.index(lowest) > LEVELS.index(USUAL) else lowest

    def wants(self, session: str | None, level: object) -> bool:
        """Whether a message of this level is for that session. Unknown levels are."""
        if level not in LEVELS:
            return True
        return LEVELS.index(str(level)) >= LEVELS.index(self.of(session) or USUAL)
