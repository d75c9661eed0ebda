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
from fingerpost.servers.caller import CallerChannel, RequestContext
from fingerpost.servers.connection import ServerConnection
from fingerpost.servers.in_vain import (
    LEGACY_VERSION,
    ServerRequestUnsupported,
    build_unsupported_request,
    is_unsupported_request_failure,
)
from fingerpost.servers.isolated import CallerConnection, CallerConnections
from fingerpost.servers.opening import ConnectDeps, ConnectionProfile
from fingerpost.servers.session import NO_CAPABILITIES, build_client_capabilities
from fingerpost.servers.talk import QUESTION_CAPABILITIES

FREQUENT_CALLS: Final = 64  # calls of one session: opening another for it takes us as long as twenty of them,
FREQUENT_CALLS_TIMES_TOOLS: Final = (
    1920  # unless the server may have listed that many tools for them, all in all
)
RETRY_SECONDS: Final = 300.0  # after a server did not take the older era, or gave less in it
MAX_COUNTED_CALLERS: Final = 1000  # sessions
SET_LEVEL_METHOD: Final = "logging/setLevel"


class LegacySessions:
    """The sessions at one server of those who call it often, or whom it can ask nothing otherwise."""

    def __init__(self, spec: ServerSpec, deps: ConnectDeps) -> None:
        self._server = spec.name
        self._possible = spec.transport == "http" and spec.era == "auto" and not spec.isolate
        self._around = deps
        self._sessions = CallerConnections(replace(spec, era=LEGACY_VERSION), deps, _ignore_notification)
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._begun: CallerConnection | None = None  # the latest
        self._not_before = 0.0
        self._refusal = ""  # why the last one did not come about
        self._asks = False  # in the middle of a call, which it can in the older era alone

    def __len__(self) -> int:
        return len(self._sessions)

    def get_connection(
        self, context: RequestContext | None, shared: ServerConnection, tasks: TaskGroup, *, tools: int
    ) -> CallerConnection | None:
        """The caller's own connection; None: the shared one is to be used. `tools`: how many there are.

        One that is still being opened is given to those alone who have to wait for it: see
        `wait_for_connection`.
        """
        if not self._possible or context is None or not shared.modern:
            return None
        caller = context.caller
        if caller is None or caller.accepts_input_required:
            return None
        if self._asks and _can_answer_questions(caller):
            return self._sessions.get_pending_or_open(caller.key) or self._begin(caller, shared, tasks, tools)
        # Which log messages are wanted belongs to a request in the newer era, and to a session in the older.
        if not shared.is_direct or (context.log_level is not None and not context.usual_level):
            return None
        own = self._sessions.get_open(caller.key)
        if own is None:
            calls = self._count(caller.key)
            if calls >= FREQUENT_CALLS or calls * tools >= FREQUENT_CALLS_TIMES_TOOLS:
                self._begin(caller, shared, tasks, tools)
        return own

    def _begin(
        self, caller: CallerChannel, shared: ServerConnection, tasks: TaskGroup, tools: int
    ) -> CallerConnection | None:
        if self._is_refused():
            return None
        around = self._build_caller_deps(caller.capabilities, shared, tools)
        own = self._sessions.open_in_background(caller.key, tasks, around)
        self._begun = own or self._begun
        return own

    async def wait_for_connection(
        self, caller_connection: CallerConnection, context: RequestContext | None
    ) -> ServerConnection | None:
        """The connection itself, once it is open, with the log level this session set; None: it failed."""
        if caller_connection.connection is None:
            await caller_connection.ready.wait()
        opened = caller_connection.connection
        if opened is None or context is None or context.usual_level:
            return opened
        level = context.log_level
        if level is not None and level != caller_connection.log_level and "logging" in opened.capabilities:
            caller_connection.log_level = level
            with suppress(ToolFailed):  # it says what it says; the session hears no more than it asked for
                await opened.fetch(SET_LEVEL_METHOD, {"level": level})
        return opened

    # -- questions that are put in the older era alone ----------------------------------------------

    def build_unsupported_error(
        self, failed: JsonObject | ToolFailed, context: RequestContext | None, shared: ServerConnection
    ) -> ServerRequestUnsupported | None:
        """Whether a call on the shared connection failed because its caller could not be asked. If so: why.

        From then on callers of the older era have sessions of their own, where they can be.
        """
        caller = None if context is None else context.caller
        if (
            caller is None
            or caller.accepts_input_required
            or not shared.modern
            or not _can_answer_questions(caller)
        ):
            return None
        if not is_unsupported_request_failure(failed):
            return None
        if not self._asks:
            self._asks = True
            self._begun, self._not_before = None, 0.0  # what was lacking before may be less than this
        again = self._possible and not self._is_refused()
        return build_unsupported_request(self._server, failed, self._build_hint(again=again), again=again)

    def _build_hint(self, *, again: bool) -> str:
        if again:
            return (
                f"{self._server} can ask this in protocol {LEGACY_VERSION} "
                "alone, and is spoken to in it from now on "
                "for this session: the next call can be asked about. Check what this one did before it is "
                "repeated."
            )
        if self._possible:
            return f"It could be asked in protocol {LEGACY_VERSION} alone, but {self._refusal}."
        return (
            f"{self._server} can ask this in protocol {LEGACY_VERSION} alone: where it speaks that as well, "
            f'`era = "{LEGACY_VERSION}"` in its entry lets it ask.'
        )

    def _build_caller_deps(
        self, capabilities: JsonObject, shared: ServerConnection, tools: int
    ) -> ConnectDeps:
        """With what the caller can do, and nothing less from the server than now.

        That it can ask outweighs extensions: servers name theirs in the newer era alone.
        """
        abilities = build_client_capabilities(capabilities)
        given = shared.capabilities
        if self._asks:
            given = {name: value for name, value in given.items() if name != "extensions"}
        standard = ConnectionProfile(capabilities=given, tools=tools, questions=abilities != NO_CAPABILITIES)
        return replace(self._around, abilities=lambda: abilities, standard=standard)

    def close(self) -> None:
        self._sessions.close()

    def _count(self, key: str) -> int:
        self._calls[key] = calls = self._calls.pop(key, 0) + 1
        if len(self._calls) > MAX_COUNTED_CALLERS:
            self._calls.popitem(last=False)
        return calls

    def _is_refused(self) -> bool:
        if self._begun is not None and self._begun.connection is None and self._begun.error is not None:
            self._refusal = str(self._begun.error)
            self._begun = None
            self._not_before = anyio.current_time() + RETRY_SECONDS
        return anyio.current_time() < self._not_before


def _can_answer_questions(caller: CallerChannel) -> bool:
    return not _QUESTION_CAPABILITIES.isdisjoint(caller.capabilities)


_QUESTION_CAPABILITIES: Final = frozenset(QUESTION_CAPABILITIES.values())


def _ignore_notification(method: str, params: JsonObject, caller: str | None) -> None:
    """What changed at the server, the shared connection is told as well."""
