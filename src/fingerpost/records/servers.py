"""What we know of a tool server: how to reach it, and how it is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol

from fingerpost.frozen import frozen
from fingerpost.records.calls import CallFault, ParameterError
from fingerpost.records.json import Json, JsonObject

Transport = Literal["stdio", "http", "sse", "in_process"]
Era = Literal["auto", "2025-11-25", "2026-07-28"]
NewTools = Literal["review", "allow"]

# `ShortlistInput.package` of servers whose code is ours or the program's own.
IN_PROCESS: Final = "in-process"
OWN_PROGRAM: Final = "fingerpost builtin"  # one of our own servers that runs alone


@frozen
class OAuthSpec:
    """How to sign in to a server that asks for it."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0


class Precheck(Protocol):
    """What a server in this process says about a call before it runs and before a person is asked."""

    def check_arguments(self, tool: str, arguments: JsonObject) -> tuple[ParameterError, ...]:
        """What is wrong with the arguments beyond their schema. Looks at nothing but them."""
        ...

    async def needs_grant(self, tool: str, arguments: JsonObject) -> str:
        """Why only a person's grant for this very call lets it run, whatever rules say; empty: no grant."""
        ...

    async def check_feasible(self, tool: str, arguments: JsonObject) -> CallFault | None:
        """Why the call would fail now; None where nothing is known against it. Changes nothing."""
        ...


@frozen
class ServerSpec:
    """One configured server. Values that may be secret stay out of its printed form."""

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuthSpec | None = None
    era: Era = "auto"
    enabled: bool = True
    connect_timeout: float = 30.0
    prefix: bool = True  # its tools are exposed as `server__tool`; False: under their own names
    isolate: bool = False  # one connection for each caller instead of one for all
    forward_authorization: bool = False  # the caller's own token goes along; never by default
    trust_hints: bool = False  # the operator relies on what it says of its tools: `readOnlyHint` is believed
    new_tools: NewTools = "review"  # whether tools it offers later wait for a person
    allow_link_local: bool = False  # its address may be link-local, where clouds keep credentials
    in_process: object | None = field(default=None, repr=False)  # an MCP server object of the caller's
    precheck: Precheck | None = field(default=None, repr=False)  # of a server in this process
    origin: str | None = None  # the file and line this entry was read from


class ServerState(StrEnum):
    """One word for how a server is doing; the reason says why."""

    IDLE = "idle"  # not asked for yet
    CONNECTING = "connecting"
    READY = "ready"
    DEGRADED = "degraded"  # answers, but something of it is missing or wrong
    DOWN = "down"
    DISABLED = "disabled"


@frozen
class ServerStatus:
    """How one server is doing, at one moment."""

    name: str
    transport: Transport
    state: ServerState
    since: datetime
    reason: str | None = None
    protocol: str | None = None  # the negotiated protocol version, which is also the era
    product: str | None = None  # what the server calls itself, with its version
    connect_ms: float | None = None
    tools: int = 0
    dropped: int = 0
    attempts: int = 0
    hint: str | None = None  # what the person can do about the reason
    retry_in: float | None = None
    stderr_tail: str = ""


@frozen
class DroppedTool:
    """A tool the server listed and we could not take, or a person switched off, with the reason."""

    server: str
    name: str
    reason: str
    switched_off: bool = False  # by a person: nothing is wrong


@frozen
class Listing:
    """All tools one server offers: definitions exactly as it sent them, in its order."""

    server: str
    definitions: tuple[JsonObject, ...] = ()
    dropped: tuple[DroppedTool, ...] = ()
    instructions: str | None = None
    prefix: bool = True
    package: str | None = None  # which program its entry starts, or which address it names; None: not known
    trust_hints: bool = False  # `readOnlyHint` is believed
    new_tools: NewTools = "allow"
    truncated: str | None = None  # why the list was cut, when it was
    personal: frozenset[str] = frozenset()  # names of tools listed only to callers with a key of their own


@frozen
class ServerResources:
    """What one server offers besides tools: definitions exactly as it sent them, in its order."""

    server: str
    capabilities: JsonObject = field(default_factory=dict[str, Json])  # what it says it can do
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()  # of resources
    prompts: tuple[JsonObject, ...] = ()
