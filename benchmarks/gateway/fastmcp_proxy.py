"""FastMCP as a gateway, as its documentation has it: `create_proxy`, mounted once for each server.

`--held` keeps one upstream session open for the life of the process, which one has to know how to do.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.providers.proxy import FastMCPProxy, ProxyClient


def create_shared_proxy(upstream: str) -> FastMCP[Any]:
    maker: Any = ProxyClient
    shared: Any = maker(upstream, mode="legacy").new()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with shared:
            yield {}

    return FastMCPProxy(client_factory=lambda: shared, lifespan=lifespan)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("upstreams", nargs="+")
    reader.add_argument("--port", type=int, required=True)
    reader.add_argument("--held", action="store_true")
    asked = reader.parse_args()
    make = create_shared_proxy if asked.held else create_proxy
    app: FastMCP[Any]
    if len(asked.upstreams) == 1:
        app = make(asked.upstreams[0])
    else:
        app = FastMCP("all")
        for number, upstream in enumerate(asked.upstreams):
            app.mount(make(upstream), namespace=f"s{number}")
    app.run(transport="http", host="127.0.0.1", port=asked.port, show_banner=False, log_level="error")


if __name__ == "__main__":
    main()
