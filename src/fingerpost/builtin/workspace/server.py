"""The workspace put together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.passages.meanings import default_folder
from fingerpost.builtin.premises import Premises
from fingerpost.builtin.workspace.commands.jobs import Jobs
from fingerpost.builtin.workspace.commands.sandbox import Sandbox, describe
from fingerpost.builtin.workspace.commands.tool import Terminal
from fingerpost.builtin.workspace.files.operations import OPERATIONS, Desk
from fingerpost.builtin.workspace.ground import Ground, OutsideAccess
from fingerpost.builtin.workspace.search.meaning import MeaningIndex
from fingerpost.builtin.workspace.switches import Switches
from fingerpost.builtin.workspace.tools import (
    EXECUTE,
    FILES,
    RAISED,
    TERMINAL,
    TESTS,
    WRITE,
    ai_execute,
    ai_read,
    ai_write,
    embedding_query,
    file_operations,
    run_tests,
    search_files,
    terminal_operations,
)
from fingerpost.builtin.workspace.wording import INSIDE_ONLY, reach
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.builtin.workspace.writes import UnreviewedWrites
from fingerpost.records import Effect
from fingerpost.settings import OwnRule, Settings
from fingerpost.store import data_directory, locate

NAME: Final = "workspace"
_INSTRUCTIONS: Final = (
    f"Files and commands of one working directory. Paths are seen from it; {INSIDE_ONLY} "
    "Until they are switched on, writes and commands are dry runs that show what would be done."
)


def make(premises: Premises) -> OwnServer:
    """The server of the folder the settings name."""
    settings = premises.settings
    own = settings.builtin.workspace
    root = premises.path(own.root)
    work = Workplace(
        ground=Ground(root, protected=_protected(settings, root), beyond=_outside_access(premises)),
        unreviewed=open_unreviewed(premises),
        settings=own,
        switches=Switches(
            write=settings.tool_routing.allow_write, execute=settings.tool_routing.allow_execute
        ),
    )
    meaning = MeaningIndex(work, meaning=settings.flags.dense_scores, vectors=_vectors(settings))
    jobs = Jobs(work.ground, own.background)
    sandbox = Sandbox(
        root=work.ground.root,
        network=own.sandbox_network,
        reads=_paths(premises, own.sandbox_read),
        writes=_paths(premises, own.sandbox_write),
        own=_own_files(settings),
    )
    desk, terminal = Desk(work, meaning), Terminal(work, jobs, sandbox)

    @asynccontextmanager
    async def open_all() -> AsyncGenerator[None]:
        try:
            async with jobs:
                yield
        finally:
            meaning.close()

    tools = (
        file_operations(desk),
        terminal_operations(desk, terminal),
        ai_read(desk),
        ai_write(desk),
        ai_execute(desk, terminal),
        run_tests(desk, terminal),
        search_files(desk),
        embedding_query(desk),
    )
    return OwnServer(
        NAME,
        tools,
        instructions=reach(_INSTRUCTIONS, outside=own.outside),
        rules=_rules(settings),
        open=open_all,
        context_of=premises.context_of,
        is_granted=premises.is_granted,
    )


def _outside_access(premises: Premises) -> OutsideAccess | None:
    """What lies outside, but for what decides about Fingerpost itself: its profiles, its store."""
    own = premises.settings.builtin.workspace
    if not own.outside:
        return None
    folder = premises.settings.profiles_folder
    ours = [data_directory(), *(() if folder is None else (premises.path(folder),))]
    if (file := locate(premises.settings.store.url).file) is not None:
        ours.append(file.with_name(f"{file.stem}*"))
    return OutsideAccess(sensitive=(*own.sensitive, *map(str, ours)))


def open_unreviewed(premises: Premises) -> UnreviewedWrites:
    """The list of what callers have written in the folder, beside the store."""
    place = locate(premises.settings.store.url).anchor.parent
    return UnreviewedWrites(place, premises.path(premises.settings.builtin.workspace.root))


def _paths(premises: Premises, given: Iterable[str]) -> tuple[Path, ...]:
    return tuple(Path(os.path.normpath(premises.path(path))) for path in given)


def _own_files(settings: Settings) -> tuple[Path, ...]:
    """Where Fingerpost keeps what it knows and what protects it."""
    location = locate(settings.store.url)
    files = [data_directory(), location.anchor]
    if location.file is not None:
        files += [location.file, *(Path(f"{location.file}{end}") for end in ("-wal", "-shm"))]
    if location.secret is not None:
        files.append(location.secret)
    return tuple(files)


def _protected(settings: Settings, root: Path) -> tuple[str, ...]:
    """Profiles hold rules that come before all others: wherever they lie, no model writes them.

    Nor does it write the store, where that lies in the folder.
    """
    folder = settings.profiles_folder
    named = () if folder is None or folder.startswith(("/", "~", "..")) else (f"/{folder}/*.toml",)
    ours = [f"/{file.relative_to(root)}" for file in _own_files(settings) if file.is_relative_to(root)]
    lists = {f"/{Path(file).with_name('workspace-*.writes')}".replace("//", "/") for file in ours}
    return (*settings.builtin.workspace.protected, *named, *ours, *sorted(lists))


def _rules(settings: Settings) -> Iterator[OwnRule]:
    """What needs no grant: dry runs, writes inside of the folder, and commands that a person listed."""
    yield OwnRule(
        verdict="allow", server=NAME, arguments={"dry_run": "true"}, reason="a dry run changes nothing"
    )
    inside = "it writes inside of the working directory"
    for operation, each in OPERATIONS.items():
        if each.effect is Effect.WRITE:
            yield OwnRule(verdict="allow", tool=f"{NAME}/{FILES}", operation=operation, reason=inside)
    yield OwnRule(verdict="allow", tool=f"{NAME}/{WRITE}", reason=inside)
    yield OwnRule(
        verdict="allow", tool=f"{NAME}/{TERMINAL}", operation="stop", reason="it ends what you started"
    )
    if settings.builtin.workspace.commands:
        listed = "only commands that a person listed run here"
        for operation in ("run_command", "run_background"):
            yield OwnRule(verdict="allow", tool=f"{NAME}/{TERMINAL}", operation=operation, reason=listed)
        yield OwnRule(verdict="allow", tool=f"{NAME}/{EXECUTE}", reason=listed)
    if settings.tool_routing.allow_execute:
        how = describe(settings.builtin.workspace)
        for operation in ("run_command", "run_background"):
            yield OwnRule(verdict="ask", tool=f"{NAME}/{TERMINAL}", operation=operation, reason=how)
        for tool in (EXECUTE, TESTS):
            yield OwnRule(verdict="ask", tool=f"{NAME}/{tool}", reason=how)
        raised = "it runs with all your rights, outside of the sandbox"
        yield OwnRule(verdict="ask", tool=f"{NAME}/{TERMINAL}", operation=RAISED, reason=raised)


def _vectors(settings: Settings) -> Path:
    """Vectors of passages lie beside those of tools."""
    given = settings.narrow.vectors
    return default_folder() if given is None else Path(given).expanduser() / "passages"
