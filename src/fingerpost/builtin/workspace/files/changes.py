"""A change of files: decided first, then shown or done."""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.workspace.switches import RunMode
from fingerpost.builtin.workspace.text.diffs import MAX_DIFF_LINES, render_diff
from fingerpost.frozen import frozen

_MAX_LINES_WHEN_DONE: Final = 40  # lines of the difference: whoever asked knows what they wrote


@frozen(kw_only=False)
class FileChange:
    """One file before and after; None: it is not there."""

    display_path: str
    before: bytes | None
    after: bytes | None

    def describe(self, run_mode: RunMode) -> str:
        """The difference, and what was or would be done."""
        most = MAX_DIFF_LINES if run_mode.is_dry_run else _MAX_LINES_WHEN_DONE
        return (
            f"{self._get_verb(run_mode)} {self.display_path} "
            f"({self._describe_size()}).\n\n{self._render_diff(most)}"
        )

    def _render_diff(self, limit: int) -> str:
        return render_diff(self.display_path, self.before, self.after, limit=limit)

    def _get_verb(self, run_mode: RunMode) -> str:
        verb = "create" if self.before is None else "change"
        return f"Would {verb}" if run_mode.is_dry_run else f"{verb.capitalize()}d"

    def _describe_size(self) -> str:
        size = 0 if self.after is None else len(self.after)
        return f"{size} bytes" if self.before is None else f"{len(self.before)} → {size} bytes"


def format_report(run_mode: RunMode, *parts: str) -> str:
    """What a call answers: under the heading of the dry run, if it is one."""
    body = "\n\n".join(parts)
    return f"{run_mode.heading}\n\n{body}" if run_mode.is_dry_run else body
