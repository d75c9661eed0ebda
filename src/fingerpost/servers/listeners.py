"""Whoever wants to be told, kept in a list: one that fails does not keep the others from hearing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVarTuple

logger = logging.getLogger("fingerpost.servers")

CallbackArgs = TypeVarTuple("CallbackArgs")


class CallbackList(Generic[*CallbackArgs]):
    """Callbacks for one kind of news."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[*CallbackArgs], None]] = {}

    def add(self, callback: Callable[[*CallbackArgs], None]) -> Callable[[], None]:
        """Have `callback` called from now on, until the function returned here is."""
        token = object()
        self._callbacks[token] = callback

        def stop() -> None:
            self._callbacks.pop(token, None)

        return stop

    def call_all(self, *arguments: *CallbackArgs) -> None:
        for callback in tuple(self._callbacks.values()):
            try:
                callback(*arguments)
            except Exception:
                logger.exception("a listener of the servers failed on %s", " ".join(map(str, arguments[:2])))
