"""The workspace put together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.passages.meanings import default_folder
from fingerpost.builtin.premises import Premises
from fingerpost.builtin.workspace.commands.jobs import Jobs
from fingerpost.builtin.workspace.commands.tool import Terminal
from fingerpost.builtin.workspace.files.operations import OPERATIONS, Desk
from fingerpost.builtin.workspace.ground import Ground, OutsideAccess
from fingerpost.builtin.workspace.search.meaning import MeaningIndex
from fingerpost.builtin.workspace.switches import Switches
from fingerpost.builtin.workspace.tools import (
    EXECUTE,
    FILES,
    TERMINAL,
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
    work = Workplace(
        ground=Ground(
            premises.path(own.root), protected=_protected(settings), beyond=_outside_access(premises)
        ),
        settings=own,
        switches=Switches(
            write=settings.tool_routing.allow_write, execute=settings.tool_routing.allow_execute
        ),
    )
    meaning = MeaningIndex(work, meaning=settings.flags.dense_scores, vectors=_vectors(settings))
    jobs = Jobs(work.ground, own.background)
    desk, terminal = Desk(work, meaning), Terminal(work, jobs)

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


def _protected(settings: Settings) -> tuple[str, ...]:
    """Profiles hold rules that come before all others: wherever they lie, no model writes them."""
    folder = settings.profiles_folder
    named = () if folder is None or folder.startswith(("/", "~", "..")) else (f"/{folder}/*.toml",)
    return (*settings.builtin.workspace.protected, *named)


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


def _vectors(settings: Settings) -> Path:
    """Vectors of passages lie beside those of tools."""
    given = settings.narrow.vectors
    return default_folder() if given is None else Path(given).expanduser() / "passages"
