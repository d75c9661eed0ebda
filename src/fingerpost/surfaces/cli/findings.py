"""What the doctor looks at. Every look returns findings; nothing here prints or repairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import ServerStatus
from fingerpost.router import Router
from fingerpost.settings import Loaded, Problem, load
from fingerpost.surfaces.cli.house import Asked, any_router, connect

Severity = Literal["broken", "limited", "advice"]
ORDER: dict[Severity, int] = {"broken": 0, "limited": 1, "advice": 2}
STDERR_LINES = 5


@frozen
class Finding:
    """One thing to fix: how bad, about what, what is the matter, what to do."""

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
    for entry in router.catalog.quarantined:
        yield Finding(
            severity="limited",
            subject=f"tool {entry.card.key}",
            what="its definition changed since it was pinned, so models do not see it",
            fix=f"read `fingerpost pins diff {entry.card.key}`, then accept it with `fingerpost pins accept`",
        )
    for dropped in router.catalog.dropped:
        if dropped.switched_off:
            continue
        yield Finding(
            severity="limited",
            subject=f"tool {dropped.server}/{dropped.name}",
            what=f"could not be taken: {dropped.reason}",
            fix="report it to the server's author; every other tool of the server works",
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
