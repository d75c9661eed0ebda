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

from fingerpost.call.mentions import PathMention, find_mentions
from fingerpost.call.whereabouts import PathLocation, locate_text, resolve_path
from fingerpost.records import JsonObject

MAX_MENTIONS: Final = 2000
MAX_PATH_LENGTH: Final = 32_768

# `https://…` in a parameter called `path` is somewhere, and not here.
_OUTSIDE_PLACES: Final = re.compile(r"\s*(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)


class PathPlacement(StrEnum):
    """Where the paths of a call lie."""

    NONE = "none"  # it names no path
    INSIDE = "inside"  # all of them in the working directory, beyond doubt
    OUTSIDE = "outside"  # at least one outside
    UNCLEAR = "unclear"  # at least one of which it cannot be told
    NOWHERE = "nowhere"  # it names paths, and there is no working directory


def locate_paths(arguments: JsonObject, working_directory: str | None) -> PathPlacement:
    """Where the paths in `arguments` lie, seen from the working directory (absolute, or it is none)."""
    found = list(islice(find_mentions(arguments), MAX_MENTIONS + 1))
    if working_directory is None or not working_directory.startswith("/"):
        named = any(mention.is_path or mention.embeds for mention in found)
        return PathPlacement.NOWHERE if named else PathPlacement.NONE
    folder = resolve_path(working_directory)
    if folder is None or len(found) > MAX_MENTIONS:
        return PathPlacement.UNCLEAR
    return _combine_places(found, {_locate_mention(mention, folder) for mention in found})


def _combine_places(found: list[PathMention], places: set[PathLocation]) -> PathPlacement:
    if PathLocation.OUTSIDE in places:
        return PathPlacement.OUTSIDE
    if PathLocation.UNCLEAR in places:
        return PathPlacement.UNCLEAR
    if not any(mention.is_path for mention in found):
        return PathPlacement.NONE
    # A program started inside can still go anywhere.
    return PathPlacement.UNCLEAR if any(mention.program for mention in found) else PathPlacement.INSIDE


def _locate_mention(mention: PathMention, folder: str) -> PathLocation:
    if len(mention.text) > MAX_PATH_LENGTH:
        return PathLocation.UNCLEAR
    if mention.named and _OUTSIDE_PLACES.match(mention.text):
        return PathLocation.OUTSIDE
    where = locate_text(mention.text, folder)
    if where is PathLocation.OUTSIDE and not mention.is_path:
        return PathLocation.UNCLEAR  # it leads out if it is a path, which nothing says
    return PathLocation.UNCLEAR if where is PathLocation.INSIDE and mention.embeds else where
