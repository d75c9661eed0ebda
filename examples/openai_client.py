"""Any OpenAI client, with nothing changed but the base URL, gets every tool behind Fingerpost.

`fingerpost serve` runs as it would on a server; the openai package talks to it. No language model
is configured here, so what is certain from the words is done without one; with `[models.prime]` in
the settings the same requests are answered by that model, and `model=` may name any other there.
A call that changes something waits for a person, and the conversation goes on when they have decided.

    $ python examples/openai_client.py
    models: fingerpost, fingerpost:keyless
    From time/get_current_time:
    {
      "timezone": "Asia/Tokyo",
      …
    tools considered: …, used: ['time/get_current_time']
    streamed: From time/get_current_time: … "timezone": "Europe/Oslo", …
    files/write_file needs a person's approval before it runs: …
    approved, elsewhere
    From files/write_file:
    …
    the file says: Buy milk.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import OpenAI

FOLDER = Path(".fingerpost/openai").absolute()
SERVERS = {
    "time": {"command": "mcp-server-time", "args": ["--local-timezone", "Etc/UTC"]},
    "files": {"command": "mcp-server-filesystem", "args": [str(FOLDER)]},
}
SETTINGS = {
    "FINGERPOST_STORE__URL": "sqlite:///.fingerpost/openai.db",
    "FINGERPOST_COMPLETIONS__APPROVAL_SECONDS": "0",  # by default a request waits a minute for the person
}
WRITE = f'Use files/write_file with path "{FOLDER / "list.md"}" and content "Buy milk."'


@contextmanager
def serving() -> Generator[str]:
    """The address of a running gateway."""
    command = ["fingerpost", "serve", "--servers", str(FOLDER / "mcp.json"), "--port", "0", "--json"]
    with subprocess.Popen(command, env={**os.environ, **SETTINGS}, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            told = "".join(iter(it.stdout.readline, "}\n"))
            yield json.loads(f"{told}}}")["openai"]
        finally:
            it.terminate()


def approve(pending_id: str) -> None:
    """What a person does in the console, or here: look at the call and say yes."""
    command = ["fingerpost", "approvals", "approve", pending_id]
    subprocess.run(command, env={**os.environ, **SETTINGS}, check=True, capture_output=True)
    print("approved, elsewhere")


def ask(client: OpenAI, messages: list[Any]) -> dict[str, Any]:
    """One answer, shown; what Fingerpost adds to it."""
    answer = client.chat.completions.create(model="fingerpost", messages=messages)
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    print(answer.choices[0].message.content)
    return (answer.model_extra or {})["fingerpost"]


def main() -> None:
    with serving() as address, OpenAI(base_url=address, api_key="none needed here") as client:
        print("models:", ", ".join(model.id for model in client.models.list()))

        told = ask(client, [{"role": "user", "content": "What time is it in Tokyo right now?"}])
        print(f"tools considered: {told['tools_considered']}, used: {told['tools_used']}")

        oslo: Any = [{"role": "user", "content": "What time is it in Oslo right now?"}]
        stream = client.chat.completions.create(model="fingerpost", messages=oslo, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        print("streamed:", " ".join("".join(pieces).split()))

        talk: list[Any] = [{"role": "user", "content": WRITE}]
        approve(ask(client, talk)["pending_id"])
        talk.append({"role": "user", "content": "Go on."})
        ask(client, talk)
        print("the file says:", (FOLDER / "list.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "mcp.json").write_text(json.dumps({"mcpServers": SERVERS}), encoding="utf-8")
    main()
