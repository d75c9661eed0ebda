"""`fingerpost store`, `audit` and `config path`: size, removing old rows, copies, the audit trail, files."""

from __future__ import annotations

import os
import sys
from getpass import getuser
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import orjson
from anyio.to_thread import run_sync

from fingerpost.errors import ConfigError
from fingerpost.events import decode
from fingerpost.records import create_id
from fingerpost.records.codec import to_plain
from fingerpost.store import RetentionLimits
from fingerpost.store.database import resolve_location
from fingerpost.surfaces.cli.common import read_settings, use_store
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import (
    clean_text,
    format_count,
    get_error_output,
    print_error,
    print_json,
    print_table,
)
from fingerpost.surfaces.cli.terminal_input import confirm

if TYPE_CHECKING:
    from fingerpost.settings import Settings
    from fingerpost.store import AuditReport, Store, StoreStatus

_LEASE_SECONDS = 3600.0  # so long others do not prune, should this process be killed


@use_store
async def show_status(store: Store, settings: Settings, *, common: CommonOptions) -> int:
    """Show the size, rows and oldest entries of the store, and what would be pruned."""
    status = await store.retention.get_status(RetentionLimits.from_settings(settings))
    _print_status(status, common)
    return 0


def show_paths(*, common: CommonOptions) -> int:
    """Print which settings file, servers file and store are in use."""
    loaded = read_settings(common)
    places = loaded.places
    assert places is not None  # they were loaded from files
    store = resolve_location(loaded.settings.store.url).label
    if common.as_json:
        config = None if places.config is None else str(places.config)
        print_json({"settings": config, "servers": str(places.servers), "store": store})
        return 0
    named = "" if places.is_default_servers_file else f" ({places.servers_origin})"
    missing = "" if places.servers.exists() else " (does not exist yet: `fingerpost servers add` creates it)"
    missing_config = (
        "" if places.config else " (does not exist: the defaults apply; create it to change them)"
    )
    click.echo(f"settings  {clean_text(str(places.new_config))}{missing_config}")
    click.echo(f"servers   {clean_text(str(places.servers))}{clean_text(named)}{missing}")
    click.echo(f"store     {clean_text(store)}")
    return 0


@use_store
async def prune_store(
    store: Store, settings: Settings, *, dry_run: bool, yes: bool, compact: bool, common: CommonOptions
) -> int:
    """Remove old rows now, with progress on stderr."""
    limits = RetentionLimits.from_settings(settings)
    status = await store.retention.get_status(limits)
    count = sum(table.prunable for table in status.tables)
    if dry_run:
        _print_status(status, common)
        return 0
    question = f"Remove {count} rows for good?" + (" Rewrite the file?" if compact else "")
    if (count or compact) and not yes and not await run_sync(lambda: confirm(question, err=True)):
        click.echo("Nothing was removed.", err=True)
        return 1
    removed = await _prune(store, limits, count)
    if removed is None:
        click.echo("Another process is pruning this store now; nothing was removed here.", err=True)
        return 1
    if compact:
        await store.retention.compact()
    if common.as_json:
        print_json(removed)
        return 0
    click.echo("Removed: " + ", ".join(f"{rows} {name}" for name, rows in removed.items()) + " rows.")
    if not status.gives_back and store.location.file is not None and not compact:
        onward = (
            "This file was made by an older version: its free space is reused, but not returned to the "
            "system. `fingerpost store prune --compact` rewrites it once; stop other processes first."
        )
        click.echo(repeat_options(onward), err=True)
    return 0


async def _prune(store: Store, limits: RetentionLimits, count: int) -> dict[str, int] | None:
    instance = create_id("ins")
    person = await run_sync(getuser)
    screen = get_error_output()
    done = 0
    await store.instances.renew_lease(instance, lease_s=_LEASE_SECONDS)
    try:
        with screen.status("pruning") as status:

            def show(removed: int) -> None:
                nonlocal done
                done += removed
                status.update(f"removed {done} of about {count} rows")

            removed = await store.retention.prune(limits, instance=instance, by=person, on_progress=show)
    finally:
        await store.instances.end(instance)
    return None if removed is None else to_plain(removed)


@use_store
async def export_store(
    store: Store, _: Settings, *, file: str, only: str | None, common: CommonOptions
) -> int:
    """Write journal and audit trail as JSON Lines to FILE, or to stdout for `-`."""
    target = await run_sync(_open_export, file)
    lines = 0
    try:
        for table in ("journal", "audit") if only is None else (only,):
            async for rows in store.retention.iterate_rows(table):
                lines += len(rows)
                await run_sync(target.write, b"".join(orjson.dumps(row) + b"\n" for row in rows))
        await run_sync(target.flush)
    finally:
        if file != "-":
            await run_sync(target.close)
    if file != "-":
        print_json({"file": file, "lines": lines}) if common.as_json else click.echo(
            f"{lines} lines in {file}."
        )
    return 0


def _open_export(file: str) -> IO[bytes]:
    if file == "-":
        return sys.stdout.buffer
    try:
        return os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except FileExistsError:
        message = f"{file} exists already"
        raise ConfigError(message, hint="name a new file, or remove this one first") from None
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}"
        raise ConfigError(
            message, hint="name a file in a folder you may write to, or - for stdout"
        ) from error


@use_store
async def back_up_store(store: Store, _: Settings, *, file: Path, common: CommonOptions) -> int:
    """Write a consistent copy of the store to FILE while it is in use."""
    await store.journal.flush()
    try:
        await store.retention.back_up(file)
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}"
        raise ConfigError(message, hint="name a file in a folder you may write to") from error
    size = await run_sync(lambda: file.stat().st_size)
    if common.as_json:
        print_json({"file": str(file), "bytes": size})
        return 0
    click.echo(f"{_format_bytes(size)} in {file}, readable by you only.")
    secret = store.location.secret
    if secret is not None and await run_sync(secret.exists):
        click.echo(f"Not in it: {secret}, which decrypts sign-in tokens. Keep a copy elsewhere.")
    return 0


@use_store
async def rekey_store(
    store: Store, _: Settings, *, old_secret_file: Path | None, yes: bool, common: CommonOptions
) -> int:
    """Encrypt the tokens with another secret: a new one, or the one that the settings name now."""
    if live := await store.instances.list_live():
        message = f"the store is in use ({format_count(len(live), 'instance')})"
        hint = "stop the gateways and commands that use it; a killed one counts for half a minute"
        raise ConfigError(message, hint=hint)
    label = clean_text(store.secret.label)
    question = f"Replace the secret in {label}? Approvals that wait in clients must be asked for again."
    if old_secret_file is not None:
        count = await store.secret.adopt(old_secret_file)
    elif not yes and not await run_sync(lambda: confirm(question, err=True)):
        click.echo("Nothing was changed.", err=True)
        return 1
    else:
        count = await store.secret.replace()
    unreadable = await store.secret.list_unreadable()
    if common.as_json:
        print_json({"encrypted": count, "unreadable": unreadable, "secret": store.secret.label})
    else:
        click.echo(f"{format_count(count, 'sign-in')} encrypted with {label}.")
        for server in unreadable:
            what = f"the sign-in to {clean_text(server)} was encrypted with yet another secret"
            print_error(what, f"sign in again: `fingerpost servers login {clean_text(server)}`")
    return 1 if unreadable else 0


def _print_status(status: StoreStatus, common: CommonOptions) -> None:
    if common.as_json:
        print_json(to_plain(status))
        return
    limits = status.limits
    click.echo(
        f"{status.location}: {_format_bytes(status.bytes)}, {_format_bytes(status.free_bytes)} of it free"
    )
    days = (("journal", limits.keep_days), ("audit trail", limits.audit_days))
    kept = [f"{name} {f'{count:g} days' if count else 'for ever'}" for name, count in days]
    size = f"at most {_format_bytes(limits.max_bytes)}" if limits.max_bytes else "any size"
    click.echo(f"kept: {', '.join(kept)}, {size}")
    print_table(
        format_count(status.chains, "audit chain"),
        ("table", "rows", "oldest", "to prune"),
        (
            (
                one.name,
                str(one.rows),
                f"{one.oldest:%Y-%m-%d %H:%M}" if one.oldest is not None else "",
                str(one.prunable or ""),
            )
            for one in status.tables
            if one.rows
        ),
    )


def _format_bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


@use_store
async def verify_audit(store: Store, _: Settings, *, anchors: tuple[str, ...], common: CommonOptions) -> int:
    """Check the whole chain. Exit code 1 when a row was changed, removed or inserted."""
    try:
        report = await store.audit.verify(*anchors)
    except OSError as error:
        message = f"an anchor cannot be read: {error}"
        raise ConfigError(message, hint="check the file or address given with --anchor") from error
    if common.as_json:
        print_json(to_plain(report))
    elif report.intact:
        chains = f" in {report.chains} chains" if report.chains > 1 else ""
        click.echo(f"intact: {report.rows} rows{chains}, head {report.head}")
        if report.pruned:
            click.echo(f"before them {report.pruned} rows were pruned, as the trail records")
        click.echo(_format_compared(report))
        if report.elsewhere:
            alike = f"{report.elsewhere_alike} are the same"
            click.echo(f"of {report.elsewhere} rows remembered of a store at another place {alike}")
    else:
        fix = (
            "keep a copy of the database and of its .audit.anchor file, find out who could "
            "write to them, and restore the newest backup that verifies"
        )
        print_error(report.reason or "", fix, label="not intact")
    unknown = bool(anchors) and not report.anchors and not report.elsewhere_alike
    return 0 if report.intact and not unknown else 1


@use_store
async def show_audit(store: Store, _: Settings, *, limit: int, common: CommonOptions) -> int:
    """Show the newest rows of the trail."""
    entries = await store.audit.list_entries(limit=limit)
    if common.as_json:
        print_json([to_plain(entry) for entry in entries])
        return 0
    print_table(
        f"{len({entry.seq for entry in entries})} newest rows",
        ("#", "when", "what", "about", "hash"),
        (
            (
                str(entry.seq),
                f"{entry.at:%Y-%m-%d %H:%M:%S}",
                entry.kind,
                decode(entry.payload).summary(),
                entry.hash[:12],
            )
            for entry in entries
        ),
    )
    return 0


def _format_compared(report: AuditReport) -> str:
    """Describe the hashes compared with. Without anchors, a completely rewritten chain is not noticed."""
    if report.anchors:
        ranges = f" and {report.journal} of the journal" if report.journal else ""
        return f"held against {report.anchors} hashes{ranges} in the anchor file outside the database"
    missing = "the anchor file outside the database is empty or missing"
    return f"{missing}: a chain rewritten as a whole would not show"
