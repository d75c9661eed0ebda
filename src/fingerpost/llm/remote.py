"""What every model behind an address has in common: its settings, one deadline, one connection kept.

The connection is built when the first question is asked, in a worker thread: loading its
library takes a good part of a second.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import replace
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import anyio
import anyio.to_thread

from fingerpost.llm.base import Closable, ModelReply, ModelRequest, OnText
from fingerpost.llm.failures import FailedAttempt, build_timeout
from fingerpost.llm.patience import compute_delay
from fingerpost.redaction import register_secret
from fingerpost.settings import ModelSettings

MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
MAX_REMEMBERED_MODELS: Final = 32  # at one address, of which something is remembered

C = TypeVar("C", bound=Closable)


class RemoteChat(ABC, Generic[C]):
    """One model. Close it when done; connections are kept in between."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self._settings = settings
        self._reply_bytes = reply_bytes
        self._lock = anyio.Lock()
        self._connection: C | None = None
        self._unwanted: OrderedDict[str, frozenset[str]] = OrderedDict()  # what each model here has refused
        if settings.api_key:
            register_secret(settings.api_key)

    @property
    def name(self) -> str:
        return self._settings.model

    @property
    def settings(self) -> ModelSettings:
        """What it was made with: its address, its window, its prices."""
        return self._settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """One reply, within `timeout` seconds, repetitions included."""
        connection = await self._get_connection()
        began = time.perf_counter()
        try:
            with anyio.fail_after(self._settings.timeout):
                reply = await self._complete_on(connection, request, on_text)
        except TimeoutError as passed:
            raise build_timeout(request.model or self.name, self._settings.timeout) from passed
        return replace(reply, milliseconds=(time.perf_counter() - began) * 1000)

    def _get_refused_options(self, request: ModelRequest) -> frozenset[str]:
        """The options the model that answers this has refused before."""
        return self._unwanted.get(request.model or self.name, frozenset())

    def _note_refused_option(self, request: ModelRequest, option: str) -> None:
        """From now on it is asked without. Callers name models as they please, so few are remembered."""
        name = request.model or self.name
        self._unwanted[name] = self._get_refused_options(request) | {option}
        while len(self._unwanted) > MAX_REMEMBERED_MODELS:
            self._unwanted.popitem(last=False)

    async def _wait(self, failed_attempt: FailedAttempt, tries: int) -> None:
        """Wait for the next try, or raise what is the matter when there is none."""
        wait = (
            compute_delay(tries, failed_attempt.wait)
            if failed_attempt.again and tries <= self._settings.retries
            else None
        )
        if wait is None:
            raise failed_attempt.error from None
        await anyio.sleep(wait)

    async def _get_connection(self) -> C:
        async with self._lock:
            if self._connection is None:
                self._connection = await anyio.to_thread.run_sync(self._build)
            return self._connection

    @abstractmethod
    async def _complete_on(self, connection: C, request: ModelRequest, on_text: OnText | None) -> ModelReply:
        """The reply, at whichever try it comes."""

    @abstractmethod
    def _build(self) -> C:
        """A new connection; nothing is sent yet."""
