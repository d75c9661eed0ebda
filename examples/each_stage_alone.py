"""Each stage alone: narrow, select, check, call.

Nothing is hidden in one big step: what a stage concludes is a value you can look at,
keep, or hand to the next stage yourself.

    $ python examples/each_stage_alone.py
    narrow: a tool is needed, with 0.… certainty
    narrow: … of 14 tools are offered: …files/read_text_file…
    select: files/read_text_file {"path": "…/notes.md", "Head": "3"}
    check:  files/read_text_file {"path": "…/notes.md", "head": 3}
    check:  head was renamed: the same name in another case or with other separators
    check:  head was coerced: text that is a number
    call:   it succeeded
    # Notes
    The fingerpost stands where the three lanes meet. …
"""

from __future__ import annotations

import json
from pathlib import Path

import anyio

from fingerpost import Router, Server, Settings
from fingerpost.records import JsonObject, NeedVerdict, ToolCall
from fingerpost.settings import StoreSettings
from fingerpost.testing import ScriptedModel

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
NOTES = Path(__file__).with_name("workspace") / "notes.md"
REQUEST = f"Read the first three lines of the text file {NOTES}"

# A script stands in for the model. It spells an argument wrongly and writes a number as text, as models do.
SELECTION: JsonObject = {
    "tool": "files__read_text_file",
    "arguments": {"path": str(NOTES), "Head": "3"},
    "reasoning": "a file is to be read",
    "confidence": 0.9,
    "alternatives": [],
    "remaining": "",
}


async def main() -> None:
    files = Server.stdio("files", ["mcp-server-filesystem", str(NOTES.parent)])
    async with Router([files], settings=SETTINGS, model=ScriptedModel([json.dumps(SELECTION)])) as router:
        await router.connect()

        narrowing = await router.narrow(REQUEST)
        if narrowing.need.verdict is NeedVerdict.TOOL:
            print(f"narrow: a tool is needed, with {narrowing.need.score:.2f} certainty")
        offered = [candidate.tool for candidate in narrowing.shortlist.offered]
        print(f"narrow: {len(offered)} of {len(router.tools.cards)} tools are offered: {', '.join(offered)}")

        chosen = await router.select(REQUEST, narrowing)
        if chosen.selection is None:
            return
        print("select:", chosen.selection.tool, json.dumps(chosen.selection.arguments))

        wish = ToolCall(name=chosen.selection.tool, arguments=chosen.selection.arguments)
        checked = await router.calls.check(wish)
        print("check: ", checked.tool, json.dumps(checked.arguments))
        for repair in checked.repairs:
            print(f"check:  {repair.path} was {repair.kind}: {repair.reason}")

        outcome = await router.call(wish.name, wish.arguments)
        print("call:  ", "it succeeded" if outcome.success else outcome.error)
        print(outcome.content)


if __name__ == "__main__":
    anyio.run(main)
