"""The settings files of a running router: applied when they change, and changed by people who add servers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread

from fingerpost.catalog import Catalog
from fingerpost.catalog.injection import Judge
from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.events import MemorySink, ServerEntryChanged, SettingsChanged
from fingerpost.frozen import frozen
from fingerpost.narrow.sentence_judge import judge_in_this_process
from fingerpost.records import DroppedTool, KnownServer, ServerSpec, ServerStatus, ToolCard
from fingerpost.router.catalog_sync import build_cards_in_thread
from fingerpost.servers import ServerPool
from fingerpost.settings import Loaded, Problem, Section, Settings
from fingerpost.settings.load import SettingsPlaces
from fingerpost.settings.problems import to_error
from fingerpost.settings.servers_file import Entry, ServersFile, WrittenEntry

if TYPE_CHECKING:
    from fingerpost.router.router import Router
    from fingerpost.servers.library import SignInStore

log = logging.getLogger("fingerpost.router")

POLL_INTERVAL_S: Final = 0.5  # a change applies once a file has been the same for so long
TRIAL_MARGIN_S: Final = 5.0
# Settings that apply while the router runs. All others apply after a restart.
APPLIED_SECTIONS: Final = ("policy", "tools", "models", "profiles", "plans", "quotas")
_SERVER_FIELDS: Final = ("servers", "servers_file")

EntryChange = Literal["added", "changed", "removed"]


@frozen
class ServerTrial:
    """What came of connecting to a server once, before its entry is saved."""

    status: ServerStatus
    cards: tuple[ToolCard, ...] = ()
    dropped: tuple[DroppedTool, ...] = ()
    known: tuple[str, KnownServer] | None = None  # what to keep of it, with the hash of its entry

    @property
    def is_connected(self) -> bool:
        return self.status.state.is_connected

    @property
    def needs_sign_in(self) -> bool:
        """Whether a person must sign in first, which needs a saved entry."""
        return not self.is_connected and "servers login" in (self.status.hint or "")


async def try_server(
    spec: ServerSpec,
    settings: Settings,
    tokens: SignInStore | None = None,
    judge: Judge | None = judge_in_this_process,
) -> ServerTrial:
    """Connect to a server once and return its tools, or why that failed. Nothing is kept."""
    events = MemorySink(limit=0)
    catalog = Catalog(events=events, overrides=settings.tools, flags=settings.flags)
    if judge is not None:
        catalog.use_judge(judge)
    pool = ServerPool(
        (replace(spec, enabled=True),),
        events=events,
        limits=settings.limits,
        tokens=tokens,
        lifecycle=settings.lifecycle,
    )
    async with pool:
        await pool.read_entries()
        pool.start(spec.name)
        await pool.wait_until_settled(timeout=spec.connect_timeout + TRIAL_MARGIN_S)
        status, listing, known = pool.get_status(spec.name), pool.get_listing(spec.name), None
        if listing is not None and status.state.is_connected:
            known = pool.get_known(spec.name)
            catalog.replace_server(listing, await build_cards_in_thread(catalog, listing, Event()))
    return ServerTrial(status=status, cards=catalog.snapshot.cards, dropped=catalog.dropped, known=known)


@frozen
class EntryDraft:
    """A checked entry that is not saved yet."""

    name: str
    entry: Entry
    spec: ServerSpec
    warnings: tuple[Problem, ...] = ()


class ConfiguredEntries:
    """Reads and changes the entries of the servers file in use."""

    def __init__(self, places: SettingsPlaces, settings: Settings) -> None:
        self.places = places
        self._settings = settings
        self.file = ServersFile(
            path=places.servers, shown=places.shorten(places.servers), private=places.is_default_servers_file
        )

    def check(self, name: str, entry: Entry) -> EntryDraft:
        """Return the entry as a server. Raises `ConfigError` with everything that is wrong with it."""
        timeout = self._settings.limits.connect_timeout
        server, problems = self.places.resolve_entry(name, entry, timeout)
        wrong = tuple(problem for problem in problems if not problem.warning)
        if wrong or server.spec is None:
            raise to_error(wrong)
        return EntryDraft(name=name, entry=entry, spec=server.spec, warnings=problems)

    def find(self, name: str, loaded: Loaded) -> WrittenEntry:
        """Return an entry of the file. Raises `ConfigError`; it says where a server is that is not there."""
        entries = self.file.read_entries()
        if (found := entries.get(name)) is not None:
            return found
        if (elsewhere := _find_origin(loaded, name)) is not None:
            message = f"{name} is written in {elsewhere}, and not in {self.file.shown}"
            raise ConfigError(message, hint="change it there with an editor")
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigError(f"there is no server {name!r} in {self.file.shown}", hint=f"there are: {known}")

    def check_free(self, name: str, loaded: Loaded) -> None:
        """Raise `ConfigError` if a server has this name already."""
        there = self.file.read_entries().get(name)
        origin = _find_origin(loaded, name) if there is None else str(there.origin)
        if origin is not None:
            message = f"there is a server {name} already: {origin}"
            hint = f"choose another name, or change it with `fingerpost servers edit {name}`"
            raise ConfigError(message, hint=hint)


def _find_origin(loaded: Loaded, name: str) -> str | None:
    return next((spec.origin for spec in loaded.specs if spec.name == name and spec.origin), None)


class Configuration:
    """The settings that a router was opened with. It applies changes of their files."""

    def __init__(self, router: Router, loaded: Loaded, places: SettingsPlaces) -> None:
        self.loaded: Loaded = loaded  # as last applied
        # What of the files as they are now is not in effect.
        self.problems: tuple[str, ...] = tuple(map(_format_problem, loaded.warnings))
        self.waiting: tuple[str, ...] = ()  # changed settings that apply after a restart
        self._router = router
        self._places = places
        self._first: Settings | None = None  # as read when following began
        self._stamps: object = None
        self._applying = anyio.Lock()
        self._changing = anyio.Lock()

    @property
    def entries(self) -> ConfiguredEntries:
        """The entries of the servers file in use."""
        return ConfiguredEntries(self._places, self.loaded.settings)

    async def follow(self) -> None:
        """Apply changes of the files as they happen, until cancelled."""
        await self._begin()
        seen = self._stamps
        while True:
            await anyio.sleep(POLL_INTERVAL_S)
            before, seen = seen, await anyio.to_thread.run_sync(self._places.get_stamps)
            if seen == before and seen != self._stamps:
                await self.refresh()

    async def _begin(self) -> None:
        if self._first is not None:
            return
        self._stamps = await anyio.to_thread.run_sync(self._places.get_stamps)
        try:
            # Options of the command line are in `loaded`, too, so the files are read for comparison.
            self._first = (await anyio.to_thread.run_sync(self._places.read)).settings
        except ConfigError:  # it has changed since the start, and is reported by the first refresh
            self._first = self.loaded.settings
            self._stamps = None

    async def refresh(self) -> None:
        """Read the files now and apply what changed. A file with errors changes nothing."""
        async with self._applying:
            await self._begin()
            self._stamps = await anyio.to_thread.run_sync(self._places.get_stamps)
            try:
                loaded = await anyio.to_thread.run_sync(self._places.read)
            except ConfigError as error:
                self._report(SettingsChanged(problems=(_format_error(error),), waiting=self.waiting))
                return
            await self._apply(loaded)

    async def _apply(self, loaded: Loaded) -> None:
        before = self.loaded
        # An entry that became invalid leaves its server as it was.
        kept = tuple(spec for spec in before.specs if spec.name in loaded.invalid_servers)
        specs = (*loaded.specs, *kept)
        own = {spec.name for spec in specs}.intersection(self._router.settings.builtin.enabled)
        loaded = replace(loaded, specs=tuple(spec for spec in specs if spec.name not in own))
        assert loaded.places is not None and self._first is not None
        self._places = loaded.places
        problems = [_format_problem(one) for one in loaded.warnings]
        problems += [
            f"{name} is the name of a built-in server; yours is used after a restart" for name in own
        ]
        added, removed, changed = compare_servers(before.specs, loaded.specs)
        for name in removed:
            await self._attempt(problems, partial(self._router.remove_server, name))
        for spec in loaded.specs:
            if spec.name in changed:
                await self._attempt(problems, partial(self._router.replace_server, spec))
            elif spec.name in added:
                await self._attempt(problems, partial(self._router.add_server, spec))
        old, new = before.settings, loaded.settings
        sections = tuple(name for name in APPLIED_SECTIONS if getattr(old, name) != getattr(new, name))
        await self._router.apply_settings(before, loaded, sections)
        self.loaded = loaded
        self._report(
            SettingsChanged(
                added=added,
                removed=removed,
                changed=changed,
                sections=sections,
                waiting=tuple(find_waiting(self._first, loaded.settings)),
                problems=tuple(problems),
            )
        )

    async def _attempt(self, problems: list[str], change: Callable[[], Awaitable[None]]) -> None:
        try:
            await change()
        except FingerpostError as error:
            problems.append(_format_error(error))

    def _report(self, event: SettingsChanged) -> None:
        """Record what changed and log it, unless nothing did."""
        for problem in event.problems:
            if problem not in self.problems:
                log.warning("the settings changed, and this is not applied: %s", problem)
        for path in event.waiting:
            if path not in self.waiting:
                log.warning("%s changed; it applies after a restart", path)
        same = event.problems == self.problems and event.waiting == self.waiting
        self.problems, self.waiting = event.problems, event.waiting
        if not same or event.added or event.removed or event.changed or event.sections:
            self._router.events.emit(event)

    async def save_entry(self, draft: EntryDraft, *, by: str, change: EntryChange) -> None:
        """Write an entry to the servers file and apply it at once."""
        await self._change_file(draft.name, by, change, lambda file: file.put_entry(draft.name, draft.entry))

    async def remove_entry(self, name: str, *, by: str) -> None:
        """Remove an entry from the servers file and its server at once."""
        await self._change_file(name, by, "removed", lambda file: file.remove_entry(name))

    async def _change_file(
        self, name: str, by: str, change: EntryChange, write: Callable[[ServersFile], object]
    ) -> None:
        async with self._changing:
            file = self.entries.file
            await anyio.to_thread.run_sync(write, file)
            self._router.events.emit(ServerEntryChanged(server=name, change=change, by=by, file=file.shown))
            await self.refresh()


def compare_servers(
    before: Sequence[ServerSpec], after: Sequence[ServerSpec]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of added, removed and changed servers. Where an entry is written does not count."""
    old, new = ({spec.name: replace(spec, origin=None) for spec in specs} for specs in (before, after))
    added, removed = (name for name in new if name not in old), (name for name in old if name not in new)
    changed = (name for name in new if name in old and new[name] != old[name])
    return tuple(added), tuple(removed), tuple(changed)


def find_waiting(before: Section, after: Section, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the settings that differ and apply only after a restart."""
    for name in type(before).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new or (not prefix and name in (*APPLIED_SECTIONS, *_SERVER_FIELDS)):
            continue
        if isinstance(old, Section) and isinstance(new, Section):
            yield from find_waiting(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _format_problem(problem: Problem) -> str:
    return f"{problem} (fix: {problem.fix})" if problem.fix else str(problem)


def _format_error(error: FingerpostError) -> str:
    return f"{error} (fix: {error.hint})" if error.hint else str(error)
