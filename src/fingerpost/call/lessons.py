"""Which outcomes of a call teach something about the choice of its tool.

A call that worked says the tool was right. A person who said no, or a tool that
ran and reported failure, says it was not. A server that was down, a deadline, a
rule, missing arguments or a loop say nothing about whether the tool suits the
request, and nothing is learned from them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fingerpost.records import Choice, ErrorKind, Outcome

_WRONG_CHOICE_ERRORS: Final = frozenset(
    {ErrorKind.EXECUTION_FAILED, ErrorKind.CANCELLED, ErrorKind.OPERATION_NOT_SUPPORTED}
)


def build_choice_sample(
    request: str, outcome: Outcome, *, at: datetime, conversation: str | None = None
) -> Choice | None:
    """What this outcome teaches about the request, or None when it teaches nothing."""
    if not request.strip() or outcome.pending_id is not None:
        return None
    if not outcome.success and outcome.error not in _WRONG_CHOICE_ERRORS:
        return None
    return Choice(
        request=request, tool=outcome.tool, worked=outcome.success, at=at, conversation=conversation
    )
