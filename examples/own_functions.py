"""Python functions as tools, registered while the router runs.

Name, description and parameters are those of the function; policy and approvals hold as for every tool:

    $ python examples/own_functions.py
    offered: local/get_stock
    answer: {"item": "owls", "left": 6}
    asks first: remove_stock
"""

from __future__ import annotations

import anyio

from fingerpost import Router, Settings
from fingerpost.settings import StoreSettings

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))


def get_stock(item: str, shelf: int = 1) -> dict[str, str | int]:
    """Count what is in stock of an item on a shelf."""
    return {"item": item, "left": 3 * shelf}


async def remove_stock(item: str) -> str:
    """Remove an item from the stock for ever."""
    return f"{item} is gone"


async def main() -> None:
    async with Router(settings=SETTINGS) as router:
        await router.register(get_stock, effect="read")
        await router.register(remove_stock, effect="destroy")
        found = await router.narrow("how many owls are in stock on shelf 2?")
        print("offered:", found.shortlist.offered[0].tool)
        counted = await router.call("get_stock", {"item": "owls", "shelf": 2})
        print("answer:", counted.content)
        removed = await router.call("remove_stock", {"item": "owls"})
        if removed.pending_id is not None:  # the policy holds for functions, too
            print("asks first: remove_stock")


anyio.run(main)
