"""In a program without an event loop: ask from any number of threads.

`Embedded` runs a router on an event loop in a thread of its own. Each thread waits for its
own answer only, and no thread has to know that there is a loop.

    $ python examples/embedded_in_threads.py
    Tokyo: answered with Asia/Tokyo
    Lisbon: answered with Europe/Lisbon
    Nairobi: answered with Africa/Nairobi
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fingerpost import Server, Settings
from fingerpost.embed import Embedded
from fingerpost.settings import StoreSettings

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])
CITIES = ("Tokyo", "Lisbon", "Nairobi")


def main() -> None:
    with Embedded([CLOCK], settings=SETTINGS) as fingerpost, ThreadPoolExecutor() as threads:

        def ask(city: str) -> str:
            route = fingerpost.ask(f"What time is it in {city} right now?")
            zones = [step.arguments["timezone"] for step in route.packet.tool_routing.steps]
            return f"{city}: {route.outcome} with {', '.join(map(str, zones))}"

        for line in threads.map(ask, CITIES):
            print(line)


if __name__ == "__main__":
    main()
