"""Messages as lines on two file descriptors: one reader, one writer, standard output kept clean."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import closing, contextmanager
from typing import Final

import anyio

from fingerpost.surfaces.gateway.wire.blocking import BlockingThread

CHUNK: Final = 64 * 1024
MAX_UNREAD: Final = 8 * 1024 * 1024  # bytes a client may leave lying before whoever writes has to wait


class OversizedLine:
    """Stands for a line longer than is taken; its bytes are gone."""


async def read_lines(descriptor: int, *, limit: int) -> AsyncGenerator[bytes | OversizedLine]:
    """Every line without its end, until the other side closes."""
    rest = bytearray()
    skipping = False
    with closing(BlockingThread("fingerpost-reading")) as thread:
        while chunk := await thread.call(os.read, descriptor, CHUNK):
            *whole, tail = chunk.split(b"\n")
            for part in whole:
                line = bytes(rest) + part
                rest.clear()
                if skipping or len(line) > limit:
                    skipping = False
                    yield OversizedLine()
                elif line.strip():
                    yield line
            rest += tail
            if len(rest) > limit:
                rest.clear()
                skipping = True
    if skipping:
        yield OversizedLine()
    elif rest.strip():
        yield bytes(rest)


class LineWriter:
    """Lines in the order they were given. What gathers while one is written goes out in one piece."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: list[bytes] = []
        self._size = 0
        self._filled = anyio.Event()
        self._emptied = anyio.Event()
        self._closed = False

    async def write(self, message: bytes) -> None:
        """Give a line; waits while the client has too much to read."""
        while self._size > MAX_UNREAD and not self._closed:
            await self._emptied.wait()
        self._waiting.append(message.replace(b"\n", b" ") if b"\n" in message else message)
        self._size += len(message) + 1
        self._filled.set()

    async def run(self) -> None:
        """Write until `close`; raises `OSError` when the client is gone."""
        with closing(BlockingThread("fingerpost-writing")) as thread:
            await self._write_queued(thread)

    async def _write_queued(self, thread: BlockingThread) -> None:
        while self._waiting or not self._closed:
            await self._filled.wait()
            self._filled = anyio.Event()
            lines, self._waiting, self._size = self._waiting, [], 0
            self._emptied.set()
            self._emptied = anyio.Event()
            if lines:
                data = b"\n".join([*lines, b""])
                await thread.call(self._write_all, data)

    def close(self) -> None:
        """What waits is still written, then `run` ends."""
        self._closed = True
        self._filled.set()

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


@contextmanager
def reserve_standard_streams() -> Generator[tuple[int, int]]:
    """Standard input and output for the protocol alone.

    Meanwhile descriptor 0 is empty and 1 leads to standard error, so that whatever
    prints by accident, here or in a program we start, does not end up in a message.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield reading, writing
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(nothing)
        # `reading` and `writing` stay: a thread may still wait in a read, and a number that is
        # closed under it could be given to another file.
