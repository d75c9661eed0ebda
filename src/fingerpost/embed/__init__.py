"""Fingerpost inside a program that is not asynchronous.

    from fingerpost.embed import Embedded

    with Embedded("mcp.json") as fingerpost:
        route = fingerpost.ask("What time is it in Tokyo?")
        print(route.answer)

The router runs on an event loop in a thread of its own. Any number of threads may ask at
once; each waits for its own answer only. Errors are those of the router. An asynchronous
program uses `Router` itself.
"""

from fingerpost.embed.agent import EmbeddedAgent
from fingerpost.embed.embedded import Embedded

__all__ = ["Embedded", "EmbeddedAgent"]
