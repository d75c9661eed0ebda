"""Servers and pins: status, enabling, reconnecting, entries of servers, and trusted tool definitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final, Literal, cast

import anyio.to_thread
from pydantic import Field

from fingerpost.call.execution import BreakerState
from fingerpost.catalog import build_tool_key
from fingerpost.catalog.pins import is_server_key
from fingerpost.errors import ConfigError, ServerError
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    ChangedInstructions,
    DefinitionFinding,
    DisabledKind,
    Effect,
    JsonObject,
    Pin,
    Quarantined,
    Right,
    ServerState,
    ServerStatus,
    Transport,
)
from fingerpost.router.configuration import Configuration, EntryChange, EntryDraft
from fingerpost.settings.servers_file import Entry, WrittenEntry, mask_entry, parse_pasted, restore_secrets
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    ApiResponse,
    OperationGroup,
    PageCursor,
    PageLimit,
    declare_operation,
    split_page,
)
from fingerpost.surfaces.api.tools import DefinitionChange, InstructionsChange, SwitchBody
from fingerpost.surfaces.api.visibility import ManagedScope, check_unscoped, is_scoped

PinState = Literal["quarantined", "same", "not_seen"]
_STATE_ORDER: Final[Mapping[PinState, str]] = {"quarantined": "0", "same": "1", "not_seen": "1"}


@frozen
class PinQuery:
    """Filter and page of pins."""

    state: PinState | None = None
    limit: PageLimit = 100
    before: PageCursor | None = None


@frozen
class PinLine:
    """A trusted tool definition. `not_seen`: no server offers the tool now. A tool that is new on a known
    server has no fingerprint.
    """

    key: str
    state: PinState
    fingerprint: str
    pinned_at: datetime
    accepted_by: str | None  # None: pinned when first seen
    change: DefinitionChange | None = None


@frozen
class PinPage:
    """One page of pins: those that need a review first, then sorted by key."""

    items: tuple[PinLine, ...]
    next: str | None = None


@frozen
class AcceptBody:
    """The fingerprint of the reviewed definition or text. If it has changed since, it is not accepted."""

    fingerprint: Annotated[str, Field(min_length=1, max_length=200)]


class PinOperations(OperationGroup):
    """The operations about trusted definitions."""

    tag = "pins"

    @declare_operation("GET", "/api/pins", right=Right.WATCH)
    async def list_pins(self, request: ApiRequest, query: PinQuery) -> PinPage:
        """Trusted definitions, and those that changed since."""
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        kept = await self._router.store.pins.list_all()
        quarantined = self._get_quarantined()
        waiting = {key: entry.pin for key, entry in quarantined.items() if entry.new}
        pins = {
            key: pin
            for key, pin in {**waiting, **kept}.items()
            if not is_server_key(key) and bounds.covers_tool(key)
        }
        offered = {card.key for card in (*self._router.tools.cards, *self._router.catalog.disabled.cards)}

        def find() -> PinPage:
            states: dict[str, PinState] = {
                key: "quarantined" if key in quarantined else "same" if key in offered else "not_seen"
                for key in pins
            }
            # The sort key is also the page cursor.
            sort_keys = sorted((f"{_STATE_ORDER[states[key]]}:{key}", key) for key in pins)
            found = [
                (sort_key, key)
                for sort_key, key in sort_keys
                if query.state in (None, states[key]) and (query.before is None or sort_key > query.before)
            ]
            page, last = split_page(found, query.limit)
            items = tuple(_build_pin_line(pins[key], states[key], quarantined.get(key)) for _, key in page)
            return PinPage(items=items, next=None if last is None else last[0])

        return await anyio.to_thread.run_sync(find)

    @declare_operation("POST", "/api/pins/{server}/{tool}/accept", right=Right.MANAGE, problems=(404, 409))
    async def accept_pin(self, request: ApiRequest, server: str, tool: str, body: AcceptBody) -> PinLine:
        """Trust the changed definition of a tool."""
        quarantined = self._get_quarantined()
        key = next(
            (key for key in (f"{server}/{tool}", build_tool_key(server, tool)) if key in quarantined), None
        )
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        if key is None or not bounds.covers_tool(key):
            detail = f"No changed definition of {server}/{tool} waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        seen = quarantined[key].card.fingerprint
        if body.fingerprint != seen:
            detail = f"{key} has changed since it was shown. Review the new difference."
            raise ApiProblem(409, "The definition changed again", detail, fingerprint=seen)
        pin = await self._router.accept(key, by=request.principal.name, fingerprint=seen)
        return _build_pin_line(pin, "same", None)

    def _get_quarantined(self) -> dict[str, Quarantined]:
        return {entry.card.key: entry for entry in self._router.catalog.quarantined}


def _build_pin_line(pin: Pin, state: PinState, quarantined: Quarantined | None) -> PinLine:
    change = None if quarantined is None else DefinitionChange.from_entry(quarantined)
    return copy_fields(PinLine, pin, state=state, change=change)


_ONE_PATH: Final = "/api/servers/{server}"
PROBE_TIMEOUT_S: Final = 2.0


@frozen
class BreakerLine:
    """State of the server's circuit breaker. After too many failures the server is not called for a while."""

    state: BreakerState = BreakerState.CLOSED
    reason: str = ""
    failures: int = 0  # consecutive
    retry_in: float | None = None  # seconds until the next attempt


@frozen
class SwitchedOff:
    """Who disabled the server, when and why."""

    by: str
    at: datetime
    reason: str


@frozen
class ServerLine:
    """State of one server. `on` is whether it is enabled; `state` is its connection state."""

    name: str
    on: bool
    state: ServerState
    reason: str = ""
    hint: str = ""  # how to fix the problem
    since: datetime
    transport: Transport
    version: str = ""  # name and version as reported
    protocol: str = ""
    tools: int = 0  # listed by the server
    offered: int = 0  # of these, those that can be used
    hidden: str = ""  # why tools wait for a review
    dropped: int = 0  # invalid tools that were dropped
    left_out: tuple[str, ...] = ()  # each listed tool that cannot be used, with the reason
    connect_ms: float | None = None
    latency: float | None = None  # milliseconds of the last probe, if there was one
    attempts: int = 0
    retry_in: float | None = None
    breaker: BreakerLine
    switched_off: SwitchedOff | None = None  # None: not disabled at run time
    instructions_change: InstructionsChange | None = None  # changed or suspicious instructions to review
    instructions_findings: tuple[DefinitionFinding, ...] = ()  # empty once a person has accepted them
    stderr_tail: str = ""


@frozen
class ServerPage:
    """All servers in configured order, and what of the settings files is not in effect."""

    items: tuple[ServerLine, ...]
    next: str | None = None
    file: str | None = None  # the file that servers are added to; None: they cannot be added here
    problems: tuple[str, ...] = ()  # what in the files could not be applied
    waiting: tuple[str, ...] = ()  # changed settings that apply after a restart


EntryObject = Annotated[
    JsonObject,
    Field(description='As in an `mcpServers` file: {"command", "args", "env", "cwd"} or {"url", "headers"}'),
]
CheckFlag = Annotated[
    bool, Field(description="Connect first, and save only if that works; false saves without trying")
]


@frozen
class TrialBody:
    """An entry to try. It may be what a README shows, with the name and `mcpServers` around it."""

    name: Annotated[str, Field(max_length=200, description="Needed if `entry` does not contain it")] = ""
    entry: EntryObject


@frozen
class NewServerBody:
    """A server to add. The entry may be what a README shows, with the name and `mcpServers` around it."""

    name: Annotated[str, Field(max_length=200, description="Needed if `entry` does not contain it")] = ""
    entry: EntryObject
    check: CheckFlag = True


@frozen
class EntryBody:
    """The new entry of a server, complete. Masked values stay as they are stored."""

    entry: EntryObject
    check: CheckFlag = True


@frozen
class TrialTool:
    """A tool that a server would bring."""

    name: str
    description: str
    effect: Effect
    certain: bool  # whether the effect is certain; if not, calls need approval


@frozen
class TrialResult:
    """What came of connecting once. If `needs_sign_in`: save it, then run `fingerpost servers login NAME`."""

    name: str
    entry: JsonObject  # as it would be saved; secrets are masked
    connected: bool
    needs_sign_in: bool
    reason: str = ""  # why it is not connected
    hint: str = ""  # how to fix that
    version: str = ""  # name and version as reported
    protocol: str = ""
    connect_ms: float | None = None
    tools: tuple[TrialTool, ...] = ()
    dropped: tuple[str, ...] = ()  # invalid tools and why
    warnings: tuple[str, ...] = ()  # about the entry
    stderr_tail: str = ""


@frozen
class ServerEntryView:
    """The entry of a server as it is written. Secrets in it are masked."""

    name: str
    file: str  # the file with the entry, and its line
    editable: bool  # whether it can be changed here: only entries of the servers file in use
    entry: JsonObject | None = None  # None: it is not in the servers file


@frozen
class SavedServer:
    """A server that was added or changed, and the trial before that."""

    server: ServerLine
    file: str
    trial: TrialResult | None = None  # None: it was not tried


def _split_pasted(name: str, pasted: Entry) -> tuple[str, Entry]:
    """Return the name and the entry of a server. Raises `ApiProblem` unless there is one of each."""
    try:
        found = parse_pasted(pasted)
    except ConfigError as error:
        raise ApiProblem(422, "Invalid entry", f"{error}.", hint=error.hint or "") from None
    if len(found) > 1:
        detail = f"These are {len(found)} servers: {', '.join(found)}. Send them one by one."
        raise ApiProblem(422, "One server at a time", detail, servers=list(found))
    ((written, entry),) = found.items()
    if not (chosen := name or written):
        raise ApiProblem(422, "The name is missing", "Send `name`, too: the entry does not contain it.")
    return chosen, entry


class ServerOperations(OperationGroup):
    """The operations about servers within the caller's scope."""

    tag = "servers"

    @declare_operation("GET", "/api/servers", right=Right.WATCH)
    async def list_servers(self, request: ApiRequest) -> ServerPage:
        """State of every server."""
        items = tuple(self._build_server_line(status) for status in self._list_visible(request))
        configuration = self._router.configuration
        if configuration is None or is_scoped(request.principal):
            return ServerPage(items=items)
        return ServerPage(
            items=items,
            file=configuration.entries.file.shown,
            problems=configuration.problems,
            waiting=configuration.waiting,
        )

    @declare_operation(
        "POST", "/api/server-trials", right=Right.MANAGE, problems=(409, 422), cancels_on_disconnect=True
    )
    async def try_server(self, request: ApiRequest, body: TrialBody) -> TrialResult:
        """Connect to a server once and show the tools it brings; nothing is saved."""
        configuration = self._get_configuration(request)
        name, entry = _split_pasted(body.name, body.entry)
        stored = (await anyio.to_thread.run_sync(configuration.entries.file.read_entries)).get(name)
        if stored is not None:  # a trial of a changed entry
            entry = restore_secrets(entry, stored.values)
        return await self._try_draft(await self._check_entry(configuration, name, entry))

    @declare_operation("POST", "/api/servers", right=Right.MANAGE, status=201, problems=(409, 422))
    async def add_server(self, request: ApiRequest, body: NewServerBody) -> SavedServer:
        """Add a server to the servers file and connect it. It is tried first."""
        configuration = self._get_configuration(request)
        name, entry = _split_pasted(body.name, body.entry)
        entries = configuration.entries
        try:
            await anyio.to_thread.run_sync(entries.check_free, name, configuration.loaded)
        except ConfigError as error:
            raise ApiProblem(409, "The name is taken", f"{error}.") from None
        draft = await self._check_entry(configuration, name, restore_secrets(entry, {}))
        return await self._save(request, configuration, draft, "added", check=body.check)

    @declare_operation("GET", f"{_ONE_PATH}/entry", right=Right.MANAGE, covers_all=True, problems=(404,))
    async def get_server_entry(self, request: ApiRequest, server: str) -> ServerEntryView:
        """The entry of a server; secrets are masked."""
        spec = self._router.servers.get_spec(self._check_name(request, server))
        configuration = self._router.configuration
        if configuration is not None:
            written = (await anyio.to_thread.run_sync(configuration.entries.file.read_entries)).get(server)
            if written is not None:
                entry = cast("JsonObject", mask_entry(written.values))
                return ServerEntryView(name=server, file=str(written.origin), editable=True, entry=entry)
        return ServerEntryView(name=server, file=spec.origin or "", editable=False)

    @declare_operation("PUT", _ONE_PATH, right=Right.MANAGE, problems=(404, 409, 422))
    async def change_server(self, request: ApiRequest, server: str, body: EntryBody) -> SavedServer:
        """Change the entry of a server in the servers file. The new one is tried first."""
        configuration = self._get_configuration(request)
        written = await self._find_entry(configuration, server)
        entry = restore_secrets(_split_pasted(server, body.entry)[1], written.values)
        draft = await self._check_entry(configuration, server, entry)
        return await self._save(request, configuration, draft, "changed", check=body.check)

    @declare_operation("DELETE", _ONE_PATH, right=Right.MANAGE, status=204, problems=(404, 409))
    async def remove_server(self, request: ApiRequest, server: str) -> ApiResponse:
        """Remove a server from the servers file. Calls that run on it finish."""
        configuration = self._get_configuration(request)
        await self._find_entry(configuration, server)
        await configuration.remove_entry(server, by=request.principal.name)
        await self._router.store.journal.flush()
        return ApiResponse(status=204)

    def _get_configuration(self, request: ApiRequest) -> Configuration:
        """Return the configuration, for callers that are not limited to some tools. Raises `ApiProblem`."""
        check_unscoped(request.principal)
        if (configuration := self._router.configuration) is None:
            detail = (
                "The servers were given by the program that started Fingerpost; there is no servers file."
            )
            raise ApiProblem(409, "Servers cannot be changed here", detail)
        return configuration

    async def _find_entry(self, configuration: Configuration, name: str) -> WrittenEntry:
        try:
            return await anyio.to_thread.run_sync(configuration.entries.find, name, configuration.loaded)
        except ConfigError as error:
            detail = f"{str(error)[:1].upper()}{str(error)[1:]}."
            there = any(spec.name == name for spec in configuration.loaded.specs)
            title = "The entry is in another file" if there else "There is no such entry"
            raise ApiProblem(409 if there else 404, title, detail, hint=error.hint or "") from None

    async def _check_entry(self, configuration: Configuration, name: str, entry: Entry) -> EntryDraft:
        try:
            return await anyio.to_thread.run_sync(configuration.entries.check, name, entry)
        except ConfigError as error:
            raise ApiProblem(422, "Invalid entry", str(error), hint=error.hint or "") from None

    async def _try_draft(self, draft: EntryDraft) -> TrialResult:
        trial = await self._router.try_server(draft.spec)
        status = trial.status
        return copy_fields(
            TrialResult,
            status,
            name=draft.name,
            entry=cast("JsonObject", mask_entry(draft.entry)),
            connected=trial.is_connected,
            needs_sign_in=trial.needs_sign_in,
            reason=status.reason or "",
            hint=status.hint or "",
            version=status.product or "",
            protocol=status.protocol or "",
            tools=tuple(
                TrialTool(
                    name=card.name,
                    description=card.description,
                    effect=card.effect_of(None),
                    certain=card.certain,
                )
                for card in trial.cards
            ),
            dropped=tuple(f"{drop.name}: {drop.reason}" for drop in trial.dropped),
            warnings=tuple(map(str, draft.warnings)),
        )

    async def _save(
        self,
        request: ApiRequest,
        configuration: Configuration,
        draft: EntryDraft,
        change: EntryChange,
        *,
        check: bool,
    ) -> SavedServer:
        trial = await self._try_draft(draft) if check and draft.spec.enabled else None
        if trial is not None and not trial.connected and not trial.needs_sign_in:
            detail = f"{draft.name} could not be connected: {trial.reason or 'it did not answer in time'}."
            fix = trial.hint or "Correct the entry, or send check: false to save it anyway."
            raise ApiProblem(
                422, "The server could not be connected", detail, hint=fix, stderr_tail=trial.stderr_tail
            )
        await configuration.save_entry(draft, by=request.principal.name, change=change)
        await self._router.store.journal.flush()
        line = self._build_server_line(self._router.servers.get_status(draft.name))
        return SavedServer(server=line, file=configuration.entries.file.shown, trial=trial)

    @declare_operation("GET", _ONE_PATH, right=Right.WATCH, problems=(404,))
    async def get_server(self, request: ApiRequest, server: str) -> ServerLine:
        """State of one server, after a probe."""
        name = self._check_name(request, server)
        with suppress(ServerError):  # a failing server must be shown too
            await self._router.servers.probe(name, timeout=PROBE_TIMEOUT_S)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation("POST", f"{_ONE_PATH}/switch", right=Right.MANAGE, problems=(404, 409))
    async def switch_server(self, request: ApiRequest, server: str, body: SwitchBody) -> ServerLine:
        """Switch a server off (disconnects it and hides its tools) or on."""
        name = self._check_name(request, server)
        self._check_enabled(name)
        await self._router.disabled_tools.set_server_enabled(
            name, enabled=body.on, by=request.principal.name, reason=body.reason
        )
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation("POST", f"{_ONE_PATH}/reconnect", right=Right.MANAGE, problems=(404, 409))
    async def reconnect_server(self, request: ApiRequest, server: str) -> ServerLine:
        """Reconnect now, without waiting for the next attempt."""
        name = self._check_name(request, server)
        self._check_enabled(name)
        if self._router.disabled_tools.find_entry(DisabledKind.SERVER, name) is not None:
            raise ApiProblem(409, "The server is switched off", f"Switch {name} on; it connects then.")
        await self._router.servers.reconnect(name)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation("POST", f"{_ONE_PATH}/breaker/reset", right=Right.MANAGE, problems=(404,))
    async def reset_breaker(self, request: ApiRequest, server: str) -> ServerLine:
        """Call a server again that failed too often."""
        name = self._check_name(request, server)
        self._router.calls.runner.reset_breaker(name)
        return self._build_server_line(self._router.servers.get_status(name))

    @declare_operation("POST", f"{_ONE_PATH}/instructions/accept", right=Right.MANAGE, problems=(404, 409))
    async def accept_instructions(self, request: ApiRequest, server: str, body: AcceptBody) -> ServerLine:
        """Accept the changed instructions of a server; they are passed on again."""
        name = self._check_name(request, server)
        changed = self._find_changed_instructions(name)
        if changed is None:
            detail = f"No changed instructions of {name} wait to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        if body.fingerprint != changed.fingerprint:
            detail = (
                f"{name} has changed its instructions again since they were shown. Review the new difference."
            )
            raise ApiProblem(409, "The text changed again", detail, fingerprint=changed.fingerprint)
        by = request.principal.name
        await self._router.accept_instructions(name, by=by, fingerprint=changed.fingerprint)
        return self._build_server_line(self._router.servers.get_status(name))

    def _find_changed_instructions(self, name: str) -> ChangedInstructions | None:
        return next((one for one in self._router.catalog.changed_instructions if one.server == name), None)

    def _check_name(self, request: ApiRequest, name: str) -> str:
        """Return the name if the caller may see this server. Raises `ApiProblem`."""
        known = [status.name for status in self._list_visible(request)]
        if name not in known:
            detail = f"There is no server named {name!r}."
            raise ApiProblem(404, "There is no such server", detail, servers=known[:50])
        return name

    def _list_visible(self, request: ApiRequest) -> list[ServerStatus]:
        """Return the servers that the caller may see."""
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        return [status for status in self._router.servers.statuses if bounds.covers_server(status.name)]

    def _check_enabled(self, name: str) -> None:
        """Raise `ApiProblem` for a server that is disabled in the settings; only they can enable it."""
        status = self._router.servers.get_status(name)
        if (
            status.state is ServerState.DISABLED
            and self._router.disabled_tools.find_entry(DisabledKind.SERVER, name) is None
        ):
            detail = f"Set `enabled` of {name} in the settings, and start again."
            raise ApiProblem(409, "The server is disabled in the settings", detail)

    def _build_server_line(self, status: ServerStatus) -> ServerLine:
        name = status.name
        off = self._router.disabled_tools.find_entry(DisabledKind.SERVER, name)
        breaker = self._router.calls.runner.breakers.get(name)
        changed = self._find_changed_instructions(name)
        return copy_fields(
            ServerLine,
            status,
            on=off is None and status.state is not ServerState.DISABLED,
            reason=status.reason or "",
            hint=status.hint or "",
            version=status.product or "",
            protocol=status.protocol or "",
            offered=self._router.catalog.count_offered(name),
            hidden=self._router.catalog.describe_quarantine(name),
            left_out=tuple(
                f"{one.name}: {one.reason}"
                for one in self._router.catalog.dropped
                if one.server == name and not one.switched_off
            ),
            latency=self._router.servers.get_latency(name),
            breaker=BreakerLine() if breaker is None else copy_fields(BreakerLine, breaker),
            switched_off=None if off is None else copy_fields(SwitchedOff, off),
            instructions_change=None if changed is None else InstructionsChange.from_entry(changed),
            instructions_findings=self._router.catalog.get_instructions_findings(name),
        )
