"""Answers on their way out: split into messages, very long ones as a file, pictures and files beside them."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Final

import discord

from fingerpost.call.digest import ResultStore
from fingerpost.call.digest.assets import SCHEME, parse_asset_name
from fingerpost.events import ResultDigested
from fingerpost.frozen import frozen
from fingerpost.router.route import Route
from fingerpost.surfaces.discord.note import ProgressMessage, send_message
from fingerpost.surfaces.discord.splitting import split_message

MAX_PIECES: Final = 5  # a longer answer is a file
MAX_FILES: Final = 5
MAX_FILE_BYTES: Final = 8 * 1024 * 1024  # Discord takes ten in one message from anybody
MAX_RESULTS_READ: Final = 50_000  # characters of one result, for links
_RESULT_PART: Final = re.compile(r"\bpart (\d{1,4})\b")
_ASSET_LINK: Final = re.compile(SCHEME + r"(res_[a-z]{13})\b")


@frozen(kw_only=False)
class OutgoingFile:
    """A file that goes with an answer."""

    name: str
    data: bytes

    def to_discord(self) -> discord.File:
        return discord.File(BytesIO(self.data), filename=self.name)


async def deliver_answer(progress: ProgressMessage, text: str, enclosed: Sequence[OutgoingFile] = ()) -> None:
    """The note becomes the answer; what does not fit into one message follows it."""
    found = split_message(text)
    if len(found) > MAX_PIECES:
        whole = text.encode("utf-8", "replace")[:MAX_FILE_BYTES]
        enclosed = (OutgoingFile("answer.md", whole), *enclosed)
        found = (
            *split_message(found[0], 1900)[:1],
            f"-# {len(text):,} characters in all: the whole is attached.",
        )
    first, *more = found or ("(The answer is empty.)",)
    files = [each.to_discord() for each in _limit_files(enclosed)]
    await progress.replace_content(first, files=() if more else files)
    for number, piece in enumerate(more, 1):
        await send_message(progress.channel, piece, files=files if number == len(more) else ())


def _limit_files(files: Sequence[OutgoingFile]) -> list[OutgoingFile]:
    taken: list[OutgoingFile] = []
    size = 0
    for each in files[:MAX_FILES]:
        if size + len(each.data) <= MAX_FILE_BYTES:
            taken.append(each)
            size += len(each.data)
    return taken


async def collect_files(route: Route, results: ResultStore) -> tuple[OutgoingFile, ...]:
    """The pictures, sounds and files among the results of this request, and those the results link to.

    Only what was kept for whoever asked.
    """
    found: list[OutgoingFile] = []
    for handle in _collect_handles(route):
        page = await results.read_page(handle, caller=route.packet.header.caller)
        for reference in () if page is None else page.references:
            number = _RESULT_PART.search(reference)
            part = None if number is None else await results.read_part(handle, int(number[1]))
            if part is not None and len(found) < MAX_FILES:
                found.append(OutgoingFile(_build_file_name(reference, len(found) + 1, part[0]), part[1]))
    return tuple(found)


def _collect_handles(route: Route) -> dict[str, None]:
    """Under which this request's results are kept, and assets they made, in order."""
    cut = (event.handle for event in route.events if isinstance(event, ResultDigested) and event.handle)
    steps = route.packet.tool_routing.worked
    linked = (handle for step in steps for handle in _ASSET_LINK.findall(step.text[:MAX_RESULTS_READ]))
    return dict.fromkeys((*cut, *linked))


def _build_file_name(reference: str, number: int, kind: str) -> str:
    """The name an asset was given; else one that tells what it is."""
    safe = re.sub(r"[^\w.-]+", "_", parse_asset_name(reference))[-80:].lstrip(".")
    return safe or f"result-{number}{mimetypes.guess_extension(kind.lower()) or '.bin'}"
