"""Many may look at the index at once; whoever changes it does so alone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition


class ReadWriteLock:
    """A lock for many readers or one writer. A waiting writer goes before new readers."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._reading = 0
        self._writing = False
        self._waiting = 0

    @contextmanager
    def lock_for_reading(self) -> Generator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._waiting)
            self._reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def lock_for_writing(self) -> Generator[None]:
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._reading)
            finally:
                self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
