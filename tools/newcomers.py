"""`python tools/newcomers.py WHEEL`: what three newcomers do first, on an empty machine with the wheel.

A person with an editor and an `mcpServers` file, a Python developer, and an operator in the browser; and
what the container image does, by the lines of the Dockerfile, since no container can be built here. Each
starts in an empty folder with a home of their own; `fingerpost` comes from the wheel, installed into a new
virtual environment. Every command is printed with its output, its time and whether it did what it should;
the exit status is 1 if one did not. `make dist-check` builds the wheel first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
DOCKERFILE = README.with_name("Dockerfile")
TOKYO = "what time is it in Tokyo right now?"
SERVERS = ("mcp-server-time", "mcp-server-git")
MISTAKE = """
import anyio
from fingerpost import Router, Server

async def main():
    async with Router([Server.stdio("time", ["mcp-server-time"])]) as router:
        print(repr(router))
        await router.route("What time is it in Tokyo?", dryrun=True)

anyio.run(main)
"""
IMPORT_COST = "import time; from fingerpost import Router; Router(); print(time.process_time(), 's of CPU')"
SIZE = "du -sm --exclude=pip --exclude=setuptools venv/lib | cut -f1"


@dataclass
class Newcomer:
    """Somebody with an empty folder, a home and a PATH, and what they did."""

    folder: Path
    programs: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def environ(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.programs), "/usr/local/bin", "/usr/bin", "/bin"])
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        return {
            **kept,
            **self.settings,
            "HOME": str(self.folder),
            "PATH": path,
            "COLUMNS": "110",
            "LANG": "C.UTF-8",
        }

    def run(self, command: str, *expected: str, status: int | None = 0, lines: int = 40) -> str:
        """Run a command, print it with its output and time, and note what is not as expected."""
        print(f"\n$ {command}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        self.report(command, done.stdout, time.monotonic() - began, expected, lines=lines)
        if status is not None and done.returncode != status:
            self.failures.append(f"{command}: exit status {done.returncode}")
        return done.stdout

    def request(
        self, address: str, body: object = None, *expected: str, headers: Mapping[str, str] | None = None
    ) -> tuple[Any, Mapping[str, str]]:
        """Send what a browser would send; note what is not as expected."""
        method = "GET" if body is None else "POST"
        data = None if body is None else json.dumps(body).encode()
        print(f"\n{method} {address}{'' if data is None else ' ' + data.decode()}", flush=True)
        asked = urllib.request.Request(
            address, data, {"Content-Type": "application/json", **(headers or {})}, method=method
        )
        began = time.monotonic()
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                text, told = (
                    answer.read().decode(errors="replace"),
                    {name.lower(): value for name, value in answer.headers.items()},
                )
        except urllib.error.HTTPError as refused:
            text, told = f"{refused.code}: {refused.read().decode()}", {}
            self.failures.append(f"{method} {address}: {refused.code}")
        self.report(f"{method} {address}", text, time.monotonic() - began, expected, width=500, lines=3)
        return (json.loads(text) if text.startswith(("{", "[")) else text), told

    def report(
        self,
        what: str,
        printed: str,
        took: float,
        expected: Sequence[str],
        *,
        width: int = 200,
        lines: int = 40,
    ) -> None:
        """Print what came of a step, and note what is missing in it."""
        shown = [line.rstrip() for line in printed.splitlines() if line.strip()]
        for line in shown[:lines]:
            print(f"  {line[:width]}{' …' if len(line) > width else ''}")
        if len(shown) > lines:
            print(f"  … {len(shown) - lines} more lines")
        missing = [text for text in expected if text not in printed]
        self.failures += [f"{what}: does not say {text!r}" for text in missing]
        self.seconds += took
        print(f"  -> {took:.1f} s{', NOT as expected' if missing else ''}", flush=True)


def play_installation(person: Newcomer) -> None:
    """What every newcomer does first."""
    person.run("python3 -m venv venv")
    person.run("pip install --quiet ./fingerpost-*.whl", lines=5)
    person.run("pip list --format=freeze | grep -vcE '^(pip|setuptools)='")
    person.run(f"echo $({SIZE}) MB")
    person.run(f"pip install --quiet {' '.join(SERVERS)}", lines=5)
    person.run("fingerpost --version", "fingerpost")


def play_editor(person: Newcomer) -> None:
    """A person with an editor and an mcpServers file."""
    file = person.folder / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"time": {"command": "mcp-server-time"}}}), "utf-8")
    person.run("cat ~/.cursor/mcp.json")
    person.run("fingerpost status", "fingerpost servers add")
    person.run("fingerpost install cursor --replace --yes", "Restart Cursor")
    person.run("cat ~/.cursor/mcp.json", "stdio")
    person.run("fingerpost servers", "1 of 1 server up, 2 tools")
    person.run(f'fingerpost ask "{TOKYO}"', "Asia/Tokyo")
    entry = json.loads(file.read_text("utf-8"))["mcpServers"]["fingerpost"]
    print("\nCursor starts the entry, lists its tools and calls one:")
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "cursor", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {
            "id": 3,
            "method": "tools/call",
            "params": {"name": "time__get_current_time", "arguments": {"timezone": "Asia/Tokyo"}},
        },
    ]
    talk_to_program(person, entry, messages, "time__get_current_time", "+09:00")
    person.run("fingerpost status", "1 of 1 usable")


def talk_to_program(
    person: Newcomer, entry: dict[str, Any], messages: list[dict[str, Any]], *expected: str
) -> None:
    """Send messages to a stdio server as a desktop application starts it, and read the replies."""
    command: list[str] = [entry["command"], *entry["args"]]
    environ = {**person.environ, "PATH": "/usr/bin:/bin", **entry.get("env", {})}
    began = time.monotonic()
    replies: list[str] = []
    with subprocess.Popen(
        command,
        cwd="/",
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for message in messages:
            program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            program.stdin.flush()
            while "id" in message:
                line = program.stdout.readline()
                reply = json.loads(line) if line else {"id": message["id"], "error": "it ended"}
                if reply.get("id") == message["id"] and "method" not in reply:
                    replies.append(json.dumps(reply))
                    break
        program.stdin.close()
    person.report(" ".join(command), "\n".join(replies), time.monotonic() - began, expected)


def play_developer(person: Newcomer) -> None:
    """A Python developer."""
    block = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert block is not None
    (person.folder / "tokyo.py").write_text(block[1], "utf-8")
    person.run("cat tokyo.py")
    person.run("python tokyo.py", "waiting time/get_current_time", "answered no model")
    person.run(f'python -c "{IMPORT_COST}"', "s of CPU")
    (person.folder / "mistake.py").write_text(MISTAKE, "utf-8")
    person.run("python mistake.py 2>&1 | tail -3", "did you mean 'dry_run'?")
    person.run("python -c 'from fingerpost import Route; help(Route)'", "answer", lines=30)
    person.run("ls -A ~", "tokyo.py")


def play_operator(person: Newcomer) -> None:
    """An operator in the browser: adds a server, asks, approves a write, and looks at the trail."""
    person.run(
        "git init --quiet notes && cd notes && git config user.name me && git config user.email me@home"
    )
    person.run("git -C notes commit --quiet --allow-empty --message first")
    with serve(person) as address:
        person.request(f"{address}/healthz")
        person.request(f"{address}/", None, "Fingerpost")
        person.request(f"{address}/docs/", None, "Get started")
        said = person.run("fingerpost console", "http://")
        ticket = re.search(r"#/sign-in/([\w.~-]+)", said)
        if ticket is None:
            person.failures.append("fingerpost console: no link with a ticket")
            return
        origin = {"Origin": address}
        session, told = person.request(f"{address}/api/session", {"ticket": ticket[1]}, headers=origin)
        cookie = told.get("set-cookie", "").partition(";")[0]
        signed_in = {**origin, "Cookie": cookie, "X-CSRF-Token": session["csrf"]}
        for name, args in (("time", []), ("git", ["--repository", str(person.folder / "notes")])):
            entry = {"command": f"mcp-server-{name}", "args": args}
            added = {"name": name, "entry": entry}
            person.request(f"{address}/api/server-trials", added, '"connected":true', headers=signed_in)
            person.request(f"{address}/api/servers", added, name, headers=signed_in)
        person.request(f"{address}/api/ask", {"request": TOKYO}, "Asia/Tokyo", headers=signed_in)
        write = f'Use git/git_create_branch with branch_name "tea" and repo_path "{person.folder / "notes"}"'
        person.request(f"{address}/api/ask", {"request": write}, "needs your approval", headers=signed_in)
        waiting, _ = person.request(f"{address}/api/approvals", None, "git_create_branch", headers=signed_in)
        pending = waiting["items"][0]["pending_id"]
        person.request(f"{address}/api/approvals/{pending}/approve", {}, headers=signed_in)
        person.run("for i in $(seq 100); do git -C notes branch | grep tea && break; sleep 0.1; done", "tea")
        person.request(f"{address}/api/packets", None, "git_create_branch", headers=signed_in)
        person.request(f"{address}/api/audit/verify", {}, "intact", headers=signed_in)
        person.run("fingerpost status", "running")


def play_container(person: Newcomer) -> None:
    """What the image does: its entry point, environment and health check, without a container."""
    text = DOCKERFILE.read_text("utf-8")
    person.settings = dict(re.findall(r"(FINGERPOST_\w+)=(\S+)", text))
    entry, command, check = (
        json.loads(re.findall(rf"^{word}.*?(\[.*)$", text, re.MULTILINE)[0])
        for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK")
    )
    person.run(shlex.join([*entry, *command]), "fingerpost keys add", status=2)
    key = person.run(shlex.join([*entry, "keys", "add", "me"]), "fp_").split()
    with serve(person) as address:
        person.run(shlex.join(check).replace("8642", address.rpartition(":")[2]))
        bearer = next((word for word in key if word.startswith("fp_")), "")
        with_key = {"Authorization": f"Bearer {bearer}"}
        person.request(f"{address}/v1/models", None, "fingerpost", headers=with_key)


@contextmanager
def serve(person: Newcomer) -> Generator[str]:
    """The address of a gateway that was started without any server."""
    print("\n$ fingerpost serve --port 0", flush=True)
    began = time.monotonic()
    log = person.folder / "serve.log"
    with log.open("w") as out:
        program = subprocess.Popen(
            [str(person.programs / "fingerpost"), "serve", "--port", "0"],
            cwd=person.folder,
            env=person.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        while not re.search(r"Serving at .*servers add", log.read_text("utf-8"), re.DOTALL):
            if time.monotonic() - began > 60 or program.poll() is not None:
                break
            time.sleep(0.05)
        printed = log.read_text("utf-8")
        person.report("fingerpost serve", printed, time.monotonic() - began, ["Serving at", "servers add"])
        found = re.search(r"Serving at http://\S+:(\d+)", printed)
        yield f"http://127.0.0.1:{found[1] if found else 8642}"
    finally:
        program.terminate()
        program.wait(20)


JOURNEYS = {
    "Everyone: install the wheel": play_installation,
    "A person with an editor and an mcpServers file": play_editor,
    "A Python developer": play_developer,
    "An operator in the browser": play_operator,
    "The container": play_container,
}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("wheel", type=Path)
    wheel: Path = reader.parse_args().wheel
    played: list[tuple[str, Newcomer]] = []
    with tempfile.TemporaryDirectory(prefix="newcomers-") as machine:
        shutil.copy(wheel, machine)
        for title, play in JOURNEYS.items():
            folder = Path(machine, "" if play is play_installation else play.__name__.removeprefix("play_"))
            folder.mkdir(exist_ok=True)
            person = Newcomer(folder, Path(machine, "venv/bin"))
            print(f"\n## {title}", flush=True)
            play(person)
            played.append((title, person))
    print("\n## Result")
    for title, person in played:
        print(f"{person.seconds:6.1f} s  {title}")
    failures = [failure for _, person in played for failure in person.failures]
    for failure in failures:
        print(f"NOT as expected: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
