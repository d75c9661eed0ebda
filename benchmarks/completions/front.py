"""/v1 in front of a model server, with many tools. Run as a program it prints its address.

python -m benchmarks.completions.front UPSTREAM FOLDER TOOLS
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from benchmarks.gateway.upstream import filler_tool
from fingerpost import Router, Settings
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app
from fingerpost.surfaces.openai.app import open_openai_app
from fingerpost.surfaces.serve import get_backend_options
from fingerpost.testing import tool_server


async def main(upstream: str, folder: Path, tools: int) -> None:
    records = [filler_tool(number).model_dump(by_alias=True, exclude_none=True) for number in range(tools)]
    settings = Settings.model_validate(
        {
            "models": {"prime": {"model": "tiny", "base_url": f"{upstream}/v1"}},
            "store": {"url": f"sqlite:///{folder}/store.db"},
            "narrow": {"vectors": str(folder / "vectors")},
            "api": {"per_minute": 10_000_000},
        }
    )
    async with Router((tool_server("office", records).spec(),), settings=settings) as router:
        await router.connect()
        await router.settle(120)
        with listen_at("127.0.0.1", 0) as listening:
            bound = get_address(listening)
            gate = build_authenticator(
                settings.gateway, keys=router.store.keys, events=router.events, bound=bound
            )
            async with open_openai_app(router, authenticator=gate, address=f"http://{bound}") as app:
                print(f"http://{bound}", flush=True)
                await serve_app(app, listening)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), backend_options=get_backend_options())
