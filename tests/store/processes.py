"""Starting the programs of `children`."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.kit import warm

ROOT = Path(__file__).parents[2]


def command(name: str, url: str, anchor: Path, *rest: str) -> list[str]:
    return [*warm.python(), "-m", "tests.store.children", name, url, str(anchor), *rest]


@asynccontextmanager
async def start_process(name: str, url: str, anchor: Path, *rest: str) -> AsyncGenerator[Process]:
    """The program, running; killed at the end of the block if it still is."""
    process = await anyio.open_process(
        command(name, url, anchor, *rest), cwd=ROOT, stdin=subprocess.PIPE, stderr=None
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def lines(process: Process) -> AsyncIterator[str]:
    """What the program says, line by line; a last line without an end was never said."""
    assert process.stdout is not None
    rest = ""
    async for text in TextReceiveStream(process.stdout):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield line


async def read_output(name: str, url: str, anchor: Path, *rest: str) -> list[str]:
    """Everything a program says until it ends by itself."""
    with anyio.fail_after(50):
        async with start_process(name, url, anchor, *rest) as process:
            everything = [line async for line in lines(process)]
            assert await process.wait() == 0
    return everything
