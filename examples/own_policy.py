"""What may run, what asks, what never runs: rules in a few words, before those of a settings file.

What reads runs, and what writes or destroys asks, unless a rule says otherwise. A tool that
is denied is not even offered to a model.

    $ python examples/own_policy.py
    create_directory: done
    write_file: authorization_required, under apr_…
    move_file: denied
    not even offered: files/move_file
"""

from __future__ import annotations

from pathlib import Path

import anyio

from fingerpost import Policy, Router, Server, Settings
from fingerpost.settings import StoreSettings

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
FOLDER = Path(".fingerpost/desk").absolute()
POLICY = Policy(
    deny={"files/move_file"},  # never, whatever is approved
    allow={"files/create_directory"},  # without asking, although it writes
    ask_for={"write", "destroy"},  # everything else that changes something
)


async def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    new, old = str(FOLDER / "new"), str(FOLDER / "old.md")
    files = Server.stdio("files", ["mcp-server-filesystem", str(FOLDER)])
    async with Router([files], settings=SETTINGS, policy=POLICY) as router:
        await router.connect()
        made = await router.call("files/create_directory", {"path": new})
        print("create_directory:", "done" if made.success else made.error)
        written = await router.call("files/write_file", {"path": old, "content": "Hello"})
        print(f"write_file: {written.error}, under {written.pending_id}")
        moved = await router.call("files/move_file", {"source": old, "destination": new})
        print("move_file:", moved.error)

        narrowing = await router.narrow(f"Move the file {old} to {new}")
        for hidden in narrowing.shortlist.hidden:
            print("not even offered:", hidden.tool)


if __name__ == "__main__":
    anyio.run(main)
