"""Creates the workspace server."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anyio import to_thread

from fingerpost.builtin.passages import get_vector_folder
from fingerpost.builtin.toolkit import BuiltinHost, BuiltinServer
from fingerpost.builtin.workspace.context import ActionSwitches, UnreviewedWrites, WorkspaceContext
from fingerpost.builtin.workspace.paths import OutsideAccess, RootFolder
from fingerpost.builtin.workspace.processes import BackgroundJobs
from fingerpost.builtin.workspace.sandbox import CommandSandbox, describe_sandbox
from fingerpost.builtin.workspace.search import MeaningIndex
from fingerpost.builtin.workspace.terminal import Terminal
from fingerpost.builtin.workspace.tools import (
    DEFINITIONS,
    ELEVATED_OPERATION,
    EXECUTE,
    FILES_TOOL,
    OPERATIONS,
    TERMINAL_TOOL,
    TESTS_TOOL,
    WRITE,
    FileContext,
    build_tools,
    format_boundary,
)
from fingerpost.errors import ConfigError
from fingerpost.records import Effect
from fingerpost.settings import OwnRule, Settings
from fingerpost.store import StoreLocation, get_data_directory, resolve_location

SERVER_NAME: Final = "workspace"


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server for the folder of the settings."""
    settings = host.settings
    own = settings.builtin.workspace
    root = host.resolve_path(own.root)
    protected, outside = _list_protected(settings, root), _build_outside_access(host)
    allowed = settings.tool_routing
    work = WorkspaceContext(
        root_folder=RootFolder(root, protected=protected, outside_access=outside),
        unreviewed=build_unreviewed_writes(host),
        settings=own,
        switches=ActionSwitches(write=allowed.allow_write, execute=allowed.allow_execute),
    )
    by_meaning, vectors = settings.flags.dense_scores, get_vector_folder(settings)
    meaning = MeaningIndex(work, by_meaning=by_meaning, vector_folder=vectors)
    jobs = BackgroundJobs(work.root_folder, own.background)
    sandbox = CommandSandbox(
        root=work.root_folder.root,
        network=own.sandbox_network,
        reads=_resolve_paths(host, own.sandbox_read),
        writes=_resolve_paths(host, own.sandbox_write),
        own_files=_list_own_files(settings),
    )
    context, terminal = FileContext(work, meaning), Terminal(work, jobs, sandbox)

    @asynccontextmanager
    async def open_all() -> AsyncGenerator[None]:
        await to_thread.run_sync(_check_root, root)
        try:
            async with jobs:
                yield
        finally:
            meaning.close()

    return BuiltinServer(
        SERVER_NAME,
        build_tools(context, terminal),
        instructions=format_boundary(DEFINITIONS.instructions, outside=own.outside),
        rules=_build_rules(settings),
        open=open_all,
        get_context=host.get_context,
        is_granted=host.is_granted,
        note_write=work.unreviewed.note_foreign_write,
    )


def _check_root(root: Path) -> None:
    """Raise `ConfigError` if the folder is the file system root or the home directory itself.

    A desktop client starts its servers in one of them, and writes inside of the folder are not asked about.
    """
    folder, home = root.resolve(), Path("~").expanduser()
    if folder == Path(folder.anchor):
        name = str(folder)
    elif home.is_absolute() and folder == home.resolve():
        name = f"your home directory {folder}"
    else:
        return
    hint = "set builtin.workspace.root to a folder"
    raise ConfigError(f"builtin.workspace would be all of {name}", hint=hint)


def _build_outside_access(host: BuiltinHost) -> OutsideAccess | None:
    """Return the access to paths outside, except Fingerpost's own profiles and store."""
    own = host.settings.builtin.workspace
    if not own.outside:
        return None
    folder = host.settings.profiles_folder
    ours = [get_data_directory(), *(() if folder is None else (host.resolve_path(folder),))]
    location = _resolve_store(host.settings)
    if location.file is not None:
        ours.append(location.file.with_name(f"{location.file.stem}*"))
    if location.secret_file is not None:
        ours.append(location.secret_file)
    return OutsideAccess(sensitive=(*own.sensitive, *map(str, ours)))


def build_unreviewed_writes(host: BuiltinHost) -> UnreviewedWrites:
    """Build the list of unreviewed writes in the working directory. Its file is beside the store."""
    folder = _resolve_store(host.settings).anchor.parent
    return UnreviewedWrites(folder, host.resolve_path(host.settings.builtin.workspace.root))


def _resolve_store(settings: Settings) -> StoreLocation:
    return resolve_location(settings.store.url, secret_file=settings.store.secret_file)


def _resolve_paths(host: BuiltinHost, given: Iterable[str]) -> tuple[Path, ...]:
    return tuple(Path(os.path.normpath(host.resolve_path(path))) for path in given)


def _list_own_files(settings: Settings) -> tuple[Path, ...]:
    """Return Fingerpost's own files: its data directory, the store and the store's secret."""
    location = _resolve_store(settings)
    files = [get_data_directory(), location.anchor]
    if location.file is not None:
        files += [location.file, *(Path(f"{location.file}{end}") for end in ("-wal", "-shm"))]
    if location.secret is not None:
        files.append(location.secret)
    return tuple(files)


def _list_protected(settings: Settings, root: Path) -> tuple[str, ...]:
    """Return the protected patterns: profiles hold rules that precede all others, so no model may write them.

    The store is protected too if it is in the folder.
    """
    folder = settings.profiles_folder
    named = () if folder is None or folder.startswith(("/", "~", "..")) else (f"/{folder}/*.toml",)
    ours = [f"/{file.relative_to(root)}" for file in _list_own_files(settings) if file.is_relative_to(root)]
    lists = {f"/{Path(file).with_name('workspace-*.writes')}".replace("//", "/") for file in ours}
    return (*settings.builtin.workspace.protected, *named, *ours, *sorted(lists))


def _build_rules(settings: Settings) -> Iterator[OwnRule]:
    """Yield rules for calls without approval: dry runs, writes inside the folder, and listed commands."""
    dry_run = {"dry_run": "true"}
    yield OwnRule(verdict="allow", server=SERVER_NAME, arguments=dry_run, reason="a dry run changes nothing")
    files, terminal = f"{SERVER_NAME}/{FILES_TOOL}", f"{SERVER_NAME}/{TERMINAL_TOOL}"
    inside = "it writes inside of the working directory"
    for operation, each in OPERATIONS.items():
        if each.effect is Effect.WRITE:
            yield OwnRule(verdict="allow", tool=files, operation=operation, reason=inside)
    yield OwnRule(verdict="allow", tool=f"{SERVER_NAME}/{WRITE}", reason=inside)
    yield OwnRule(verdict="allow", tool=terminal, operation="stop", reason="it ends what you started")
    if settings.builtin.workspace.commands:
        listed = "only commands that a person listed run here"
        for operation in ("run_command", "run_background"):
            yield OwnRule(verdict="allow", tool=terminal, operation=operation, reason=listed)
        yield OwnRule(verdict="allow", tool=f"{SERVER_NAME}/{EXECUTE}", reason=listed)
    if settings.tool_routing.allow_execute:
        how = describe_sandbox(settings.builtin.workspace)
        for operation in ("run_command", "run_background"):
            yield OwnRule(verdict="ask", tool=terminal, operation=operation, reason=how)
        for tool in (EXECUTE, TESTS_TOOL):
            yield OwnRule(verdict="ask", tool=f"{SERVER_NAME}/{tool}", reason=how)
        raised = "it runs with all your rights, outside of the sandbox"
        yield OwnRule(verdict="ask", tool=terminal, operation=ELEVATED_OPERATION, reason=raised)
