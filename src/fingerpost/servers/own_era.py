"""Callers of the older era who call often are spoken for in that era, where a server speaks both.

A session of theirs then has one of its own at the server, as it would have without us: nothing has to be
translated, and the server knows what this caller can do. It is also quicker with some servers: those made
with the low-level part of the MCP library list all their tools for every call of the newer era, to compare
its headers, which takes them a quarter of the call at 30 tools and three quarters of it at 300.

Not where a server gives less in the older era: many keep no sessions there, or never answer by a stream,
and could ask the caller nothing; and some have tools that only the newer era knows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.records import JsonObject, ServerSpec
from fingerpost.servers.caller import Passage
from fingerpost.servers.connection import Connection
from fingerpost.servers.isolated import Isolated, Own
from fingerpost.servers.opening import Standard, Surroundings
from fingerpost.servers.session import NOTHING, abilities_of

OLDER: Final = "2025-11-25"
OFTEN: Final = 64  # calls of one session: opening another for it takes us as long as twenty of them,
LISTED: Final = 1920  # unless the server may have listed that many tools for them, all in all
TRY_AGAIN_SECONDS: Final = 300.0  # after a server did not take the older era, or gave less in it
REMEMBERED: Final = 1000  # sessions


class OwnEra:
    """The sessions at one server of those who call it often."""

    def __init__(self, spec: ServerSpec, around: Surroundings) -> None:
        self._possible = spec.transport == "http" and spec.era == "auto" and not spec.isolate
        self._around = around
        self._sessions = Isolated(replace(spec, era=OLDER), around, _told_already)
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._begun: Own | None = None  # the latest
        self._not_before = 0.0

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, passage: Passage | None, shared: Connection, tasks: TaskGroup, *, tools: int) -> Own | None:
        """The caller's own connection; None: the shared one is to be used. `tools`: how many there are."""
        if not self._possible or passage is None or not shared.modern or not shared.is_thin:
            return None
        caller = passage.caller
        # Which log messages are wanted belongs to a request in the newer era, and to a session in the older.
        if caller is None or caller.takes_rounds or passage.log_level is not None:
            return None
        own = self._sessions.opened(caller.key)
        if own is None:
            calls = self._count(caller.key)
            if (calls >= OFTEN or calls * tools >= LISTED) and not self._refuses():
                around = self._around_caller(caller.capabilities, shared, tools)
                self._begun = self._sessions.begin(caller.key, tasks, around) or self._begun
        return own

    def _around_caller(self, capabilities: JsonObject, shared: Connection, tools: int) -> Surroundings:
        """With what the caller can do, and nothing less from the server than now."""
        abilities = abilities_of(capabilities)
        standard = Standard(capabilities=shared.capabilities, tools=tools, questions=abilities != NOTHING)
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
            self._begun = None
            self._not_before = anyio.current_time() + TRY_AGAIN_SECONDS
        return anyio.current_time() < self._not_before


def _told_already(method: str, params: JsonObject, caller: str | None) -> None:
    """What changed at the server, the shared connection is told as well."""
