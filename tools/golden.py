"""Record what users of Fingerpost can see, and compare two records.

    python tools/golden.py record before/
    python tools/golden.py record after/
    python tools/golden.py compare before/ after/

A refactoring must not change any of it: public names and signatures, commands with
their options and exit codes, settings, event kinds and fields, the database schema,
the HTTP API, the bytes of `tools/list`, and routing scores. Everything is read from
the outside (the installed command, HTTP, the public packages), so that the same
script runs before and after modules have moved.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).parent.parent
PUBLIC: Final = ("fingerpost", "fingerpost.llm", "fingerpost.testing", "fingerpost.embed")
MODES: Final = ("auto", "route", "all")
REQUESTS: Final = (
    "What time is it in Tokyo right now?",
    "Which tables does the database have?",
    "Show the last three commits",
    "Read the file notes.md",
    "Delete the file old.txt",
    "Remember that Dana likes tea",
    "Fetch https://example.com and summarise it",
    "What is photosynthesis?",
    "Hello!",
    "מה השעה עכשיו בתל אביב?",
    "מה כתוב בקובץ notes.md?",
    "Add 17 and 25, then read notes.md and commit the change",
)
COMMANDS_THAT_FAIL: Final = (
    ("no-such-command",),
    ("call",),
    ("config", "check", "--config", "no-such-file.toml"),
    ("tool", "no_such_tool", "--servers", "no-such-file.json"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("record").add_argument("folder", type=Path)
    comparison = actions.add_parser("compare")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.action == "compare":
        return compare(given.before, given.after)
    record(given.folder)
    return 0


def compare(before: Path, after: Path) -> int:
    """Print the differences; return 1 if there are any."""
    names = {path.name for folder in (before, after) for path in folder.iterdir()}
    different = 0
    for name in sorted(names):
        old, new = (_read_lines(folder / name) for folder in (before, after))
        lines = list(difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="", n=1))
        different += bool(lines)
        print("\n".join(lines) if lines else f"{name}: no difference, {len(old)} lines")
    return 1 if different else 0


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def record(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        found: dict[str, object] = {
            "public": describe_public_names(),
            "events": describe_events(),
            "settings": (ROOT / "docs" / "reference" / "settings.md").read_text(),
            "help": collect_help(home),
            "exits": collect_exit_codes(home),
        }
        with serve(home) as url:
            found["openapi"] = describe_api(url)
            found["tools_list"] = list_tools(url)
            found["routing"] = route_requests(url)
        found["schema"] = read_schema(home / "golden.db")
    for name, value in found.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
        (folder / f"{name}.txt").write_text(text + "\n")


def describe_public_names() -> dict[str, dict[str, str]]:
    """Every public name with its signature, or the signatures of its public methods."""
    return {package: dict(_describe_package(package)) for package in PUBLIC}


def _describe_package(package: str) -> Iterator[tuple[str, str]]:
    module = importlib.import_module(package)
    for name in sorted(module.__all__):
        value: object = getattr(module, name)
        yield name, _signature(value)
        if inspect.isclass(value):
            for member in sorted(vars(value)):
                if not member.startswith("_"):
                    yield f"{name}.{member}", _signature(inspect.getattr_static(value, member))


def _signature(value: object) -> str:
    try:
        # Annotations name internal classes, which may be renamed: parameters and defaults are the promise.
        signature = inspect.signature(cast("Any", value))
    except (TypeError, ValueError):
        return type(value).__name__
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+|fingerpost(\.\w+)+", "", text)


def describe_events() -> dict[str, list[str]]:
    importlib.import_module("fingerpost.router")
    kinds = importlib.import_module("fingerpost").Event.kinds
    return {
        kind: [field.name for field in fields(event)] if is_dataclass(event) else []
        for kind, event in sorted(kinds.items())
    }


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FINGERPOST_")}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "XDG_STATE_HOME": str(home),
        "TMPDIR": str(home),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "FINGERPOST_STORE__URL": f"sqlite:///{home}/golden.db",
    }


def _run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "fingerpost"), *words]
    return subprocess.run(
        command, cwd=ROOT, env=_environment(home), capture_output=True, text=True, check=False, timeout=120
    )


def collect_help(home: Path) -> str:
    """The help of every command and subcommand."""
    texts: list[str] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop(0)
        text = _run(home, *words, "--help").stdout
        texts.append(f"$ fingerpost {' '.join((*words, '--help'))}\n{text}")
        if "COMMAND [ARGS]" in text.splitlines()[0]:
            waiting += [(*words, name) for name in _names_of_commands(text)]
    return "\n".join(texts)


def _names_of_commands(text: str) -> list[str]:
    """The words that stand in the first column under a heading that is not `Options`."""
    names: list[str] = []
    heading = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line
        elif heading and heading != "Options:" and (match := re.match(r"  (\S+)  ", line)):
            names.append(match[1])
        elif line.strip() == "Examples:":
            break
    return names


def collect_exit_codes(home: Path) -> dict[str, list[object]]:
    ended = {" ".join(words): _run(home, *words) for words in COMMANDS_THAT_FAIL}
    return {words: [run.returncode, run.stdout, run.stderr] for words, run in ended.items()}


@contextmanager
def serve(home: Path) -> Generator[str, None, None]:
    """Run the gateway at a free port; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        str(Path(sys.executable).parent / "fingerpost"),
        *("serve", "--config", "examples/own.toml", "--servers", "examples/servers.json"),
        *("--port", str(port)),
    ]
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(home), stdout=log, stderr=log)
        try:
            _wait_until_ready(process, home / "serve.log", url)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, url: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        servers: list[dict[str, str]] = []
        with suppress(OSError):
            servers = _get(f"{url}/api/servers")["items"]
        if servers and all(server["state"] == "ready" for server in servers):
            return
        time.sleep(0.5)
    message = f"the gateway did not come up:\n{log.read_text()[-3000:]}"
    raise RuntimeError(message)


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def _post(url: str, body: object, **headers: str) -> bytes:
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read()


def describe_api(url: str) -> object:
    """The OpenAPI document with its references written out: the names of components are ours."""
    document = _get(f"{url}/api/openapi.json")
    document["servers"] = []
    schemas = document.pop("components", {}).get("schemas", {})
    return _write_out(document, schemas, ())


def _write_out(value: object, schemas: dict[str, object], above: tuple[str, ...]) -> object:
    if isinstance(value, list):
        return [_write_out(one, schemas, above) for one in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, object]", value)
    reference = str(found.get("$ref", ""))
    name = reference.removeprefix("#/components/schemas/")
    if name in above:
        return {"recursive": len(above) - above.index(name)}
    if name != reference and name in schemas:
        return _write_out(schemas[name], schemas, (*above, name))
    is_schema = "properties" in found or "enum" in found
    return {
        key: _write_out(one, schemas, above)
        for key, one in found.items()
        if not (is_schema and key == "title")
    }


def list_tools(url: str) -> dict[str, str]:
    """The replies to `tools/list`, as text, page by page."""
    return {
        mode: "\n".join(_pages(f"{url}/mcp/{mode}" if mode != "auto" else f"{url}/mcp")) for mode in MODES
    }


def _pages(url: str) -> Iterator[str]:
    cursor: str | None = None
    while True:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "golden", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"_meta": meta, **({"cursor": cursor} if cursor else {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        reply = _post(url, body, **headers).decode()
        yield reply
        cursor = json.loads(reply)["result"].get("nextCursor")
        if cursor is None:
            return


def route_requests(url: str) -> dict[str, object]:
    """The scores once all vectors are made: repeated until they no longer change."""
    before: dict[str, object] = {}
    while True:
        found = {text: _route(url, text) for text in REQUESTS}
        if found == before:
            return found
        before = found
        time.sleep(3)


def _route(url: str, text: str) -> object:
    return _without_changing(json.loads(_post(f"{url}/api/route", {"request": text})))


def _without_changing(value: object) -> object:
    """Leave out ids and times."""
    if isinstance(value, list):
        return [_without_changing(one) for one in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, object]", value)
    return {
        key: _without_changing(one)
        for key, one in found.items()
        if not key.endswith(("_id", "_at", "_ms", "seconds")) and key not in ("id", "version")
    }


def read_schema(database: Path) -> list[str]:
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
        return [row[0] for row in rows]


if __name__ == "__main__":
    sys.exit(main())
