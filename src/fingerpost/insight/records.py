"""What is read off the journal."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fingerpost.frozen import frozen
from fingerpost.records import Packet
from fingerpost.store.journal import JournalEntry


@frozen
class PacketLine:
    """One request, or one bare call (of an MCP client), in one line. Grows while it is on its way."""

    packet_id: str
    kind: Literal["request", "call"]
    seq: int  # of its first event in the journal
    last_seq: int
    at: datetime
    last_at: datetime
    prompt: str = ""  # the beginning of the person's words; of a bare call: the tool's name
    language: str = "und"
    caller: str | None = None
    conversation: str | None = None
    mode: str | None = None
    profile: str | None = None
    state: Literal["running", "waiting", "ended"] = "running"
    outcome: str | None = None  # a `RouteOutcome`; of a bare call: "succeeded" or the kind of its error
    next_step: str = ""  # what to do about a request that nobody works on any more
    need: str | None = None  # a `NeedVerdict`
    considered: int = 0
    offered: int = 0
    tools: tuple[str, ...] = ()  # called, in order
    pending_id: str | None = None
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    saved_tokens: int | None = None  # against offering every tool; None: nothing was offered
    fallbacks: int = 0
    failures: int = 0  # attempts that failed
    milliseconds: float | None = None
    parent: str | None = None  # the request on whose behalf it was made: it is a subagent's
    children: tuple[str, ...] = ()  # the requests made on its behalf, in order


@frozen
class PacketQuery:
    """Which packets are wanted. Empty parts set no bound; `before` goes on from an older line's `seq`."""

    limit: int = 50
    before: int | None = None
    text: str = ""
    kind: Literal["request", "call"] | None = None
    outcome: str | None = None
    tool: str | None = None
    caller: str | None = None
    conversation: str | None = None
    mode: str | None = None


@frozen
class PacketPage:
    """Newest first. `next` is the `before` of the page behind this one; None: there is none."""

    items: tuple[PacketLine, ...]
    next: int | None = None


@frozen
class PacketDetail:
    """Everything that happened to one packet."""

    line: PacketLine
    events: tuple[JournalEntry, ...]
    packet: Packet | None = None  # None: a bare call
