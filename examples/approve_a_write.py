"""A write waits for a person, and goes on in another process.

The first run asks for a file to be written and ends: the call waits in the store. The
second one, hours later perhaps, shows exactly what would run, takes the person's word
and goes on from there. No model is asked for the call again.

    $ python examples/approve_a_write.py ask
    waiting: files/write_file
    no rule allows overwriting or deleting
    $ python examples/approve_a_write.py approve
    dana reads: files/write_file {"path": "…/list.md", "content": "Buy milk."}
    answered: It is written.
    Source: files/write_file
    the file says: Buy milk.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from fingerpost import Router, Server, Settings
from fingerpost.settings import StoreSettings
from fingerpost.testing import ScriptedModel, calls

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/approve.db"))
FOLDER = Path(".fingerpost/desk").absolute()
NOTE = FOLDER / "list.md"
FILES = Server.stdio("files", ["mcp-server-filesystem", str(FOLDER)])

# A script stands in for the model; `ask_with_a_model.py` says where a real one goes.
WRITES = calls(("files__write_file", {"path": str(NOTE), "content": "Buy milk."}))


async def ask() -> None:
    async with Router([FILES], settings=SETTINGS, model=ScriptedModel([WRITES])) as router:
        route = await router.route(f"Write 'Buy milk.' into the file {NOTE}", mode="single")
    if route.pending is not None:
        print(f"{route.outcome}: {route.pending.tool}")
        print(route.pending.reason)


async def approve() -> None:
    async with Router([FILES], settings=SETTINGS, model=ScriptedModel(["It is written."])) as router:
        for pending in await router.calls.approvals.list_waiting():
            print("dana reads:", pending.tool, json.dumps(pending.arguments))
            route = await router.resume(pending, pending.approve(by="dana"))
            print(f"{route.outcome}: {route.answer}")
    print("the file says:", NOTE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    anyio.run(approve if "approve" in sys.argv else ask)
