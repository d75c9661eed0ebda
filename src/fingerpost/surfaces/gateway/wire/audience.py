"""Who hears news outside of a request: sessions with their stream, and subscription streams."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest
from fingerpost.surfaces.gateway.wire.codec import encode_notification

log = logging.getLogger("fingerpost.gateway")

# News that only say "look again": the same one twice in a row says no more than once.
LOG_LEVEL_METHODS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


# News wait for clients that do not read, many at a time.
MAX_NOTIFICATION_BYTES: Final = 64 * 1024


class Notification:
    """One notification, encoded at most once however many hear it."""

    __slots__ = ("_message", "method", "params")

    def __init__(self, method: str, params: JsonObject) -> None:
        self.method = method
        self.params = params
        self._message: bytes | None = None

    @property
    def message(self) -> bytes:
        if self._message is None:
            self._message = encode_notification(self.method, self.params)
        return self._message


class NotificationListener(Protocol):
    """Somebody connected. `receive` takes the news and returns at once."""

    @property
    def request(self) -> ClientRequest:
        """The request that made them a listener."""
        ...

    def receive(self, notification: Notification) -> None: ...


class NotificationListeners:
    """The audience of one gateway."""

    def __init__(self) -> None:
        self._listeners: dict[int, NotificationListener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: NotificationListener) -> Callable[[], None]:
        """From now on `listener` hears news; call the result to end it."""
        key = id(listener)
        self._listeners[key] = listener

        def leave() -> None:
            self._listeners.pop(key, None)

        return leave

    def publish(
        self,
        method: str,
        params: JsonObject,
        *,
        should_receive: Callable[[ClientRequest], bool] | None = None,
    ) -> None:
        if not self._listeners:
            return
        news = Notification(method, params)
        if len(news.message) > MAX_NOTIFICATION_BYTES:
            log.info("%s of %d bytes is too long to be passed on", method, len(news.message))
            return
        for listener in list(self._listeners.values()):
            try:
                if should_receive is None or should_receive(listener.request):
                    listener.receive(news)
            except Exception:
                log.exception("One listener could not be told of %s", method)
