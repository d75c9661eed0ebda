"""`fingerpost doctor`: find what is wrong with the set-up and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import anyio
import anyio.to_thread
from rich.text import Text

from fingerpost.builtin.workspace.sandbox import explain_missing_sandbox, find_sandbox_kind
from fingerpost.catalog import UnavailableTool
from fingerpost.catalog.pins import is_server_key
from fingerpost.catalog.unavailable import build_refused, build_server_unavailable
from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import ScannedDefinition, ServerState, ServerStatus
from fingerpost.records.codec import to_plain
from fingerpost.router import Router
from fingerpost.router.extensions import KINDS, Extension, Extensions
from fingerpost.settings import ExtensionSettings, Loaded, Problem, Settings, load
from fingerpost.surfaces.cli.common import connect_servers, list_replaced_builtin, open_any_router
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, get_output, print_json

Severity = Literal["broken", "limited", "advice"]
SEVERITY_ORDER: dict[Severity, int] = {"broken": 0, "limited": 1, "advice": 2}
MAX_STDERR_LINES = 5
MAX_NAMED_TOOLS = 20


@frozen(kw_only=False)
class SetupFinding:
    """One problem or advice, and how to fix it."""

    severity: Severity
    subject: str
    what: str
    fix: str
    detail: tuple[str, ...] = ()


async def examine(common: CommonOptions) -> tuple[SetupFinding, ...]:
    """Return all findings, most urgent first."""
    try:
        loaded = load(config=common.config, servers=common.servers)
    except ConfigError as error:
        return tuple(_describe_config_error(error))
    findings = [_describe_problem(problem, "limited") for problem in loaded.warnings]
    findings.extend(await anyio.to_thread.run_sync(_examine_sandbox, loaded.settings))
    extensions = Extensions(servers=loaded.specs)
    await anyio.to_thread.run_sync(extensions.load_all, loaded.settings.extensions)
    findings.extend(_describe_extension(extension) for extension in extensions.found)
    loaded = _leave_out_broken(loaded, extensions.found)
    try:
        findings.extend(await _examine_router(loaded))
    except FingerpostError as error:
        findings.append(_describe_error("store", error))
    return tuple(sorted(findings, key=lambda finding: SEVERITY_ORDER[finding.severity]))


def _describe_extension(extension: Extension) -> SetupFinding:
    name, section = f'"{extension.name}"', f"extensions.{extension.kind}"
    fix = f"remove {name} from {section}" if extension.enabled else f"add {name} to {section}"
    what = f"{'enabled' if extension.enabled else 'not enabled'}, version {extension.version or 'unknown'}"
    severity: Severity = "advice"
    if extension.error:
        severity = "broken" if extension.kind == "rules" else "limited"
        what, fix = f"cannot be used: {extension.error}", f"repair or install its package, or {fix}"
    subject = f"{extension.kind.removesuffix('s')} {extension.name}"
    return SetupFinding(severity, subject, what, fix)


def _leave_out_broken(loaded: Loaded, found: Sequence[Extension]) -> Loaded:
    """Return the settings without the extensions that cannot be used, so that the rest can be examined."""
    usable = [extension for extension in found if extension.enabled and not extension.error]
    kept = ExtensionSettings.model_validate(
        {kind: tuple(extension.name for extension in usable if extension.kind == kind) for kind in KINDS}
    )
    return replace(loaded, settings=loaded.settings.model_copy(update={"extensions": kept}))


async def _examine_router(loaded: Loaded) -> list[SetupFinding]:
    async with open_any_router(loaded) as router:
        findings = await _examine_store(router)
        for name in list_replaced_builtin(loaded):
            what = "your server of this name is used, and Fingerpost's own is left out"
            fix = f"rename yours to use both, or remove {name} from builtin.enabled"
            findings.append(SetupFinding("advice", f"server {name}", what, fix))
        if not router.servers.statuses:
            fix = "add one with `fingerpost servers add NAME -- COMMAND`, or run `fingerpost import`"
            return [*findings, SetupFinding("broken", "servers", "none are configured", fix)]
        await connect_servers(router, wake=True)
        for status in router.servers.statuses:
            findings.extend(_examine_server(status))
        findings.extend(_examine_tools(router))
        return findings


def _examine_sandbox(settings: Settings) -> list[SetupFinding]:
    """Check whether commands of the workspace server run in a sandbox."""
    own = settings.builtin.workspace
    if "workspace" not in settings.builtin.enabled or not settings.tool_routing.allow_execute:
        return []

    missing = explain_missing_sandbox(own)
    if not missing:
        return []
    none = own.sandbox == "required" and find_sandbox_kind() == "none"
    severity: Severity = "broken" if none else "limited"
    fix = 'use Linux 5.13 or newer with Landlock, or set sandbox = "required" to run none without'
    if own.sandbox == "off":
        severity, fix = "advice", 'set builtin.workspace.sandbox = "auto"'
    return [SetupFinding(severity, "workspace", missing, fix)]


async def _examine_store(router: Router) -> list[SetupFinding]:
    findings: list[SetupFinding] = []
    report = await router.store.audit.verify()
    if not report.intact:
        fix = "run `fingerpost audit verify`, and restore the newest backup that verifies"
        findings.append(SetupFinding("broken", "audit trail", report.reason or "does not verify", fix))
    if (fault := await router.store.secret.find_fault()) is not None:
        findings.append(SetupFinding("limited", "store", *fault))
    elif unreadable := await router.store.secret.list_unreadable():
        what = f"sign-ins that another secret encrypted: {', '.join(unreadable)}"
        fix = (
            f"restore {router.store.secret.label}, run `fingerpost store rekey --old-secret-file FILE` with "
            "a copy of the former secret, or sign in again: `fingerpost servers login NAME`"
        )
        findings.append(SetupFinding("limited", "store", what, fix))
    return findings


def _examine_server(status: ServerStatus) -> Iterator[SetupFinding]:
    subject = f"server {status.name}"
    if status.state is ServerState.DISABLED:
        if (unavailable := build_server_unavailable("", status)) is not None:
            what = status.reason or "disabled in the configuration"
            yield SetupFinding("advice", subject, what, unavailable.fix)
    elif status.state is ServerState.READY:
        if status.reason is not None:
            fix = "docs/how-to/servers.md says how callers give their own key, or sign in"
            yield SetupFinding("advice", subject, status.reason, fix)
    elif status.state is not ServerState.IDLE:
        fix = (
            status.hint or f"look at its entry and try `fingerpost servers --watch`; it is {status.transport}"
        )
        if "cannot be started" in (status.reason or ""):
            edit, remove = (f"fingerpost servers {verb} {status.name}" for verb in ("edit", "remove"))
            fix += f": `{edit}`, or `{remove}`"
        lines = tuple(line for line in status.stderr_tail.splitlines() if line.strip())
        yield SetupFinding(
            "limited" if status.state is ServerState.DEGRADED else "broken",
            subject,
            f"{status.state}: {status.reason or 'no reason given'}",
            fix,
            lines[-MAX_STDERR_LINES:],
        )


def _examine_tools(router: Router) -> Iterator[SetupFinding]:
    catalog = router.catalog
    changed = {entry.card.key for entry in catalog.quarantined}
    off: dict[tuple[str, str], list[UnavailableTool]] = {}
    for card in catalog.unavailable.cards:
        unavailable = catalog.explain_unavailable(card)
        if card.key in changed:
            yield _describe_unavailable([unavailable], "limited")
        else:
            off.setdefault((unavailable.reason, unavailable.fix), []).append(unavailable)
    for one in catalog.findings:
        if not one.held or is_server_key(one.tool):
            yield _describe_finding(one)
    for dropped in catalog.dropped:
        if not dropped.switched_off:
            yield _describe_unavailable([build_refused(dropped)], "limited")
    for tools in off.values():
        yield _describe_unavailable(tools, "advice")


def _describe_finding(one: ScannedDefinition) -> SetupFinding:
    """Return the finding for instructions, or for a tool that is offered all the same."""
    words = (f"{one.finding.where}: {one.finding.words}",)
    if is_server_key(one.tool) and one.held:
        what = f"its instructions are not passed on: what they say {one.finding.reason}"
        fix = f"if they are harmless, accept them with `fingerpost pins accept {one.server}`"
        return SetupFinding("limited", f"server {one.server}", what, fix, words)
    if is_server_key(one.tool):
        what = f"its instructions are passed on: what they say {one.finding.reason}"
        fix = f"look at `fingerpost scan {one.server}`"
        return SetupFinding("advice", f"server {one.server}", what, fix, words)
    fix = f"look at `fingerpost scan {one.tool}`; hide the tool with enabled = false in [[tools]]"
    return SetupFinding("advice", f"tool {one.tool}", f"its definition {one.finding.reason}", fix, words)


def _describe_unavailable(tools: Sequence[UnavailableTool], severity: Severity) -> SetupFinding:
    """Return one finding for all tools that are unavailable for the same reason."""
    first = tools[0]
    if len(tools) == 1:
        return SetupFinding(severity, f"tool {first.tool}", first.reason, first.fix)
    more = len(tools) - MAX_NAMED_TOOLS
    named = [tool.tool for tool in tools[:MAX_NAMED_TOOLS]] + ([f"and {more} more"] if more > 0 else [])
    return SetupFinding(severity, f"{len(tools)} tools", first.reason, first.fix, tuple(named))


def _describe_config_error(error: ConfigError) -> Iterator[SetupFinding]:
    problems = [problem for problem in error.problems if isinstance(problem, Problem)]
    if not problems:
        yield _describe_error("configuration", error)
    for problem in problems:
        yield _describe_problem(problem, "broken")


def _describe_problem(problem: Problem, severity: Severity) -> SetupFinding:
    where = "configuration" if problem.origin.kind == "default" else str(problem.origin)
    what = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return SetupFinding(severity, where, what, problem.fix)


def _describe_error(subject: str, error: FingerpostError) -> SetupFinding:
    return SetupFinding("broken", subject, str(error), error.hint or "see docs/how-to/troubleshooting.md")


SEVERITY_MARKS = {"broken": ("✗", "red"), "limited": ("!", "yellow"), "advice": ("·", "cyan")}


def run_checks(*, common: CommonOptions) -> int:
    """Say what is wrong with the set-up, in order of what to fix."""
    found = anyio.run(examine, common)
    findings = tuple(replace(finding, fix=repeat_options(finding.fix)) for finding in found)
    if common.as_json:
        print_json([to_plain(finding) for finding in findings])
    else:
        _show_findings(findings)
    return 1 if any(finding.severity == "broken" for finding in findings) else 0


def _show_findings(findings: tuple[SetupFinding, ...]) -> None:
    screen = get_output()
    if all(finding.severity == "advice" for finding in findings):
        screen.print("No problems found.", style="green")
    for number, finding in enumerate(findings, start=1):
        mark, colour = SEVERITY_MARKS[finding.severity]
        screen.print(
            Text(f"{number}. {mark} {clean_text(finding.subject)}: {clean_text(finding.what)}", style=colour)
        )
        label = "to change that" if finding.severity == "advice" else "fix"
        # A command on two lines could not be copied.
        screen.print(Text(f"     {label}: {clean_text(finding.fix)}"), soft_wrap=True)
        for line in finding.detail:
            screen.print(Text(f"     │ {clean_text(line)}", style="dim"))
