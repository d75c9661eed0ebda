"""`fingerpost doctor`: what is wrong with the set-up, in order of what to fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.findings import examine
from fingerpost.surfaces.cli.house import Asked, run
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.screen import output, plain, print_json

if TYPE_CHECKING:
    from fingerpost.surfaces.cli.findings import Finding

MARKS = {"broken": ("✗", "red"), "limited": ("!", "yellow"), "advice": ("·", "cyan")}


def run_checks(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Say what is wrong with the set-up, in order of what to fix."""
    asked = Asked(config, servers, as_json)
    found = run(lambda: examine(asked))
    findings = tuple(replace(finding, fix=repeatable(finding.fix)) for finding in found)
    if as_json:
        print_json([to_plain(finding) for finding in findings])
    else:
        _show(findings)
    return 1 if any(finding.severity == "broken" for finding in findings) else 0


def _show(findings: tuple[Finding, ...]) -> None:
    screen = output()
    if all(finding.severity == "advice" for finding in findings):
        screen.print("Nothing is wrong.", style="green")
    for number, finding in enumerate(findings, start=1):
        mark, colour = MARKS[finding.severity]
        screen.print(Text(f"{number}. {mark} {plain(finding.subject)}: {plain(finding.what)}", style=colour))
        label = "to change that" if finding.severity == "advice" else "fix"
        # A command broken into two lines could not be copied.
        screen.print(Text(f"     {label}: {plain(finding.fix)}"), soft_wrap=True)
        for line in finding.detail:
            screen.print(Text(f"     │ {plain(line)}", style="dim"))
