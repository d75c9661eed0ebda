"""A conversation, written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fingerpost.records import Message


def write_transcript(path: Path, messages: Sequence[Message]) -> None:
    """The conversation as Markdown in a new file that only its owner can read. Raises `OSError`."""
    names = {"user": "You", "assistant": "Fingerpost"}
    parts = [f"**{names.get(one.role, one.role)}**\n\n{one.text.strip()}\n" for one in messages]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(parts))
