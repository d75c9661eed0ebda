"""`fingerpost audit`: read and verify the audit trail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fingerpost.errors import ConfigError
from fingerpost.events import decode
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.common import run_on_store
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import print_error, print_json, print_table

if TYPE_CHECKING:
    from fingerpost.settings import Settings
    from fingerpost.store import AuditReport, Store


def verify_audit(*, anchors: tuple[str, ...], common: CommonOptions) -> int:
    """Check the whole chain. Exit code 1 when a row was changed, removed or inserted."""

    async def work(store: Store, _: Settings) -> int:
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

    return run_on_store(common, work)


def show_audit(*, limit: int, common: CommonOptions) -> int:
    """Show the newest rows of the trail."""

    async def work(store: Store, _: Settings) -> int:
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

    return run_on_store(common, work)


def _format_compared(report: AuditReport) -> str:
    """Describe which hashes the chain was compared with. Without anchors, a completely rewritten chain is not
    detected.
    """
    if report.anchors:
        ranges = f" and {report.journal} of the journal" if report.journal else ""
        return f"held against {report.anchors} hashes{ranges} in the anchor file outside the database"
    missing = "the anchor file outside the database is empty or missing"
    return f"{missing}: a chain rewritten as a whole would not show"
