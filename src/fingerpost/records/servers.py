"""Tool servers: how to connect, and their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol

from fingerpost.frozen import build_repr, frozen
from fingerpost.records.calls import Call, CallContext, CallFault, ParameterError
from fingerpost.records.json import Json, JsonObject

Transport = Literal["stdio", "http", "sse", "in_process"]
Era = Literal["auto", "2025-11-25", "2026-07-28"]
NewTools = Literal["review", "allow"]
Lifecycle = Literal["on_demand", "at_start", "always"]

# `Listing.package` of servers that run in this process or belong to Fingerpost.
IN_PROCESS: Final = "in-process"
OWN_PROGRAM: Final = "fingerpost builtin"  # a built-in server that runs as a separate program


OAuthGrant = Literal["authorization_code", "client_credentials"]
# Whose sign-in a server gets: one for all callers, that of each caller, a token that the caller's own is
# exchanged for, or none.
ServerAuth = Literal["shared", "per_user", "exchange", "none"]


@frozen
class OAuthSpec:
    """How to sign in to a server that requires it."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0
    grant: OAuthGrant = "authorization_code"  # client_credentials: as the client itself, without a person
    issuer: str | None = None  # the authorization server that knows the client; the secret goes nowhere else
    token_endpoint: str | None = None  # where tokens are exchanged, if the issuer does not say it
    audience: str | None = None  # of exchanged tokens; None: the resource is the server's URL


class Precheck(Protocol):
    """What an in-process server does before calls run and before approval is requested."""

    def find_argument_errors(self, tool: str, arguments: JsonObject) -> tuple[ParameterError, ...]:
        """Return errors in the arguments beyond their schema. Only the arguments are examined."""
        ...

    async def get_grant_reason(self, tool: str, arguments: JsonObject) -> str:
        """Return why this exact call requires a grant regardless of the rules, or an empty string."""
        ...

    async def find_fault(self, tool: str, arguments: JsonObject) -> CallFault | None:
        """Return why the call would fail now, or None. Has no side effects."""
        ...

    async def note_write(self, call: Call, server: ServerSpec, context: CallContext) -> None:
        """Take note of a call of another server that may change something and is about to be sent."""
        ...


@frozen
class ServerSpec:
    """One configured server. Values that may be secret are not in its repr.

    Fields:
        name: name of the server
        transport: stdio, http, sse or in_process
        command: program to start
        args: its arguments
        env: its environment variables
        cwd: its working directory
        url: address of a server over HTTP
        headers: HTTP headers
        oauth: how to sign in
        auth: whose sign-in it gets
        era: protocol version, or auto
        enabled: False: it is not connected
        connect_timeout: seconds to connect
        prefix: whether its tools are exposed as `server__tool`; False: under their own names
        isolate: one connection for each caller instead of a shared one
        forward_authorization: whether the caller's token is forwarded; never by default
        trust_hints: whether the operator trusts its annotations, such as `readOnlyHint`
        new_tools: whether new tools on a known server wait for review
        review_new: whether all tools of a new server wait for review; None: as in the settings
        lifecycle: None: as in the settings
        idle_seconds: a program without calls for so long is stopped; 0: never
        keep_running: it has state between calls, so it is not stopped
        allow_link_local: whether its address may be link-local, where clouds serve credentials
        in_process: an MCP server object in this process
        precheck: of an in-process server
        origin: file and line of this entry
    """

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuthSpec | None = None
    auth: ServerAuth = "shared"
    era: Era = "auto"
    enabled: bool = True
    connect_timeout: float = 30.0
    prefix: bool = True
    isolate: bool = False
    forward_authorization: bool = False
    trust_hints: bool = False
    new_tools: NewTools = "review"
    review_new: bool | None = None
    lifecycle: Lifecycle | None = None
    idle_seconds: float | None = None
    keep_running: bool = False
    allow_link_local: bool = False
    in_process: object | None = field(default=None, repr=False)
    precheck: Precheck | None = field(default=None, repr=False)
    origin: str | None = None

    __repr__ = build_repr("name", "transport", "command")

    @property
    def identifies_callers(self) -> bool:
        """Whether each caller's own credentials are sent, so that connections and results are apart."""
        return self.forward_authorization or self.auth in ("per_user", "exchange")


@frozen
class KnownPath:
    """A path that a request may mean without naming it, and what it is known from."""

    path: str
    source: str


@frozen
class ServerPaths:
    """The directories and the Git repositories of a server that runs as a program on this machine."""

    directories: tuple[KnownPath, ...] = ()
    repositories: tuple[KnownPath, ...] = ()


class ServerState(StrEnum):
    """The state of a server."""

    IDLE = "idle"  # not started yet
    ASLEEP = "asleep"  # not running; its tools are known, and the first call starts it
    CONNECTING = "connecting"
    READY = "ready"
    DEGRADED = "degraded"  # responds, but something is missing or wrong
    DOWN = "down"
    DISABLED = "disabled"

    @property
    def is_connected(self) -> bool:
        """Whether the server responds."""
        return self in (ServerState.READY, ServerState.DEGRADED)

    @property
    def is_usable(self) -> bool:
        """Whether its tools can be called: it responds, or the first call starts it."""
        return self.is_connected or self is ServerState.ASLEEP


@frozen
class ServerStatus:
    """The status of one server at one moment.

    Fields:
        name: name of the server
        transport: stdio, http, sse or in_process
        state: idle, asleep, connecting, ready, degraded, down or disabled
        since: when it changed to this state
        reason: why it is in this state
        protocol: the negotiated protocol version
        product: the server's name and version
        connect_ms: time of the last connect
        tools: number of tools
        dropped: tools that could not be used
        attempts: connection attempts
        hint: what the user can do about the reason
        retry_in: seconds until the next attempt
        stderr_tail: last lines that its program wrote to stderr
    """

    name: str
    transport: Transport
    state: ServerState
    since: datetime
    reason: str | None = None
    protocol: str | None = None
    product: str | None = None
    connect_ms: float | None = None
    tools: int = 0
    dropped: int = 0
    attempts: int = 0
    hint: str | None = None
    retry_in: float | None = None
    stderr_tail: str = ""

    __repr__ = build_repr("name", "state", "tools", "reason")

    @property
    def lists_nothing(self) -> bool:
        """Whether it responds and its tools could not be listed."""
        return self.state is ServerState.DEGRADED and not self.tools


@frozen
class DroppedTool:
    """A listed tool that is invalid or disabled, with the reason."""

    server: str
    name: str
    reason: str
    switched_off: bool = False  # disabled by a person, not invalid


@frozen
class Listing:
    """All tools of one server: definitions exactly as sent, in order."""

    server: str
    definitions: tuple[JsonObject, ...] = ()
    dropped: tuple[DroppedTool, ...] = ()
    instructions: str | None = None
    prefix: bool = True
    package: str | None = None  # the program its entry starts, or its URL; None: unknown
    trust_hints: bool = False  # whether `readOnlyHint` is trusted
    new_tools: NewTools = "allow"
    review_new: bool | None = None  # whether all tools wait if the server is new; None: as in the settings
    truncated: str | None = None  # why the list is incomplete
    personal: frozenset[str] = frozenset()  # names of tools listed only for callers' own keys


@frozen
class ServerResources:
    """Resources, templates and prompts of one server: definitions exactly as sent, in order."""

    server: str
    capabilities: JsonObject = field(default_factory=dict[str, Json])  # as declared by the server
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()  # of resources
    prompts: tuple[JsonObject, ...] = ()


@frozen
class KnownServer:
    """What a server listed when it was last connected, and when."""

    listing: Listing
    listed_at: datetime
    resources: ServerResources | None = None  # None: not read then
    product: str | None = None
    protocol: str | None = None
