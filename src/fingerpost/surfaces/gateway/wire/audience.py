"""Who hears news outside of a request: sessions with their stream, and subscription streams."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest
from fingerpost.surfaces.gateway.wire.codec import notification_message

log = logging.getLogger("fingerpost.gateway")

# News that only say "look again": the same one twice in a row says no more than once.
LEVELS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


# News wait for clients that do not read, many at a time.
LONGEST: Final = 64 * 1024


class News:
    """One notification, encoded at most once however many hear it."""

    __slots__ = ("_message", "method", "params")

    def __init__(self, method: str, params: JsonObject) -> None:
        self.method = method
        self.params = params
        self._message: bytes | None = None

    @property
    def message(self) -> bytes:
        if self._message is None:
            self._message = notification_message(self.method, self.params)
        return self._message


class Listener(Protocol):
    """Somebody connected. `hear` takes the news and returns at once."""

    @property
    def request(self) -> ClientRequest:
        """The request that made them a listener."""
        ...

    def hear(self, news: News) -> None: ...


class Listeners:
    """The audience of one gateway."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """From now on `listener` hears news; call the result to end it."""
        key = id(listener)
        self._listeners[key] = listener

        def leave() -> None:
            self._listeners.pop(key, None)

        return leave

    def publish(
        self, method: str, params: JsonObject, *, to: Callable[[ClientRequest], bool] | None = None
    ) -> None:
        if not self._listeners:
            return
        news = News(method, params)
        if len(news.message) > LONGEST:
            log.info("%s of %d bytes is too long to be passed on", method, len(news.message))
            return
        for listener in list(self._listeners.values()):
            try:
                if to is None or to(listener.request):
                    listener.hear(news)
            except Exception:
                log.exception("One listener could not be told of %s", method)
