"""Shadow mode at the terminal: which requests would be offered other tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from fingerpost.catalog import Snapshot
from fingerpost.errors import ConfigError
from fingerpost.evals.ready import ready_narrower
from fingerpost.evals.shadow import Contrast, Shadow, distinct, shadow
from fingerpost.settings import Loaded, Settings
from fingerpost.surfaces.cli.house import connect, open_router, run
from fingerpost.surfaces.cli.screen import count, first_sentence, output, plain, print_json, table

RECORDED = 500
SHOWN = 20


def read_requests(path: Path) -> Sequence[str]:
    """One request per line: plain words, or an object with a `query`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigError(message, hint="Name a text file with one request per line.") from error
    return distinct(_request(line) for line in lines)


def _request(line: str) -> str:
    if line.lstrip().startswith("{"):
        try:
            value: object = json.loads(line)
        except ValueError:
            return line
        if isinstance(value, dict):
            query = cast("dict[str, object]", value).get("query")
            return query if isinstance(query, str) else line
    return line


def contrast(
    before: Loaded, after: Settings, given: Sequence[str] | None, *, wait: float, as_json: bool
) -> int:
    """Route the requests under both settings and show what differs; 1 when something does."""
    snapshot, requests = run(lambda: _gather(before, given, wait))
    if not requests:
        message = "there are no requests to compare"
        raise ConfigError(message, hint="Give some with --requests FILE; none are recorded in the store yet.")
    with (
        ready_narrower(snapshot, before.settings) as old,
        ready_narrower(snapshot, after) as new,
    ):
        found = shadow(requests, old.narrow, new.narrow)
    if as_json:
        print_json(_as_json(found))
    else:
        _show(found)
    return 1 if found.differing else 0


async def _gather(loaded: Loaded, given: Sequence[str] | None, wait: float) -> tuple[Snapshot, Sequence[str]]:
    async with open_router(loaded) as router:
        await connect(router, wait=wait)
        if given is None:
            given = distinct(choice.request for choice in await router.store.choices.recent(RECORDED))
        return router.tools, given


def _show(found: Shadow) -> None:
    click.echo(
        f"{len(found.differing):,} of {count(len(found.contrasts), 'request')} "
        f"({found.share:.0%}) would be offered other tools"
    )
    if not found.differing:
        return
    by_tool = table(None, "tool", "newly offered", "no longer")
    for tool, gained, lost in found.moved()[:SHOWN]:
        by_tool.add_row(plain(tool), str(gained), str(lost))
    by_request = table(None, "request", "newly offered", "no longer")
    for one in found.differing[:SHOWN]:
        by_request.add_row(first_sentence(one.request, 60), _names(one.gained), _names(one.lost))
    output().print(by_tool, by_request)


def _names(tools: tuple[str, ...]) -> str:
    return ", ".join(plain(tool) for tool in tools)


def _as_json(found: Shadow) -> dict[str, Any]:
    def entry(one: Contrast) -> dict[str, Any]:
        return {
            "request": one.request,
            "before": one.before,
            "after": one.after,
            "gained": one.gained,
            "lost": one.lost,
        }

    return {
        "requests": len(found.contrasts),
        "differing": len(found.differing),
        "share": round(found.share, 4),
        "tools": [{"tool": tool, "gained": gained, "lost": lost} for tool, gained, lost in found.moved()],
        "contrasts": [entry(one) for one in found.differing],
    }
