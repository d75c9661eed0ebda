"""The processes that serve: interpreter settings while serving, memory, and workers that share a port."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen

# New objects between two collections. A few concurrent calls reach Python's default of 700, all alive:
# such a collection frees nothing and takes 5 % of a call.
GC_THRESHOLD: Final = 10_000
# How long another thread keeps the interpreter while the event loop waits. A response waits three times;
# while indexes are built after startup, the default of 5 ms made it three times as slow.
SWITCH_INTERVAL_S: Final = 0.0005


_lock = Lock()
_serving = 0
_original_settings: tuple[float, tuple[int, int, int]] = (0.0, (0, 0, 0))  # to restore


@contextmanager
def tune_for_serving() -> Generator[None]:
    """Use short thread switch intervals and rare garbage collection, and freeze existing objects.

    The settings apply to the whole process. They are restored when the last server in it ends.
    """
    _apply_settings()
    try:
        yield
    finally:
        _restore_settings()


def _apply_settings() -> None:
    global _serving, _original_settings  # noqa: PLW0603 - as process-wide as what is changed
    with _lock:
        _serving += 1
        if _serving == 1:
            _original_settings = sys.getswitchinterval(), gc.get_threshold()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD, *_original_settings[1][1:])


def _restore_settings() -> None:
    global _serving  # noqa: PLW0603 - as above
    with _lock:
        _serving -= 1
        if not _serving:
            gc.set_threshold(*_original_settings[1])
            gc.unfreeze()
            sys.setswitchinterval(_original_settings[0])


_M_ARENA_MAX: Final = -8  # a parameter of mallopt(3)


def use_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc: with one for each thread, what
    many threads took at once is not given back. Python lets one of them run at a time anyway.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def collect_garbage() -> None:
    """Collect garbage and give free memory back to the system, where the C library is glibc."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


log = logging.getLogger("fingerpost.web")

FIRST_RESTART_S: Final = 0.2  # doubled for a worker that ends again at once
MAX_RESTART_S: Final = 10.0
STEADY_S: Final = 10.0  # a worker that ran so long is restarted without a delay
STOP_S: Final = 20.0  # for the workers to end; then they are killed
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_READY: Final = b"r"


@frozen
class Worker:
    """This process, as one of several that share a port. The first one connects to the programs."""

    number: int
    count: int
    group: str  # the same for all workers of one command
    listening: socket.socket
    parent: int  # readable when the parent process has ended
    is_restarted: bool
    tell_ready: Callable[[], None]


@dataclass(slots=True)
class _RunningWorker:
    pid: int
    ready: int  # readable when it serves, or has ended
    began: float
    restart_s: float = FIRST_RESTART_S
    restart_at: float | None = None  # set while it is not running


def run_workers(listening: Sequence[socket.socket], group: str) -> Worker | int:
    """Start a worker for each socket, and start those that end again, until SIGINT or SIGTERM.

    Returns twice: in each worker with the `Worker` that it is, and in this process, when all workers have
    ended, with the exit status. It forks, so no other thread may run.
    """
    return _WorkerParent(listening, group).run()


class _WorkerParent:
    def __init__(self, listening: Sequence[socket.socket], group: str) -> None:
        self._listening = listening
        self._group = group
        self._workers: dict[int, _RunningWorker] = {}
        self._stopping = 0  # signals received
        self._alive = os.pipe()  # closed with this process; workers wait for that
        self._wakeup = os.pipe()

    def run(self) -> Worker | int:
        for end in self._wakeup:
            os.set_blocking(end, False)
        before = [signal.signal(number, self._on_signal) for number in (*_STOP_SIGNALS, signal.SIGCHLD)]
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        try:
            worker = self._start(0)
            if isinstance(worker, Worker):
                return worker
            # The first one makes the tables, and finds what is wrong with the settings.
            if (status := self._wait_until_ready(worker)) is not None:
                return status
            for number in range(1, len(self._listening)):
                if isinstance(worker := self._start(number), Worker):
                    return worker
            return self._watch()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in zip((*_STOP_SIGNALS, signal.SIGCHLD), before, strict=True):
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stopping += 1

    def _start(
        self, number: int, restart_s: float = FIRST_RESTART_S, *, is_restarted: bool = False
    ) -> Worker | _RunningWorker:
        ready, told = os.pipe()
        pid = os.fork()
        if pid:
            os.close(told)
            self._workers[number] = worker = _RunningWorker(pid, ready, time.monotonic(), restart_s)
            return worker
        os.close(ready)
        os.setpgid(0, 0)  # Ctrl-C reaches the parent alone, which passes it on
        for other in (*self._wakeup, self._alive[1], *(one.ready for one in self._workers.values())):
            os.close(other)
        for index, other in enumerate(self._listening):
            if index != number and other is not self._listening[number]:
                other.close()

        def tell_ready() -> None:
            with suppress(OSError):
                os.write(told, _READY)
                os.close(told)

        return Worker(
            number=number,
            count=len(self._listening),
            group=self._group,
            listening=self._listening[number],
            parent=self._alive[0],
            is_restarted=is_restarted,
            tell_ready=tell_ready,
        )

    def _wait_until_ready(self, worker: _RunningWorker) -> int | None:
        """Wait until the first worker serves. Return its exit status if it has ended instead."""
        passed = 0
        while not _has_data(worker.ready, 0.5):
            if self._stopping > passed:
                passed = self._stopping
                _send_signal(worker.pid)
        if os.read(worker.ready, 1) == _READY:
            return None
        _, status = os.waitpid(worker.pid, 0)
        return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1

    def _watch(self) -> Worker | int:
        """Restart workers that end, until all were asked to end and did."""
        passed, deadline = 0, 0.0
        while True:
            self._collect_ended()
            now = time.monotonic()
            if self._stopping:
                if not any(worker.restart_at is None for worker in self._workers.values()):
                    return 0
                if self._stopping > passed:
                    deadline = now + STOP_S if not passed else deadline
                    passed = self._stopping
                    self._signal_all(signal.SIGTERM)
                elif now > deadline:
                    self._signal_all(signal.SIGKILL)
            else:
                for number, worker in tuple(self._workers.items()):
                    if worker.restart_at is not None and now >= worker.restart_at:
                        os.close(self._workers.pop(number).ready)
                        started = self._start(number, worker.restart_s, is_restarted=True)
                        if isinstance(started, Worker):
                            return started
            due = [one.restart_at - now for one in self._workers.values() if one.restart_at is not None]
            if _has_data(self._wakeup[0], max(0.01, min((0.5, *due)))):
                os.read(self._wakeup[0], 4096)

    def _collect_ended(self) -> None:
        for number, worker in self._workers.items():
            if worker.restart_at is not None or os.waitpid(worker.pid, os.WNOHANG)[0] == 0:
                continue
            now = time.monotonic()
            if now - worker.began > STEADY_S:
                worker.restart_s = FIRST_RESTART_S
            worker.restart_at = now + worker.restart_s
            worker.restart_s = min(2 * worker.restart_s, MAX_RESTART_S)
            if not self._stopping:
                log.warning("worker %d (process %d) ended and is started again", number + 1, worker.pid)

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.restart_at is None:
                _send_signal(worker.pid, number)


def _send_signal(pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _has_data(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def check_workers(count: int) -> None:
    """Raise `ConfigError` if this system cannot run so many workers."""
    if count > 1 and not hasattr(os, "fork"):
        message = "several workers need a system with fork, such as Linux or macOS"
        raise ConfigError(
            message, hint="Leave out --workers, or run several instances behind a load balancer."
        )
