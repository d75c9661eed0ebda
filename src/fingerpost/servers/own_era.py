"""Callers of the older era who call often are spoken for in that era, where a server speaks both.

A session of theirs then has one of its own at the server, as it would have without us: nothing has to be
translated, and the server knows what this caller can do. It is also quicker with some servers: those made
with the low-level part of the MCP library list all their tools for every call of the newer era, to compare
its headers, which takes them a quarter of the call at 30 tools and three quarters of it at 300.

It is also the only era in which some servers can ask: what they put to the caller in the middle of a call
fails in the newer one. Where that happened once, those who can be asked have such a session at once.

Not where a server gives less in the older era: many keep no sessions there, or never answer by a stream,
and could ask the caller nothing; and some have tools that only the newer era knows.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import ToolFailed
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.servers.caller import CallerSide, Passage
from fingerpost.servers.connection import Connection
from fingerpost.servers.in_vain import OLDER, AskedInVain, could_not_ask, in_vain
from fingerpost.servers.isolated import Isolated, Own
from fingerpost.servers.opening import Standard, Surroundings
from fingerpost.servers.session import NOTHING, abilities_of
from fingerpost.servers.talk import QUESTIONS

OFTEN: Final = 64  # calls of one session: opening another for it takes us as long as twenty of them,
LISTED: Final = 1920  # unless the server may have listed that many tools for them, all in all
TRY_AGAIN_SECONDS: Final = 300.0  # after a server did not take the older era, or gave less in it
REMEMBERED: Final = 1000  # sessions
SET_LEVEL: Final = "logging/setLevel"


class OwnEra:
    """The sessions at one server of those who call it often, or whom it can ask nothing otherwise."""

    def __init__(self, spec: ServerSpec, around: Surroundings) -> None:
        self._server = spec.name
        self._possible = spec.transport == "http" and spec.era == "auto" and not spec.isolate
        self._around = around
        self._sessions = Isolated(replace(spec, era=OLDER), around, _told_already)
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._begun: Own | None = None  # the latest
        self._not_before = 0.0
        self._refusal = ""  # why the last one did not come about
        self._asks = False  # in the middle of a call, which it can in the older era alone

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, passage: Passage | None, shared: Connection, tasks: TaskGroup, *, tools: int) -> Own | None:
        """The caller's own connection; None: the shared one is to be used. `tools`: how many there are.

        One that is still being opened is given to those alone who have to wait for it: see `connection`.
        """
        if not self._possible or passage is None or not shared.modern:
            return None
        caller = passage.caller
        if caller is None or caller.takes_rounds:
            return None
        if self._asks and _can_be_asked(caller):
            return self._sessions.begun(caller.key) or self._begin(caller, shared, tasks, tools)
        # Which log messages are wanted belongs to a request in the newer era, and to a session in the older.
        if not shared.is_thin or (passage.log_level is not None and not passage.usual_level):
            return None
        own = self._sessions.opened(caller.key)
        if own is None:
            calls = self._count(caller.key)
            if calls >= OFTEN or calls * tools >= LISTED:
                self._begin(caller, shared, tasks, tools)
        return own

    def _begin(self, caller: CallerSide, shared: Connection, tasks: TaskGroup, tools: int) -> Own | None:
        if self._refuses():
            return None
        around = self._around_caller(caller.capabilities, shared, tools)
        own = self._sessions.begin(caller.key, tasks, around)
        self._begun = own or self._begun
        return own

    async def connection(self, own: Own, passage: Passage | None) -> Connection | None:
        """The connection itself, once it is open, with the log level this session set; None: it failed."""
        if own.connection is None:
            await own.ready.wait()
        opened = own.connection
        if opened is None or passage is None or passage.usual_level:
            return opened
        level = passage.log_level
        if level is not None and level != own.log_level and "logging" in opened.capabilities:
            own.log_level = level
            with suppress(ToolFailed):  # it says what it says; the session hears no more than it asked for
                await opened.fetch(SET_LEVEL, {"level": level})
        return opened

    # -- questions that are put in the older era alone ----------------------------------------------

    def in_vain(
        self, failed: JsonObject | ToolFailed, passage: Passage | None, shared: Connection
    ) -> AskedInVain | None:
        """Whether a call on the shared connection failed because its caller could not be asked. If so: why.

        From then on callers of the older era have sessions of their own, where they can be.
        """
        caller = None if passage is None else passage.caller
        if caller is None or caller.takes_rounds or not shared.modern or not _can_be_asked(caller):
            return None
        if not could_not_ask(failed):
            return None
        if not self._asks:
            self._asks = True
            self._begun, self._not_before = None, 0.0  # what was lacking before may be less than this
        again = self._possible and not self._refuses()
        return in_vain(self._server, failed, self._advice(again=again), again=again)

    def _advice(self, *, again: bool) -> str:
        if again:
            return (
                f"{self._server} can ask this in protocol {OLDER} alone, and is spoken to in it from now on "
                "for this session: the next call can be asked about. Check what this one did before it is "
                "repeated."
            )
        if self._possible:
            return f"It could be asked in protocol {OLDER} alone, but {self._refusal}."
        return (
            f"{self._server} can ask this in protocol {OLDER} alone: where it speaks that as well, "
            f'`era = "{OLDER}"` in its entry lets it ask.'
        )

    def _around_caller(self, capabilities: JsonObject, shared: Connection, tools: int) -> Surroundings:
        """With what the caller can do, and nothing less from the server than now.

        That it can ask outweighs extensions: servers name theirs in the newer era alone.
        """
        abilities = abilities_of(capabilities)
        given = shared.capabilities
        if self._asks:
            given = {name: value for name, value in given.items() if name != "extensions"}
        standard = Standard(capabilities=given, tools=tools, questions=abilities != NOTHING)
        return replace(self._around, abilities=lambda: abilities, standard=standard)

    def close(self) -> None:
        self._sessions.close()

    def _count(self, key: str) -> int:
        self._calls[key] = calls = self._calls.pop(key, 0) + 1
        if len(self._calls) > REMEMBERED:
            self._calls.popitem(last=False)
        return calls

    def _refuses(self) -> bool:
        if self._begun is not None and self._begun.connection is None and self._begun.error is not None:
            self._refusal = str(self._begun.error)
            self._begun = None
            self._not_before = anyio.current_time() + TRY_AGAIN_SECONDS
        return anyio.current_time() < self._not_before


def _can_be_asked(caller: CallerSide) -> bool:
    return not _ABILITIES.isdisjoint(caller.capabilities)


_ABILITIES: Final = frozenset(QUESTIONS.values())


def _told_already(method: str, params: JsonObject, caller: str | None) -> None:
    """What changed at the server, the shared connection is told as well."""
