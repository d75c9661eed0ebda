"""`fingerpost status` and `logs`: what runs here, and what it wrote."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import click

from fingerpost import __version__
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import ServerState
from fingerpost.records.codec import to_plain
from fingerpost.servers.library import find_gateways, read_gateway_status
from fingerpost.servers.process import OWN_LOG_NAME, get_log_file
from fingerpost.store.database import resolve_location
from fingerpost.surfaces.cli.common import open_any_router, read_settings
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, format_count, print_dim, print_json, print_lines
from fingerpost.surfaces.cli.streams import style_text

if TYPE_CHECKING:
    from fingerpost.router import Router
    from fingerpost.settings import Loaded

FOLLOW_SECONDS: Final = 0.5
MAX_TAIL_BYTES: Final = 4 * 1024 * 1024  # both files of a log
_USABLE_STATES: Final = frozenset(state.value for state in ServerState if state.is_usable)
_LABEL_WIDTH: Final = 11
_TIME_LENGTH: Final = len("2026-11-18T07:35:42Z")
_LOG_LINE: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


@frozen
class GatewayStatus:
    """A running gateway with the same store."""

    kind: str  # serve or stdio
    version: str
    pid: int
    since: str
    address: str | None = None


@frozen
class ServerSummary:
    """The state of one server."""

    name: str
    state: str
    tools: int
    reason: str | None = None


@frozen
class RuntimeStatus:
    """What `fingerpost status` shows."""

    version: str
    python: str
    gateways: tuple[GatewayStatus, ...]
    servers: tuple[ServerSummary, ...]
    tools: int
    approvals: int
    in_review: int
    models: dict[str, str]
    settings_file: str | None
    servers_file: str | None
    store: str
    logs: str


def show_status(*, common: CommonOptions) -> int:
    """Show what runs here: gateway, servers, tools, approvals, versions and files."""
    loaded = read_settings(common)

    async def work() -> RuntimeStatus:
        async with open_any_router(loaded) as router:
            return await _build_status(router, loaded)

    status = anyio.run(work)
    if common.as_json:
        print_json(to_plain(status))
    else:
        print_lines(_format_status(status))
    return 0


async def _build_status(router: Router, loaded: Loaded) -> RuntimeStatus:
    location = router.store.location
    answers = await anyio.to_thread.run_sync(_read_gateways, location.gateway_sockets)
    running = next((answer["servers"] for answer in answers if answer.get("servers")), None)
    own = {one.name: one for one in router.servers.statuses}
    known = {str(one.get("name")): one for one in running or ()}
    servers = tuple(
        ServerSummary(
            name=name,
            state=str(known[name].get("state")) if name in known else str(one.state),
            tools=len(router.tools.by_server(name)),
            reason=known[name].get("reason") if name in known else one.reason,
        )
        for name, one in own.items()
    )
    models = loaded.settings.models
    named = {"lite": models.lite, "prime": models.prime}
    places = loaded.places
    return RuntimeStatus(
        version=__version__,
        python=platform.python_version(),
        gateways=tuple(
            GatewayStatus(
                kind=str(answer.get("kind")),
                version=str(answer.get("version")),
                pid=int(answer.get("pid", 0)),
                since=str(answer.get("since")),
                address=answer.get("address"),
            )
            for answer in answers
        ),
        servers=servers,
        tools=len(router.tools.cards),
        approvals=len(await router.calls.approvals.list_waiting()),
        in_review=len(router.catalog.quarantined),
        models={role: one.model for role, one in named.items() if one is not None},
        settings_file=None if places is None or places.config is None else str(places.config),
        servers_file=None if places is None else str(places.servers),
        store=location.label,
        logs=str(location.logs),
    )


def _read_gateways(sockets: Path) -> list[dict[str, Any]]:
    answers = (read_gateway_status(path, secret) for path, secret in find_gateways(sockets))
    return [answer for answer in answers if answer is not None and answer.get("ok") is True]


def _format_status(status: RuntimeStatus) -> Iterator[str]:
    yield f"Fingerpost {status.version}, Python {status.python}"
    yield ""
    yield from _format_part("Gateway", list(_format_gateways(status)))
    yield from _format_part("Servers", list(_format_servers(status.servers, status.tools)))
    waiting = format_count(status.approvals, "call") + (" waits" if status.approvals == 1 else " wait")
    onward = ": `fingerpost approvals`" if status.approvals else ""
    yield from _format_part("Approvals", [repeat_options(f"{waiting}{onward}")])
    if status.in_review:
        tools = format_count(status.in_review, "tool")
        wait = "waits" if status.in_review == 1 else "wait"
        yield from _format_part("Review", [repeat_options(f"{tools} {wait} for review: `fingerpost pins`")])
    models = ", ".join(f"{role}: {clean_text(name)}" for role, name in status.models.items())
    yield from _format_part("Models", [models or "none; answers are the results of tools"])
    no_file = repeat_options("none; the defaults apply (`fingerpost config path` names the file to create)")
    files = [
        f"settings  {status.settings_file or no_file}",
        f"servers   {_describe_file(status.servers_file)}",
        f"store     {status.store}",
        f"logs      {status.logs}",
    ]
    yield from _format_part("Files", files)


def _format_part(label: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        shown = label if number == 0 else ""
        yield style_text(f"{shown:<{_LABEL_WIDTH}}", bold=True) + line


def _format_gateways(status: RuntimeStatus) -> Iterator[str]:
    if not any(one.kind == "serve" for one in status.gateways):
        yield repeat_options("not running; start it with `fingerpost serve`")
    for one in status.gateways:
        version = "" if one.version == status.version else f", version {one.version}"
        where = f"at {one.address}" if one.address else f"for a client that started it ({one.kind})"
        yield clean_text(f"running {where} since {one.since}, process {one.pid}{version}")


def _format_servers(servers: Sequence[ServerSummary], tools: int) -> Iterator[str]:
    if not servers:
        yield repeat_options("none configured; add one with `fingerpost servers add NAME -- COMMAND`")
        return
    up = sum(one.state in _USABLE_STATES for one in servers)
    unknown = sum(one.state == "idle" for one in servers)
    not_tried = f", {unknown} not connected yet" if unknown else ""
    yield f"{up} of {len(servers)} usable{not_tried}, {format_count(tools, 'tool')}"
    width = max(len(clean_text(one.name)) for one in servers)
    for one in servers:
        reason = f"  {clean_text(one.reason)}" if one.reason else ""
        state = "not connected" if one.state == "idle" else one.state
        tools_shown = format_count(one.tools, "tool")
        yield f"  {clean_text(one.name):<{width}}  {state:<13}  {tools_shown}{reason}"


def _describe_file(file: str | None) -> str:
    if file is None:
        return "none"
    return file if Path(file).exists() else f"{file} (does not exist yet)"


def show_logs(*, server: str | None, lines: int, follow: bool, common: CommonOptions) -> int:
    """Show what SERVER wrote to stderr, or our own log and that of all servers."""
    loaded = read_settings(common)
    folder = resolve_location(loaded.settings.store.url).logs
    names = [spec.name for spec in loaded.specs]
    if server is not None:
        if server not in names and not get_log_file(folder, server).exists():
            message = f"there is no server {server!r}"
            raise ConfigError(message, hint=f"there are: {', '.join(names) or 'none'}")
        names = [server]
    logs = {name: get_log_file(folder, name) for name in names}
    if server is None:
        logs[OWN_LOG_NAME] = get_log_file(folder, None)
    ends = {name: _get_size(file) for name, file in logs.items()}
    tails = [(line, name) for name, file in logs.items() for line in _read_tail(file, lines)]
    found = sorted(tails, key=lambda found: found[0][:_TIME_LENGTH])[-lines:]
    if common.as_json:
        print_json([{"log": name, "line": line} for line, name in found])
        return 0
    width = max((len(name) for name in logs), default=0) if server is None else 0
    for line, name in found:
        _print_log_line(line, name, width)
    if not found:
        print_dim(f"Nothing is logged yet in {folder}.")
        print_dim(
            repeat_options(
                "Only `fingerpost serve` and `fingerpost stdio` write logs. "
                "`fingerpost doctor` shows what is wrong with a server."
            )
        )
    if follow:
        _follow_logs(logs, ends, width)
    return 0 if found or follow else 1


def _print_log_line(line: str, name: str, width: int) -> None:
    label = style_text(f"{clean_text(name):<{width}}  ", fg="cyan") if width else ""
    click.echo(label + clean_text(line))


def _get_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _read_tail(file: Path, count: int) -> list[str]:
    """Return the last lines of a log, from the file before it, too, if the current one is short."""
    lines: list[str] = []
    for one in (file, file.with_name(f"{file.name}.1")):
        if len(lines) >= count:
            break
        try:
            data = one.read_bytes()[-MAX_TAIL_BYTES:]
        except OSError:
            continue
        texts = data.decode("utf-8", "replace").splitlines()
        lines = [line for line in texts if _LOG_LINE.match(line)] + lines
    return lines[-count:]


def _follow_logs(logs: dict[str, Path], ends: dict[str, int], width: int) -> None:
    """Print new lines until Ctrl-C."""
    while True:
        for name, file in logs.items():
            size = _get_size(file)
            if size < ends[name]:  # it was replaced by an empty one
                ends[name] = 0
            if size == ends[name]:
                continue
            with file.open("rb") as opened:
                opened.seek(ends[name])
                data = opened.read(size - ends[name])
            whole = data.rpartition(b"\n")[0]
            ends[name] += len(whole) + 1 if whole else 0
            for line in whole.decode("utf-8", "replace").splitlines():
                _print_log_line(line, name, width)
        time.sleep(FOLLOW_SECONDS)
