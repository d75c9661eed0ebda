"""What the doctor looks at. Every look returns findings; nothing here prints or repairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import anyio.to_thread

from fingerpost.builtin.workspace.commands.sandbox import find_kind, is_missing
from fingerpost.catalog import Absence
from fingerpost.catalog.absence import refused, server_away
from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import ServerState, ServerStatus
from fingerpost.router import Router
from fingerpost.settings import Loaded, Problem, Settings, load
from fingerpost.surfaces.cli.house import Asked, any_router, connect

Severity = Literal["broken", "limited", "advice"]
ORDER: dict[Severity, int] = {"broken": 0, "limited": 1, "advice": 2}
STDERR_LINES = 5
MOST_NAMED = 20


@frozen
class Finding:
    """One thing to fix: how bad, about what, what is the matter, what to do. Advice is no fault."""

    severity: Severity
    subject: str
    what: str
    fix: str
    detail: tuple[str, ...] = ()


async def examine(asked: Asked) -> tuple[Finding, ...]:
    """Everything that is wrong, most urgent first; within one urgency in the order things depend on."""
    try:
        loaded = load(config=asked.config, servers=asked.servers)
    except ConfigError as error:
        return tuple(_from_config(error))
    findings = [_from_problem(problem, "limited") for problem in loaded.warnings]
    findings.extend(await anyio.to_thread.run_sync(_look_at_sandbox, loaded.settings))
    try:
        findings.extend(await _look_inside(loaded))
    except FingerpostError as error:
        findings.append(_from_error("store", error))
    return tuple(sorted(findings, key=lambda finding: ORDER[finding.severity]))


async def _look_inside(loaded: Loaded) -> list[Finding]:
    async with any_router(loaded) as router:
        findings = await _look_at_store(router)
        if not router.servers.statuses:
            findings.append(
                Finding(
                    severity="broken",
                    subject="servers",
                    what="none are configured",
                    fix="run `fingerpost import`, or name a file with --servers FILE",
                )
            )
            return findings
        await connect(router)
        for status in router.servers.statuses:
            findings.extend(_look_at_server(status))
        findings.extend(_look_at_tools(router))
        return findings


def _look_at_sandbox(settings: Settings) -> list[Finding]:
    """Whether commands of our own workspace are confined."""
    own = settings.builtin.workspace
    if "workspace" not in settings.builtin.enabled or not settings.tool_routing.allow_execute:
        return []

    missing = is_missing(own)
    if not missing:
        return []
    none = own.sandbox == "required" and find_kind() == "none"
    severity: Severity = "broken" if none else "limited"
    fix = 'use Linux 5.13 or newer with Landlock, or set sandbox = "required" to run none without'
    if own.sandbox == "off":
        severity, fix = "advice", 'set builtin.workspace.sandbox = "auto"'
    return [Finding(severity=severity, subject="workspace", what=missing, fix=fix)]


async def _look_at_store(router: Router) -> list[Finding]:
    report = await router.store.audit.verify()
    if report.intact:
        return []
    return [
        Finding(
            severity="broken",
            subject="audit trail",
            what=report.reason or "does not verify",
            fix="run `fingerpost audit verify`, and restore the newest backup that verifies",
        )
    ]


def _look_at_server(status: ServerStatus) -> Iterator[Finding]:
    if status.state is ServerState.DISABLED and (away := server_away("", status)) is not None:
        what = status.reason or "disabled in the configuration"
        yield Finding(severity="advice", subject=f"server {status.name}", what=what, fix=away.fix)
    if status.state is ServerState.READY and status.reason is not None:
        fix = "callers send it as `Authorization`, beside their `X-API-Key`: see docs/servers.md"
        yield Finding(severity="advice", subject=f"server {status.name}", what=status.reason, fix=fix)
    if status.state not in ("down", "connecting", "degraded"):
        return
    lines = tuple(line for line in status.stderr_tail.splitlines() if line.strip())
    yield Finding(
        severity="limited" if status.state == "degraded" else "broken",
        subject=f"server {status.name}",
        what=f"{status.state}: {status.reason or 'no reason given'}",
        fix=status.hint
        or f"look at its entry and try `fingerpost servers --watch`; it is {status.transport}",
        detail=lines[-STDERR_LINES:],
    )


def _look_at_tools(router: Router) -> Iterator[Finding]:
    catalog = router.catalog
    changed = {entry.card.key for entry in catalog.quarantined}
    off: dict[tuple[str, str], list[Absence]] = {}
    for card in catalog.away.cards:
        away = catalog.why_away(card)
        if card.key in changed:
            yield _from_absence([away], "limited")
        else:
            off.setdefault((away.reason, away.fix), []).append(away)
    for dropped in catalog.dropped:
        if not dropped.switched_off:
            yield _from_absence([refused(dropped)], "limited")
    for alike in off.values():
        yield _from_absence(alike, "advice")


def _from_absence(alike: Sequence[Absence], severity: Severity) -> Finding:
    """Tools that are away for one reason: an entry may switch off hundreds."""
    first = alike[0]
    if len(alike) == 1:
        return Finding(severity=severity, subject=f"tool {first.tool}", what=first.reason, fix=first.fix)
    more = len(alike) - MOST_NAMED
    named = [away.tool for away in alike[:MOST_NAMED]] + ([f"and {more} more"] if more > 0 else [])
    return Finding(
        severity=severity,
        subject=f"{len(alike)} tools",
        what=first.reason,
        fix=first.fix,
        detail=tuple(named),
    )


def _from_config(error: ConfigError) -> Iterator[Finding]:
    problems = [problem for problem in error.problems if isinstance(problem, Problem)]
    if not problems:
        yield _from_error("configuration", error)
    for problem in problems:
        yield _from_problem(problem, "broken")


def _from_problem(problem: Problem, severity: Severity) -> Finding:
    where = "configuration" if problem.origin.kind == "default" else str(problem.origin)
    what = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return Finding(severity=severity, subject=where, what=what, fix=problem.fix)


def _from_error(subject: str, error: FingerpostError) -> Finding:
    return Finding(
        severity="broken", subject=subject, what=str(error), fix=error.hint or "see docs/troubleshooting.md"
    )
