"""Narrowings given again for a short while.

The key holds everything the answer depends on: the words, the conversation, the
version of the catalog, what is hidden and allowed, which servers are well. So a
changed catalog or policy cannot be answered from before: it asks another question.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from fingerpost.narrow.request import NarrowRequest, bound_text
from fingerpost.records import Message

T = TypeVar("T")


class ExpiringCache(Generic[T]):
    """The newest answers, each for so many seconds. Safe to use from several threads."""

    def __init__(self, *, seconds: float, entries: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._entries = entries
        self._clock = clock
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            since, value = entry
            if self._clock() - since >= self._seconds:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
            return value

    def put(self, key: Hashable, value: T) -> None:
        if self._entries < 1 or self._seconds <= 0:
            return
        with self._lock:
            self._kept[key] = (self._clock(), value)
            self._kept.move_to_end(key)
            while len(self._kept) > self._entries:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def build_cache_key(request: NarrowRequest, *, catalog: int, ready: float) -> Hashable:
    """Everything the answer to `request` depends on, given this catalog and this share of ready vectors."""
    return (
        bound_text(request.text),
        _hash_history(request.history),
        catalog,
        ready,
        request.allowed,
        frozenset((key, hidden.rule, hidden.reason) for key, hidden in request.hidden.items()),
        None if request.servers is None else (request.servers.servers, request.servers.by == "off"),
        frozenset(request.health.items()),
        request.max_tools,
        request.used,
        request.about,
        request.effort,
        request.person,
        None if request.settings is None else (request.settings.flags, request.settings.narrow),
    )


def _hash_history(history: tuple[Message, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for message in history:
        for part in (message.role, message.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
    return digest.digest()
