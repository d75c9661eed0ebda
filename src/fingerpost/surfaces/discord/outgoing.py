"""Answers on their way out: split into messages, very long ones as a file, pictures and files beside them."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Final

import discord

from fingerpost.call.digest import Results
from fingerpost.call.digest.assets import SCHEME, name_in
from fingerpost.events import ResultDigested
from fingerpost.frozen import frozen
from fingerpost.router.route import Route
from fingerpost.surfaces.discord.note import Note, send
from fingerpost.surfaces.discord.splitting import pieces

MOST_PIECES: Final = 5  # a longer answer is a file
MOST_FILES: Final = 5
FILE_BYTES: Final = 8 * 1024 * 1024  # Discord takes ten in one message from anybody
LOOKED_THROUGH: Final = 50_000  # characters of one result, for links
_PART: Final = re.compile(r"\bpart (\d{1,4})\b")
_LINK: Final = re.compile(SCHEME + r"(res_[a-z]{13})\b")


@frozen(kw_only=False)
class Enclosed:
    """A file that goes with an answer."""

    name: str
    data: bytes

    def file(self) -> discord.File:
        return discord.File(BytesIO(self.data), filename=self.name)


async def deliver(note: Note, text: str, enclosed: Sequence[Enclosed] = ()) -> None:
    """The note becomes the answer; what does not fit into one message follows it."""
    found = pieces(text)
    if len(found) > MOST_PIECES:
        whole = text.encode("utf-8", "replace")[:FILE_BYTES]
        enclosed = (Enclosed("answer.md", whole), *enclosed)
        found = (*pieces(found[0], 1900)[:1], f"-# {len(text):,} characters in all: the whole is attached.")
    first, *more = found or ("(The answer is empty.)",)
    files = [each.file() for each in _within(enclosed)]
    await note.become(first, files=() if more else files)
    for number, piece in enumerate(more, 1):
        await send(note.channel, piece, files=files if number == len(more) else ())


def _within(enclosed: Sequence[Enclosed]) -> list[Enclosed]:
    taken: list[Enclosed] = []
    size = 0
    for each in enclosed[:MOST_FILES]:
        if size + len(each.data) <= FILE_BYTES:
            taken.append(each)
            size += len(each.data)
    return taken


async def enclosed_in(route: Route, results: Results) -> tuple[Enclosed, ...]:
    """The pictures, sounds and files among the results of this request, and those the results link to.

    Only what was kept for whoever asked.
    """
    found: list[Enclosed] = []
    for handle in _handles(route):
        page = await results.page(handle, caller=route.packet.header.caller)
        for reference in () if page is None else page.references:
            number = _PART.search(reference)
            part = None if number is None else await results.part(handle, int(number[1]))
            if part is not None and len(found) < MOST_FILES:
                found.append(Enclosed(_name(reference, len(found) + 1, part[0]), part[1]))
    return tuple(found)


def _handles(route: Route) -> dict[str, None]:
    """Under which this request's results are kept, and assets they made, in order."""
    cut = (event.handle for event in route.events if isinstance(event, ResultDigested) and event.handle)
    steps = route.packet.tool_routing.worked
    linked = (handle for step in steps for handle in _LINK.findall(step.text[:LOOKED_THROUGH]))
    return dict.fromkeys((*cut, *linked))


def _name(reference: str, number: int, kind: str) -> str:
    """The name an asset was given; else one that tells what it is."""
    safe = re.sub(r"[^\w.-]+", "_", name_in(reference))[-80:].lstrip(".")
    return safe or f"result-{number}{mimetypes.guess_extension(kind.lower()) or '.bin'}"
