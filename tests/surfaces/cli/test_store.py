"""`fingerpost store`: what it shows, removes and copies, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import anyio
import pytest

from fingerpost.events import CallReceived
from fingerpost.records import utc_now
from fingerpost.store import Store
from tests.kit.command_line import CommandLine
from tests.kit.store_samples import create_audited_event, ordinary
from tests.kit.stores import Postgres, get_postgres_programs
from tests.requirements import proves

pytestmark = pytest.mark.process


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return cast("Postgres", request.getfixturevalue("postgres")).new_database()


def fill(url: str, home: Path) -> None:
    """Thirty old rows, five young ones, and a call with a secret."""

    async def work() -> None:
        old = utc_now() - timedelta(days=400)
        anchor = None if url.startswith("sqlite") else home / "filled.anchor"
        async with Store.open(url, anchor=anchor) as store:
            await store.journal.append(
                *(replace(create_audited_event(str(number)), at=old) for number in range(20))
            )
            await store.journal.append(*(replace(ordinary(), at=old) for _ in range(10)))
            await store.journal.append(*(create_audited_event(str(number)) for number in range(4)))
            given = {"token": f"ghp_{'a1B2' * 9}"}
            await store.journal.append(
                CallReceived(call_id="call_1", packet_id="call_1", name="git/push", arguments=given)
            )

    anyio.run(work)


@proves("H30", "H29", "H19")
def test_the_commands_show_prune_export_and_back_up(person: CommandLine, url: str) -> None:
    fill(url, person.home)
    named = {"FINGERPOST_STORE__URL": url}
    status = json.loads(person.runs("store", "status", "--json", extra=named).stdout)
    tables = {table["name"]: table for table in status["tables"]}
    assert (tables["journal"]["rows"], tables["journal"]["prunable"]) == (35, 30)
    assert (tables["audit"]["rows"], tables["audit"]["prunable"]) == (24, 20)
    assert tables["journal"]["oldest"] < str(utc_now() - timedelta(days=390))
    assert status["bytes"] > 10_000
    shown = person.runs("store", "status", extra=named).stdout
    assert "kept: journal 30 days, audit trail 365 days" in shown

    dry = person.runs("store", "prune", "--dry-run", extra=named)
    assert (dry.returncode, "to prune" in dry.stdout) == (0, True)
    refused = person.runs("store", "prune", extra=named, stdin="n\n")
    assert (refused.returncode, "Nothing was removed" in refused.stderr) == (1, True)
    done = person.runs("store", "prune", "--yes", extra=named)
    assert done.returncode == 0, done.stderr
    assert "Removed: 30 journal, 20 audit" in done.stdout
    verified = person.runs("audit", "verify", extra=named)
    assert verified.returncode == 0, verified.stderr
    assert "before them 20 rows were pruned" in verified.stdout

    exported = person.runs("store", "export", "-", extra=named)
    rows = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [row["table"] for row in rows].count("journal") == 6  # with the record of pruning
    assert {row["kind"] for row in rows if row["table"] == "audit"} == {"tool_quarantined", "store_pruned"}
    assert "ghp_a1B2" not in exported.stdout and "git/push" in exported.stdout
    file = person.home / "rows.jsonl"
    assert "5 lines" in person.runs("store", "export", "--only", "audit", str(file), extra=named).stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = person.runs("store", "export", str(file), extra=named)
    assert (again.returncode, "exists already" in again.stderr, "fix:" in again.stderr) == (2, True, True)

    backup = person.home / "backup"
    path = f"{get_postgres_programs()}{os.pathsep}{person.environment['PATH']}"
    made = person.runs("store", "backup", str(backup), extra={**named, "PATH": path})
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    if url.startswith("sqlite"):
        copy = {"FINGERPOST_STORE__URL": f"sqlite:///{backup}"}
        assert "intact: 5 rows" in person.runs("audit", "verify", extra=copy).stdout


@proves("H30")
def test_an_existing_backup_or_an_unwritable_place_is_refused(person: CommandLine) -> None:
    person.writes("there.db", "mine")
    refused = person.runs("store", "backup", "there.db")
    assert (refused.returncode, "exists already" in refused.stderr) == (2, True)
    assert (person.home / "there.db").read_text() == "mine"
    nowhere = person.runs("store", "export", "/proc/nothing/here.jsonl")
    assert (nowhere.returncode, "cannot be written" in nowhere.stderr) == (2, True)
