"""The questions a server puts to the caller while their call runs.

Once something was asked, the call can no longer be begun anew: a person would be
asked twice, and a fallback would get answers meant for another tool. And while a
person thinks, the tool's time stands still: it is not the tool that is slow.
"""

from __future__ import annotations

from fingerpost.records import JsonObject
from fingerpost.servers.caller import CallerSide, Passage
from fingerpost.servers.clock import Clock


class Dialogue:
    """The caller's side of one call, with a note of whether anything was asked of them."""

    def __init__(self, caller: CallerSide, passage: Passage) -> None:
        self._caller = caller
        self._passage = passage
        self._clock = Clock()  # of the attempt under way
        self.begun = False

    def timed_by(self, clock: Clock) -> Passage:
        """What goes along in one attempt: with the caller watched, and its time kept by us alone."""
        self._clock = clock
        return self._passage.for_caller(self, clock)

    @property
    def key(self) -> str:
        return self._caller.key

    @property
    def capabilities(self) -> JsonObject:
        return self._caller.capabilities

    @property
    def takes_rounds(self) -> bool:
        return self._caller.takes_rounds

    @property
    def authorization(self) -> str | None:
        return self._caller.authorization

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self.begun = True
        with self._clock.stopped():
            return await self._caller.ask(method, params)

    async def tell(self, method: str, params: JsonObject) -> None:
        await self._caller.tell(method, params)


def watched(passage: Passage | None) -> Dialogue | None:
    """The watch over the passage's caller; no caller, nothing to watch."""
    return None if passage is None or passage.caller is None else Dialogue(passage.caller, passage)


def awaits_input(result: JsonObject) -> bool:
    """Whether the server asks for more before it answers (2026-07-28); nothing has come of the call yet."""
    return result.get("resultType") == "input_required"
