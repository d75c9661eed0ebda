"""A change of files: decided first, then shown or done."""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.workspace.switches import Act
from fingerpost.builtin.workspace.text.diffs import MOST_LINES, diff
from fingerpost.frozen import frozen

_SHOWN_WHEN_DONE: Final = 40  # lines of the difference: whoever asked knows what they wrote


@frozen(kw_only=False)
class Change:
    """One file before and after; None: it is not there."""

    shown: str
    before: bytes | None
    after: bytes | None

    def told(self, act: Act) -> str:
        """The difference, and what was or would be done."""
        most = MOST_LINES if act.dry else _SHOWN_WHEN_DONE
        return f"{self._verb(act)} {self.shown} ({self._size()}).\n\n{self._diff(most)}"

    def _diff(self, most: int) -> str:
        return diff(self.shown, self.before, self.after, most=most)

    def _verb(self, act: Act) -> str:
        verb = "create" if self.before is None else "change"
        return f"Would {verb}" if act.dry else f"{verb.capitalize()}d"

    def _size(self) -> str:
        size = 0 if self.after is None else len(self.after)
        return f"{size} bytes" if self.before is None else f"{len(self.before)} → {size} bytes"


def reported(act: Act, *told: str) -> str:
    """What a call answers: under the heading of the dry run, if it is one."""
    body = "\n\n".join(told)
    return f"{act.heading}\n\n{body}" if act.dry else body
