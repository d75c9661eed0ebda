"""A byte stream that raises an error when it gets too long. Imported only with the HTTP library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2

from fingerpost.errors import ModelReplyInvalid


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, model: str) -> None:
        self._stream = stream
        self._limit = limit
        self._model = model

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._stream:
            read += len(piece)
            if read > self._limit:
                message = f"{self._model} answered with more than {self._limit:,} bytes"
                raise ModelReplyInvalid(message, model=self._model, hint="Is its base_url right?")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def limit_bytes(stream: object, *, limit: int, model: str) -> httpx2.AsyncByteStream:
    """Return the stream limited to `limit` bytes."""
    return _LimitedStream(cast("httpx2.AsyncByteStream", stream), limit, model)
