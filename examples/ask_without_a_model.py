"""Ask without a language model: no key, no download, nothing leaves this machine.

What is certain from the words of the request is done, what is missing is asked, and
the answer says that no model wrote it.

    $ python examples/ask_without_a_model.py
    answered by no model, from time/get_current_time
    From time/get_current_time:
    {
      "timezone": "Asia/Tokyo",
      …
    }
    No language model is configured; this is the tool's own reply.
    asked: Which time zone? (timezone…
    missing: timezone
    answered by no model, from time/get_current_time
    From time/get_current_time:
    {
      "timezone": "Europe/Lisbon",
      …
    }
    No language model is configured; this is the tool's own reply.
"""

from __future__ import annotations

import anyio

from fingerpost import Route, Router, Server, Settings
from fingerpost.settings import StoreSettings

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])


def show(route: Route) -> None:
    print(f"{route.outcome} by {route.answered_by}, from {', '.join(route.sources)}")
    print(route.answer)


async def main() -> None:
    async with Router([CLOCK], settings=SETTINGS) as router:
        show(await router.route("What time is it in Tokyo right now?"))

        # Here the words do not say where: a question comes back, and its answer completes the call.
        asked = await router.route("Use time/get_current_time")
        if asked.question is not None:
            print(f"{asked.outcome}: {asked.question.text}")
            print("missing:", ", ".join(argument.name for argument in asked.question.missing))
            show(await router.reply(asked, "Lisbon"))


if __name__ == "__main__":
    anyio.run(main)
