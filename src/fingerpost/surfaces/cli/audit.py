"""`fingerpost audit`: read and verify the trail of what was decided and done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.errors import ConfigError
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.options import house_options

if TYPE_CHECKING:
    from fingerpost.settings import Settings
    from fingerpost.store import AuditReport, Store


@click.group()
def audit() -> None:
    """Verify that the audit trail was not tampered with.

    Every decision about a tool is a row that carries the hash of the row before
    it; the newest hash is also written to a file outside the database.

    \b
    Examples:
      fingerpost audit verify
      fingerpost audit show --json
    """


@audit.command()
@click.option(
    "--anchor", "anchors", multiple=True, metavar="FILE|URL", help="Compare with this anchor elsewhere, too."
)
@house_options
def verify(anchors: tuple[str, ...], config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Check the whole chain. Exit code 1 when a row was changed, removed or inserted.

    \b
    Examples:
      fingerpost audit verify --json
      fingerpost audit verify --anchor /var/log/audit.log
      fingerpost audit verify --anchor https://anchors.example/fingerpost
    """

    async def work(store: Store, _: Settings) -> int:
        from fingerpost.records.codec import to_plain
        from fingerpost.surfaces.cli.screen import print_json

        try:
            report = await store.audit.verify(*anchors)
        except OSError as error:
            message = f"an anchor cannot be read: {error}"
            raise ConfigError(message, hint="check the file or address given with --anchor") from error
        if as_json:
            print_json(to_plain(report))
        elif report.intact:
            click.echo(f"intact: {report.rows} rows, head {report.head}")
            click.echo(_compared(report))
            if report.elsewhere:
                click.echo(_moved(report))
        else:
            click.echo(styled("not intact: ", fg="red", bold=True) + (report.reason or ""), err=True)
            click.echo(
                "  fix: keep a copy of the database and of its .audit.anchor file, find out who could "
                "write to them, and restore the newest backup that verifies",
                err=True,
            )
        unknown = bool(anchors) and not report.anchors and not report.elsewhere_alike
        return 0 if report.intact and not unknown else 1

    from fingerpost.surfaces.cli.house import with_store

    return with_store(config, servers, work)


@audit.command()
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many of the newest rows.",
)
@house_options
def show(limit: int, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Show the newest rows of the trail.

    \b
    Example:
      fingerpost audit show --limit 200
    """

    async def work(store: Store, _: Settings) -> int:
        from fingerpost.events import decode
        from fingerpost.records.codec import to_plain
        from fingerpost.surfaces.cli.screen import output, plain, print_json, table

        entries = await store.audit.entries(limit=limit)
        if as_json:
            print_json([to_plain(entry) for entry in entries])
            return 0
        made = table(f"{len(entries)} newest rows", "#", "when", "what", "about", "hash")
        for entry in entries:
            made.add_row(
                str(entry.seq),
                f"{entry.at:%Y-%m-%d %H:%M:%S}",
                entry.kind,
                plain(decode(entry.payload).summary()),
                entry.hash[:12],
            )
        output().print(made)
        return 0

    from fingerpost.surfaces.cli.house import with_store

    return with_store(config, servers, work)


def _moved(report: AuditReport) -> str:
    alike, total = report.elsewhere_alike, report.elsewhere
    return f"of {total} rows remembered of a store at another place {alike} are the same"


def _compared(report: AuditReport) -> str:
    """Someone who can rewrite the whole chain can make it fit: say what it was held against."""
    if report.anchors:
        ranges = f" and {report.journal} of the journal" if report.journal else ""
        return f"held against {report.anchors} hashes{ranges} in the anchor file outside the database"
    missing = "the anchor file outside the database is empty or missing"
    return f"{missing}: a chain rewritten as a whole would not show"
