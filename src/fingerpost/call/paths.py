"""Whether a call stays inside the working directory.

Only what can be shown counts: a call is inside when it names a path, every path
it names leads inside, and nothing else in it might lead out. Relative paths are
taken from the working directory; a server that runs elsewhere should be given
absolute ones. What changes on disk between this look and the call (a folder
swapped for a link) is beyond any judgement made beforehand, and hard links
cannot be told from files.

Reads the disk. Call it from a thread.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from typing import Final

from fingerpost.call.mentions import Mention, mentions
from fingerpost.call.whereabouts import Lies, lies, resolve
from fingerpost.records import JsonObject

MOST_MENTIONS: Final = 2000
LONGEST_TEXT: Final = 32_768

# `https://…` in a parameter called `path` is somewhere, and not here.
_ELSEWHERE: Final = re.compile(r"\s*(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)


class Placement(StrEnum):
    """Where the paths of a call lie."""

    NONE = "none"  # it names no path
    INSIDE = "inside"  # all of them in the working directory, beyond doubt
    OUTSIDE = "outside"  # at least one outside
    UNCLEAR = "unclear"  # at least one of which it cannot be told
    NOWHERE = "nowhere"  # it names paths, and there is no working directory


def place(arguments: JsonObject, working_directory: str | None) -> Placement:
    """Where the paths in `arguments` lie, seen from the working directory (absolute, or it is none)."""
    found = list(islice(mentions(arguments), MOST_MENTIONS + 1))
    if working_directory is None or not working_directory.startswith("/"):
        named = any(mention.is_path or mention.embeds for mention in found)
        return Placement.NOWHERE if named else Placement.NONE
    folder = resolve(working_directory)
    if folder is None or len(found) > MOST_MENTIONS:
        return Placement.UNCLEAR
    return _together(found, {_place(mention, folder) for mention in found})


def _together(found: list[Mention], places: set[Lies]) -> Placement:
    if Lies.OUTSIDE in places:
        return Placement.OUTSIDE
    if Lies.UNCLEAR in places:
        return Placement.UNCLEAR
    if not any(mention.is_path for mention in found):
        return Placement.NONE
    # A program started inside can still go anywhere.
    return Placement.UNCLEAR if any(mention.program for mention in found) else Placement.INSIDE


def _place(mention: Mention, folder: str) -> Lies:
    if len(mention.text) > LONGEST_TEXT:
        return Lies.UNCLEAR
    if mention.named and _ELSEWHERE.match(mention.text):
        return Lies.OUTSIDE
    where = lies(mention.text, folder)
    if where is Lies.OUTSIDE and not mention.is_path:
        return Lies.UNCLEAR  # it leads out if it is a path, which nothing says
    return Lies.UNCLEAR if where is Lies.INSIDE and mention.embeds else where
