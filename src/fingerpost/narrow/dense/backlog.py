"""Texts that wait for their vectors, and the threads that work them off in the background.

The threads live only while there is work. They step back between two texts whenever
a request is being answered, and on Linux they also run at a lower priority, so that
filling an index of thousands is never felt.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

MAX_PAUSE_S: Final = 0.25  # seconds: a busy router must not stop the index for ever
CLOSE_TIMEOUT_S: Final = 5.0
LOW_PRIORITY: Final = 10


class EncodingQueue:
    """Works off texts, each once, by calling `work(key, text)` on threads of its own.

    Neither `work` nor `rest` may raise; `rest` is called by each thread that finds nothing left to do.
    """

    def __init__(
        self, work: Callable[[bytes, str], None], rest: Callable[[], None], *, workers: int = 1
    ) -> None:
        self._work = work
        self._rest = rest
        self._workers = workers
        self._changed = threading.Condition()
        self._waiting: dict[bytes, str] = {}
        self._at_work: set[bytes] = set()
        self._threads: set[threading.Thread] = set()
        self._pauses = 0
        self._closed = False

    def replace(self, waiting: Mapping[bytes, str]) -> None:
        """These are wanted now; what waited before and is not among them no longer is."""
        with self._changed:
            if self._closed:
                return
            self._waiting = {key: text for key, text in waiting.items() if key not in self._at_work}
            while self._waiting and len(self._threads) < min(self._workers, len(self._waiting)):
                thread = threading.Thread(target=self._run, name="fingerpost-vectors", daemon=True)
                self._threads.add(thread)
                thread.start()

    def wait(self, timeout: float) -> bool:
        """Whether nothing is left, at most `timeout` seconds from now."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads and not self._at_work, timeout)

    def prioritize(self, keys: Sequence[bytes], seconds: float) -> None:
        """These are wanted now: they are worked off on this thread, as far as `seconds` reach."""
        deadline = time.monotonic() + seconds
        did_any = False
        for key in keys:
            with self._changed:
                if time.monotonic() > deadline:
                    break
                if (text := self._waiting.pop(key, None)) is None:
                    continue
                self._at_work.add(key)
            self._work(key, text)
            self._mark_done(key)
            did_any = True
        with self._changed:  # what another thread had begun
            self._changed.wait_for(
                lambda: self._at_work.isdisjoint(keys), max(deadline - time.monotonic(), 0.0)
            )
            is_last = not self._threads
        if did_any and is_last:
            self._rest()

    @contextmanager
    def pause(self) -> Generator[None]:
        """While something more urgent runs."""
        with self._changed:
            self._pauses += 1
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def clear(self) -> None:
        """Nothing is wanted any more."""
        with self._changed:
            self._waiting = {}

    def close(self) -> None:
        """No more work; what is being done is finished, at most a few seconds."""
        with self._changed:
            self._closed = True
            self._waiting = {}
            self._changed.notify_all()
        self.wait(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        first = True
        while (item := self._wait_for_next()) is not None:
            key, text = item
            self._work(key, text)
            self._mark_done(key)
            if first:  # now, because threads the model starts would inherit the priority
                first = False
                _lower_priority()

    def _wait_for_next(self) -> tuple[bytes, str] | None:
        """The next text, or None when this thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pauses or self._closed, MAX_PAUSE_S)
            if item := self._take():
                return item
        self._rest()
        with self._changed:
            if item := self._take():  # something came meanwhile
                return item
            self._threads.discard(threading.current_thread())
            self._changed.notify_all()
            return None

    def _mark_done(self, key: bytes) -> None:
        with self._changed:
            self._at_work.discard(key)
            self._changed.notify_all()

    def _take(self) -> tuple[bytes, str] | None:
        for key, text in self._waiting.items():
            del self._waiting[key]
            self._at_work.add(key)
            return key, text
        return None


def _lower_priority() -> None:
    """Of this thread alone, which only Linux can do."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
