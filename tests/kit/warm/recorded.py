"""Stands for a server that takes long to start, and starts it when more than its definitions are asked for.

Run: `python -I -S recorded.py FOLDER PROGRAM ARGUMENT…`. What the program answered to the first client (who
it is, what it lists) is kept in the folder and is the answer to the same question of the next client. Any
other question starts the program, which is told all that came before.
"""

import hashlib
import json
import os
import sys
import threading

TYPE_CHECKING = False  # `typing` itself would have to be loaded
if TYPE_CHECKING:
    from typing import Any, BinaryIO

KEPT = (
    "initialize",
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
)
QUIET = ("notifications/initialized",)  # told the program when it is started


def make_key(program: "list[str]", message: "dict[str, Any]") -> str:
    """What the answer depends on: the program, the question, all arguments but the paths it works on."""
    program = [program[0], *(one for one in program[1:] if not one.startswith("/"))]
    params = {name: value for name, value in message.get("params", {}).items() if name != "_meta"}
    text = json.dumps([program, message["method"], params], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class RecordedServer:
    """Answers from the folder until the program is needed; from then on it answers everything."""

    def __init__(self, folder: str, program: "list[str]") -> None:
        self._folder = folder
        self._program = program
        self._heard: list[bytes] = []  # what the program must be told when it starts
        self._answered: set[Any] = set()  # ids of questions that we answered
        self._keys: dict[Any, str] = {}  # by the id of a question whose answer is to be kept
        self._process: Any = None
        self._reader: threading.Thread | None = None

    def hear(self, line: bytes) -> None:
        """One message of the client."""
        message = json.loads(line)
        method = message.get("method")
        if method in KEPT and "id" in message:
            key = make_key(self._program, message)
            if self._process is None and (kept := self._read(key)) is not None:
                self._heard.append(line)
                self._answered.add(message["id"])
                self._say({**kept, "id": message["id"]})
                return
            self._keys[message["id"]] = key
        elif method in QUIET and self._process is None:
            self._heard.append(line)
            return
        process = self._process or self._start()
        process.stdin.write(line)
        process.stdin.flush()

    def end(self) -> int:
        """The client has gone: the program ends by itself, as it would without us."""
        if self._process is None or self._reader is None:
            return 0
        self._process.stdin.close()
        self._reader.join()
        return self._process.wait()

    def _start(self) -> "Any":
        import subprocess  # most runs never need it

        self._process = started = subprocess.Popen(
            self._program, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert started.stdin is not None and started.stdout is not None
        started.stdin.write(b"".join(self._heard))
        self._reader = threading.Thread(target=self._pass_answers, args=(started.stdout,))
        self._reader.start()
        return started

    def _pass_answers(self, answers: "BinaryIO") -> None:
        for line in answers:
            message = json.loads(line)
            asked = message.get("id") if "method" not in message else None
            if asked in self._answered:
                self._answered.discard(asked)
                continue
            if (key := self._keys.pop(asked, None)) is not None:
                self._keep(key, message)
            self._say(message)

    def _say(self, message: "dict[str, Any]") -> None:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()

    def _read(self, key: str) -> "dict[str, Any] | None":
        try:
            with open(f"{self._folder}/{key}", "rb") as file:  # noqa: PTH123 - loading pathlib takes longer
                return json.load(file)
        except FileNotFoundError:
            return None

    def _keep(self, key: str, message: "dict[str, Any]") -> None:
        beside = f"{self._folder}/{key}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(message, file)
        os.replace(beside, f"{self._folder}/{key}")  # noqa: PTH105 - others may read it now


def main() -> None:
    _, folder, *program = sys.argv
    server = RecordedServer(folder, program)
    for line in sys.stdin.buffer:
        server.hear(line)
    sys.stdout.buffer.flush()
    os._exit(server.end())


if __name__ == "__main__":
    main()
