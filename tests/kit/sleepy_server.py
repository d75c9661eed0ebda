"""A small stdio server whose tools, starts and faults are files in a folder, so that tests can change them.

`tools.json` holds the definitions, `starts` gets a line for each start and `calls` one for each call. A call
takes its `seconds`; if they are negative, the program ends. With `fault` containing "refuse" the program
exits at once, with "die" it exits when it is asked for its tools, and with "slow" it waits a second before it
answers. With "linger" it notes in `ends` that its input has ended, and runs on until it is killed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fingerpost.records import ServerSpec


class SleepyServer:
    """The folder of one server, as its test sees it."""

    def __init__(self, folder: Path, name: str = "sleepy") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.offer("look")

    def offer(self, *tools: str, writes: bool = False, **properties: Any) -> None:
        """Have the server list these tools from its next start on."""
        definitions = [
            {
                "name": tool,
                "description": f"Look up a {tool} in the list.",
                "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}, **properties}},
                "annotations": {"readOnlyHint": not writes},
            }
            for tool in tools
        ]
        (self.folder / "tools.json").write_text(json.dumps(definitions), "utf-8")

    def set_fault(self, fault: str) -> None:
        (self.folder / "fault").write_text(fault, "utf-8")

    @property
    def spec(self) -> ServerSpec:
        from fingerpost.servers import Server  # the program itself runs without our package

        command = [sys.executable, "-I", "-S", __file__, str(self.folder)]
        return Server.stdio(self.name, command, era="2025-11-25", trust_hints=True)

    @property
    def starts(self) -> int:
        return self._count("starts")

    @property
    def calls(self) -> int:
        return self._count("calls")

    @property
    def ends(self) -> int:
        return self._count("ends")

    def _count(self, file: str) -> int:
        path = self.folder / file
        return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


def _serve(folder: Path) -> None:
    def note(file: str) -> None:
        with (folder / file).open("a", encoding="utf-8") as out:
            out.write("x\n")

    note("starts")
    fault = (folder / "fault").read_text("utf-8") if (folder / "fault").exists() else ""
    if fault == "refuse":
        sys.exit("it does not start today")
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if number is None:
            continue
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "sleepy", "version": "1"},
                "instructions": "Look words up one at a time.",
            }
        elif method == "tools/list":
            if fault == "die":
                sys.exit("it dies while it wakes")
            if fault == "slow":
                time.sleep(1)
            result = {"tools": json.loads((folder / "tools.json").read_text("utf-8"))}
        elif method == "tools/call":
            note("calls")
            time.sleep(message["params"]["arguments"].get("seconds", 0))
            result = {"content": [{"type": "text", "text": "found"}]}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\n")
        sys.stdout.flush()


def _linger(folder: Path) -> None:
    if (folder / "fault").exists() and (folder / "fault").read_text("utf-8") == "linger":
        (folder / "ends").write_text("x\n", "utf-8")
        time.sleep(60)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
    _linger(Path(sys.argv[1]))
