"""How much each session wants to hear of servers' logs."""

from __future__ import annotations

from typing import Final

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL: Final = "info"  # for those who never said


class LogLevels:
    """The level each session asked for."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {}

    def set_level(self, session: str, level: str) -> None:
        self._levels[session] = level

    def get_level(self, session: str | None) -> str | None:
        """What this session asked for; None where it never did."""
        return None if session is None else self._levels.get(session)

    def forget(self, session: str) -> bool:
        """Whether there was anything to forget."""
        return self._levels.pop(session, None) is not None

    @property
    def lowest(self) -> str | None:
        """The most that anybody asked for; None where those who never said want at least as much."""
        lowest = min(self._levels.values(), key=LOG_LEVELS.index, default=None)
        return (
            None if lowest is None or LOG_LEVELS.index(lowest) > LOG_LEVELS.index(DEFAULT_LEVEL) else lowest
        )

    def wants(self, session: str | None, level: object) -> bool:
        """Whether a message of this level is for that session. Unknown levels are."""
        if level not in LOG_LEVELS:
            return True
        return LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(self.get_level(session) or DEFAULT_LEVEL)
