"""Everything on one port, with a server inside and no model. Run as a program it prints its address.

python -m benchmarks.live.front FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from fingerpost import Router, Settings
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.serve import get_backend_options, serve
from fingerpost.testing import tool_server


async def tell_time(name: str, arguments: dict[str, Any]) -> str:
    return f"it is 21:00 in {arguments['timezone']}"


def clock() -> dict[str, Any]:
    zone = {"type": "string", "description": "IANA time zone such as Asia/Tokyo"}
    return {
        "name": "get_current_time",
        "description": "Get the current time in a time zone",
        "inputSchema": {"type": "object", "properties": {"timezone": zone}, "required": ["timezone"]},
        "annotations": {"readOnlyHint": True},
    }


async def main(folder: Path) -> None:
    settings = Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/store.db"},
            "narrow": {"vectors": str(folder / "vectors")},
            "api": {"per_minute": 1_000_000},  # one caller makes all requests here
        }
    )
    server = tool_server("time", [clock()], call=tell_time)
    async with Router((server.spec(),), settings=settings) as router:
        await router.connect()
        await router.settle(120)
        await serve(
            router,
            host="127.0.0.1",
            port=0,
            authenticator=lambda bound: build_authenticator(
                settings.gateway, keys=router.store.keys, events=router.events, bound=bound
            ),
            started=lambda address: print(address, flush=True),
        )


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), backend_options=get_backend_options())
