"""Whoever wants to be told, kept in a list: one that fails does not keep the others from hearing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVarTuple

logger = logging.getLogger("fingerpost.servers")

Facts = TypeVarTuple("Facts")


class Listeners(Generic[*Facts]):
    """Callbacks for one kind of news."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[*Facts], None]] = {}

    def add(self, callback: Callable[[*Facts], None]) -> Callable[[], None]:
        """Have `callback` called from now on, until the function returned here is."""
        token = object()
        self._callbacks[token] = callback

        def stop() -> None:
            self._callbacks.pop(token, None)

        return stop

    def tell(self, *facts: *Facts) -> None:
        for callback in tuple(self._callbacks.values()):
            try:
                callback(*facts)
            except Exception:
                logger.exception("a listener of the servers failed on %s", " ".join(map(str, facts[:2])))
