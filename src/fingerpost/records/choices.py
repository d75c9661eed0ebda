"""What was chosen for a request, and what tends to follow what: the memory that learning works from."""

from __future__ import annotations

from datetime import datetime

from fingerpost.frozen import frozen


@frozen
class Choice:
    """One tool that was used for a request, and whether that was the right thing to do."""

    request: str
    tool: str
    worked: bool
    at: datetime
    conversation: str | None = None
    caller: str | None = None  # who asked, where that is known


@frozen
class ToolFollower:
    """How often `then` was the next tool that worked after `tool`, in the same conversation."""

    tool: str
    then: str
    times: int
